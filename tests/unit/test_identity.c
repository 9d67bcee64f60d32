/* Goal    two checkpoints have one identity only if they are the same model.
 * Method  a tiny checkpoint; a copy of it elsewhere; then, one after the other,
 *         a fine-tune (the middle of one tensor changed), another number in
 *         config.json. Each must differ from what it was, and put back be equal
 *         again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/ckpt.h"
#include "model/ckpt/identity.h"
#include "model/tools/synth.h"
#include "tests/unit/ckpt_files.h"

static const char shard[] = "model-00002-of-000004.safetensors";

static struct identity identity(const char *dir)
{
    struct config c;
    struct ckpt *k;
    struct identity id;
    struct error error = { 0 };
    assert_int_equal(config_load(&c, dir, &error), 0);
    assert_int_equal(ckpt_open(&k, dir, &c, &error), 0);
    assert_int_equal(identity_of(&id, k, &c, &error), 0);
    ckpt_close(k);
    config_free(&c);
    return id;
}

static bool equal(struct identity a, struct identity b)
{
    return !memcmp(a.byte, b.byte, sizeof a.byte);
}

static void a_copy_is_the_same(void **state)
{
    (void)state;
    char *a = ckpt_files_make(), *b = ckpt_files_make();
    struct identity id = identity(a);
    char text[IDENTITY_TEXT_BYTES];
    assert_true(equal(id, identity(b)));
    identity_text(text, &id);
    assert_int_equal(strlen(text), 64);
    assert_int_equal(strspn(text, "0123456789abcdef"), 64);
    ckpt_files_remove(a);
    ckpt_files_remove(b);
}

/* Where the data of the layer's o_proj lies in the shard. */
static size_t middle_of_a_tensor(const char *dir)
{
    struct config c;
    struct ckpt *k;
    struct extent e;
    struct error error = { 0 };
    assert_int_equal(config_load(&c, dir, &error), 0);
    assert_int_equal(ckpt_open(&k, dir, &c, &error), 0);
    assert_int_equal(ckpt_tensor(k, 1, T_O, &e), 0);
    assert_non_null(strstr(ckpt_path(k, e.file), shard));
    ckpt_close(k);
    config_free(&c);
    return e.offset_bytes + e.length_bytes / 2;
}

static void a_fine_tune_is_another(void **state)
{
    (void)state;
    char *dir = ckpt_files_make();
    struct identity before = identity(dir);
    size_t length, at = middle_of_a_tensor(dir);
    char *bytes = ckpt_files_read(dir, shard, &length);
    assert_true(at < length);
    bytes[at] ^= 1;
    ckpt_files_write(dir, shard, bytes, length);
    assert_false(equal(before, identity(dir)));
    bytes[at] ^= 1;
    ckpt_files_write(dir, shard, bytes, length);
    assert_true(equal(before, identity(dir)));
    free(bytes);
    ckpt_files_remove(dir);
}

static void another_number_in_the_config_is_another(void **state)
{
    (void)state;
    char *dir = ckpt_files_make();
    struct identity before = identity(dir);
    size_t length;
    char *text = ckpt_files_read(dir, "config.json", &length);
    char *at = strstr(text, "\"routed_scaling_factor\"");
    assert_non_null(at);
    at = strpbrk(at, "0123456789");
    assert_non_null(at);
    *at = *at == '1' ? '2' : '1';
    ckpt_files_write(dir, "config.json", text, length);
    assert_false(equal(before, identity(dir)));
    free(text);
    ckpt_files_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_the_same),
        cmocka_unit_test(a_fine_tune_is_another),
        cmocka_unit_test(another_number_in_the_config_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

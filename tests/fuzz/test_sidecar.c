/* Goal    a sidecar that was damaged anywhere is refused, or what is taken from
 *         it is right; one that lies about itself with good checksums does not
 *         lead outside its buffers.
 * Method  the sidecars of a tiny checkpoint; bytes flipped, cut or copied
 *         elsewhere, as they are and with the checksums made good again; then
 *         everything that opens is checked, decoded and, where the checksums
 *         are the writer's, compared with the shard. MUTATIONS is how many,
 *         10000 in check-long. For the sanitizers each thing has its own
 *         allocation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/kern.h"
#include "compute/u3.h"
#include "model/ckpt/ckpt.h"
#include "model/ckpt/slurp.h"
#include "model/pack/object.h"
#include "model/pack/pack.h"
#include "tests/fuzz/damage.h"

static char dir[64], pack_dir[80];
static char *shard_path, *pack_path;
static uint8_t *shard, *good, *bad;
static size_t shard_bytes, good_bytes;

static uint8_t *load(const char *path, size_t *bytes)
{
    char *text;
    assert_int_equal(slurp_file(&text, bytes, path, 1u << 30, NULL), 0);
    return (uint8_t *)text;
}

static int begin(void **state)
{
    struct error error = { 0 };
    struct pack_facts facts;
    struct config c;
    struct ckpt *k = NULL;
    struct kern kern;
    (void)state;
    strcpy(dir, "/tmp/sluice-sidecar-XXXXXX");
    damage_checkpoint(dir);
    damage_seed = 11;
    snprintf(pack_dir, sizeof pack_dir, "%s.packed", dir);
    kern_init(&kern, ISA_COUNT - 1);
    if (config_load(&c, dir, &error) || ckpt_open(&k, dir, &c, &error))
        fail_msg("%s", error.text);
    struct pack_options p = { .model = dir, .to = pack_dir, .jobs = 2,
                              .what = SIDECAR_TRUNK | SIDECAR_SCALES,
                              .kern = &kern };
    if (pack_run(&facts, &p, &c, k, &error))
        fail_msg("%s", error.text);
    /* A layer with experts. */
    shard_path = strdup(ckpt_path(k, 2));
    pack_path = sidecar_path(pack_dir, shard_path);
    shard = load(shard_path, &shard_bytes);
    good = load(pack_path, &good_bytes);
    bad = malloc(good_bytes + BOX_PAGE);
    ckpt_close(k);
    config_free(&c);
    return 0;
}

static int end(void **state)
{
    char command[200];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s %s", dir, pack_dir);
    return system(command);
}

/* A copy of its own, so that a byte too far is seen. */
static uint8_t *own(const uint8_t *file, uint64_t at, uint32_t bytes)
{
    uint8_t *copy = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(copy);
    uint8_t *exact = bytes % 64 ? malloc(bytes) : copy;
    if (exact != copy)
        free(copy);
    memcpy(exact, file + at, bytes);
    return exact;
}

static uint32_t use_tensor(const struct sidecar *s, uint32_t i, bool honest)
{
    const struct sidecar_tensor *t = &s->tensor[i];
    uint64_t source = t->source_at;
    uint32_t used = 0;
    for (uint32_t b = 0; b < t->block_count; b++) {
        const struct box_ref *ref = &s->block[t->first_block + b];
        uint32_t rows = sidecar_block_rows(t, b);
        uint64_t raw = (uint64_t)rows * t->cols * 2;
        uint8_t *block = own(bad, ref->at, ref->bytes), *back = malloc(raw);
        assert_non_null(back);
        const char *wrong = honest
                                ? object_check_block(block, ref, rows, t->cols)
                                : u3_check(block, ref->bytes, rows, t->cols);
        if (!wrong) {
            u3_rows_ref(back, block, 0, rows);
            used++;
            if (honest)
                assert_memory_equal(back, shard + source, raw);
        }
        source += raw;
        free(block);
        free(back);
    }
    return used;
}

static uint32_t use_expert(const struct sidecar *s, uint32_t i, bool honest)
{
    const struct sidecar_head *h = s->head;
    struct sidecar_expert e = s->expert[i];
    uint8_t *object = own(bad, e.ref.at, e.ref.bytes), *plane[SIDECAR_PLANES];
    if (!honest) /* as if the checksum were right */
        e.ref.crc = crc32c(0, object, e.ref.bytes);
    const char *wrong = object_check_scales(object, &e, h->plane, true);
    for (int p = 0; p < SIDECAR_PLANES && !wrong; p++) {
        plane[p] = malloc((size_t)h->plane[p].rows * h->plane[p].cols);
        assert_non_null(plane[p]);
    }
    if (!wrong)
        object_expand(plane, object, &e, h->plane);
    for (int p = 0; p < SIDECAR_PLANES && !wrong; p++) {
        uint64_t at = h->experts_at + i * h->expert_stride + h->plane_at[p];
        if (honest)
            assert_memory_equal(plane[p], shard + at,
                                (size_t)h->plane[p].rows * h->plane[p].cols);
        free(plane[p]);
    }
    free(object);
    return !wrong;
}

/* Open what is in `bad` and use all of it; how many things could be used. */
static uint32_t use(size_t bytes, bool honest)
{
    struct sidecar *s;
    struct error error = { 0 };
    bool moved;
    uint32_t used = 0;
    damage_store(pack_path, bad, bytes);
    if (sidecar_open(&s, pack_path, &error)) {
        assert_true(error.text[0] && strstr(error.text, pack_path));
        return 0;
    }
    if (!sidecar_bind(s, shard_path, &moved, &error) || !honest) {
        for (uint32_t i = 0; i < s->head->tensors; i++)
            used += use_tensor(s, i, honest);
        for (uint32_t i = 0; i < s->head->experts; i++)
            used += use_expert(s, i, honest);
    }
    sidecar_close(s);
    return used;
}

/* One to three wounds; half of them in the head and the tables. */
static size_t wound(void)
{
    uint64_t tables = damage_tables_at(good);
    size_t bytes = good_bytes;
    memcpy(bad, good, good_bytes);
    for (uint64_t times = 1 + damage_draw(3); times; times--) {
        uint64_t at = damage_draw(2)   ? damage_draw(good_bytes)
                      : damage_draw(2) ? damage_draw(256)
                                       : tables + damage_draw(good_bytes -
                                                              tables);
        switch (damage_draw(6)) {
        case 0:
            bad[at] = (uint8_t)damage_draw(256);
            break;
        case 1:
            bytes = damage_draw(4) ? bytes : at;
            break;
        case 2: {
            uint64_t from = damage_draw(good_bytes), room = good_bytes - 64;
            memmove(bad + (at < room ? at : room),
                    good + (from < room ? from : room), 1 + damage_draw(64));
            break;
        }
        case 3:
            memset(bad + at, damage_draw(2) ? 0 : 255,
                   good_bytes - at < 8 ? good_bytes - at : 8);
            break;
        default:
            bad[at] ^= (uint8_t)(1u << damage_draw(8));
        }
    }
    return bytes;
}

enum { ROUNDS = 1500 };

static void whole(void **state)
{
    struct sidecar *s;
    (void)state;
    memcpy(bad, good, good_bytes);
    uint32_t used = use(good_bytes, true);
    assert_int_equal(sidecar_open(&s, pack_path, NULL), 0);
    assert_int_equal(used, s->head->blocks + s->head->experts);
    assert_true(s->head->tensors > 5 && s->head->experts == 8);
    sidecar_close(s);
}

/* Every byte of what the head says, and of the tables: refused, with the
 * sentence. Cut at every page and inside the tables: refused. */
static void head_and_tables(void **state)
{
    struct sidecar *s;
    uint64_t tables = damage_tables_at(good);
    (void)state;
    memcpy(bad, good, good_bytes);
    for (uint64_t at = 0; at < good_bytes;) {
        bad[at] ^= 32;
        assert_int_equal(use(good_bytes, true), 0);
        bad[at] ^= 32;
        at += at < 208 ? 1 : at < 4088 ? 97 : at < 4096 ? 1 : 211;
        at = at >= 4096 && at < tables ? tables : at;
    }
    for (uint64_t bytes = 0; bytes < good_bytes; bytes += bytes < tables
                                                            ? 4096
                                                            : 1009)
        assert_int_equal(use(bytes, true), 0);
    damage_store(pack_path, good, good_bytes);
    assert_int_equal(sidecar_open(&s, pack_path, NULL), 0);
    sidecar_close(s);
}

static void damaged(void **state)
{
    uint32_t refused = 0, used = 0;
    (void)state;
    for (uint32_t i = 0; i < damage_rounds(ROUNDS); i++)
        *(use(wound(), true) ? &used : &refused) += 1;
    assert_true(refused > 20 && used > 20);
}

static void lying(void **state)
{
    uint32_t refused = 0, used = 0;
    (void)state;
    for (uint32_t i = 0; i < damage_rounds(ROUNDS); i++) {
        size_t bytes = wound();
        damage_seal(bad, bytes);
        *(use(bytes, false) ? &used : &refused) += 1;
    }
    assert_true(refused > 20 && used > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(head_and_tables),
        cmocka_unit_test(damaged),
        cmocka_unit_test(lying),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

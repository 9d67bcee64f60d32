/* Goal    every tensor of a good checkpoint is found where it is, and a broken
 *         one is refused with the file and the tensor in the sentence.
 * Method  a synthetic checkpoint of 3 layers; one shard at a time is replaced
 *         by one whose header or length is changed, from a table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ckpt/ckpt.h"
#include "tests/unit/ckpt_files.h"

#define SHARD "model-00002-of-000004.safetensors"
#define OTHER "model-00003-of-000004.safetensors"
#define LAYER "language_model.model.layers.1."
#define EXPERT LAYER "block_sparse_moe.experts.7."

static char         *dir;
static struct config config;

static int setup(void **state)
{
    struct error error = { 0 };
    (void)state;
    dir = ckpt_files_make();
    return config_load(&config, dir, &error);
}

static int teardown(void **state)
{
    (void)state;
    config_free(&config);
    ckpt_files_remove(dir);
    return 0;
}

/* Open the folder: `error` and the words are expected. */
static void opens_with(int code, const char *words, const char *also,
                       const char *what)
{
    struct error error = { 0 };
    struct ckpt *k;
    int got = ckpt_open(&k, dir, &config, &error);
    if (got != code || (words && !strstr(error.text, words)) ||
        (also && !strstr(error.text, also)) || (k != NULL) != !code)
        fail_msg("%s: %d, %s", what, got, error.text);
    ckpt_close(k);
}

/* The header of a shard as JSON, and its data. */
struct shard {
    char   *bytes;
    size_t  length;
    size_t  header; /* of the JSON */
    json_t *root;
};

static void shard_read(struct shard *s, const char *name)
{
    uint64_t header;
    s->bytes = ckpt_files_read(dir, name, &s->length);
    memcpy(&header, s->bytes, 8);
    s->header = (size_t)header;
    s->root = json_loadb(s->bytes + 8, s->header, 0, NULL);
    assert_non_null(s->root);
}

/* Write the data behind `text` as the header. */
static void shard_write(const struct shard *s, const char *name,
                        const char *text)
{
    uint64_t header = strlen(text);
    size_t data = s->length - 8 - s->header;
    char *bytes = malloc(8 + header + data);
    memcpy(bytes, &header, 8);
    memcpy(bytes + 8, text, header);
    memcpy(bytes + 8 + header, s->bytes + 8 + s->header, data);
    ckpt_files_write(dir, name, bytes, 8 + header + data);
    free(bytes);
}

static void shard_restore(struct shard *s, const char *name)
{
    ckpt_files_write(dir, name, s->bytes, s->length);
    free(s->bytes);
    json_decref(s->root);
}

static void test_good(void **state)
{
    struct error error = { 0 };
    struct ckpt *k;
    struct extent at;
    struct shard s;
    (void)state;
    assert_int_equal(ckpt_open(&k, dir, &config, &error), 0);
    assert_int_equal(ckpt_files(k), 4);
    assert_non_null(strstr(ckpt_path(k, 1), SHARD));
    shard_read(&s, SHARD);
    assert_int_equal(ckpt_file_size(k, 1), s.length);
    for (int r = 0; r < T_COUNT; r++) {
        enum tensor_role role = (enum tensor_role)r;
        char name[TENSOR_NAME_BYTES];
        if (!tensor_in_layer(role, &config, 1)) {
            assert_int_equal(ckpt_tensor(k, 1, role, &at), -ENOENT);
            continue;
        }
        tensor_name(name, role, 1);
        json_t *range = json_object_get(json_object_get(s.root, name),
                                        "data_offsets");
        uint64_t begin = (uint64_t)json_integer_value(json_array_get(range, 0));
        uint64_t end = (uint64_t)json_integer_value(json_array_get(range, 1));
        assert_int_equal(ckpt_tensor(k, 1, role, &at), 0);
        assert_int_equal(at.file, 1);
        assert_int_equal(at.offset_bytes, 8 + s.header + begin);
        assert_int_equal(at.length_bytes, end - begin);
    }
    assert_int_equal(ckpt_tensor(k, TENSOR_MODEL_LEVEL, T_HEAD, &at), 0);
    assert_int_equal(at.file, 3);
    assert_int_equal(at.length_bytes, 512 * 144 * 2);
    free(s.bytes);
    json_decref(s.root);
    ckpt_close(k);
}

/* Experts are one run each, in the string order 0, 1, 10, 2, ... */
static void test_experts(void **state)
{
    static const uint32_t order[] = { 0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9 };
    struct error error = { 0 };
    struct ckpt *k;
    (void)state;
    assert_int_equal(ckpt_open(&k, dir, &config, &error), 0);
    for (uint32_t layer = 1; layer < 3; layer++) {
        uint64_t next = 0;
        for (size_t i = 0; i < 11; i++) {
            struct extent at[EXPERT_TENSORS];
            ckpt_expert(k, layer, order[i], at);
            for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
                assert_int_equal(at[which].file, layer);
                if (next)
                    assert_int_equal(at[which].offset_bytes, next);
                next = at[which].offset_bytes + at[which].length_bytes;
            }
        }
        assert_int_equal(next, ckpt_file_size(k, layer));
    }
    ckpt_close(k);
}

/* How one tensor of the header is changed. */
struct mutation {
    const char *tensor, *field;
    const char *literal; /* NULL: remove the field, or the tensor */
    const char *words;
    int code;
};

static const struct mutation mutations[] = {
    { EXPERT "w2.weight_scale", NULL, NULL, "missing", -ENOENT },
    { LAYER "self_attn.q_proj.weight", NULL, NULL, "missing", -ENOENT },
    { LAYER "self_attn.o_norm.weight", NULL, NULL, "missing", -ENOENT },
    { EXPERT "w1.weight_packed", "dtype", "\"BF16\"", "bytes", -EBADMSG },
    { EXPERT "w1.weight_packed", "dtype", "\"F8\"", "dtype", -EBADMSG },
    { EXPERT "w1.weight_packed", "dtype", "8", "dtype", -EBADMSG },
    { EXPERT "w1.weight_packed", "dtype", NULL, "dtype", -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", NULL, "shape", -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[32,96]", "by the config",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[3072]", "by the config",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[-96,-32]", "shape", -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[96,32.0]", "shape", -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[96,33]", "bytes", -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[4294967296,4294967296]", "shape",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "shape", "[1,1,1,96,32]", "shape", -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", NULL, "data_offsets",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[0]", "data_offsets",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[0,1,2]", "data_offsets",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[-3072,0]", "data_offsets",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[3072,0]", "data_offsets",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[0,3071]", "bytes",
      -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[0.0,3072.0]",
      "data_offsets", -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets",
      "[9223372036854772735,9223372036854775807]", "data_offsets", -EBADMSG },
    { EXPERT "w1.weight_packed", "data_offsets", "[100000000,100003072]",
      "truncated", -ENODATA },
    { EXPERT "w1.weight_packed", "data_offsets", "[0,3072]", "overlap",
      -EBADMSG },
    { LAYER "self_attn.q_proj.weight", "shape", "[144,80]", "by the config",
      -EBADMSG },
    { LAYER "self_attn.q_conv1d.weight", "shape", "[80,4]", "by the config",
      -EBADMSG },
    { LAYER "mlp_res_proj.weight", "shape", "[144]", "by the config",
      -EBADMSG },
};

static void test_mutations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
        const struct mutation *m = &mutations[i];
        struct shard s;
        shard_read(&s, SHARD);
        json_t *entry = json_object_get(s.root, m->tensor);
        assert_non_null(entry);
        if (!m->field)
            json_object_del(s.root, m->tensor);
        else if (!m->literal)
            json_object_del(entry, m->field);
        else
            json_object_set_new(entry, m->field,
                                json_loads(m->literal, JSON_DECODE_ANY, NULL));
        char *text = json_dumps(s.root, JSON_COMPACT);
        shard_write(&s, SHARD, text);
        free(text);
        opens_with(m->code, m->words, SHARD, m->literal ? m->literal : "");
        opens_with(m->code, m->tensor, NULL, m->literal ? m->literal : "");
        shard_restore(&s, SHARD);
    }
}

/* A tensor under another name: unknown, and its own name missing. */
static void test_names(void **state)
{
    static const char *const names[] = {
        LAYER "self_attn.r_proj.weight",
        LAYER "self_attn.q_a_proj.weight", /* of the other kind of layer */
        LAYER "mlp.up_proj.weight",
        EXPERT "w4.weight_packed",
        EXPERT "w1.weight",
        LAYER "block_sparse_moe.experts.11.w1.weight_packed",
        LAYER "block_sparse_moe.experts.007.w1.weight_packed",
        LAYER "block_sparse_moe.experts.99999999999.w1.weight_packed",
        LAYER "block_sparse_moe.experts..w1.weight_packed",
        "language_model.model.layers.3.input_layernorm.weight",
        "language_model.model.layers.-1.input_layernorm.weight",
        "language_model.model.layers.1",
        "language_model.model.layers.",
        "model.layers.1.input_layernorm.weight",
        "language_model.model.norm.bias",
        "",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct shard s;
        shard_read(&s, SHARD);
        json_t *entry = json_pack("{s:s, s:[i], s:[i,i]}", "dtype", "U8",
                                  "shape", 0, "data_offsets", 0, 0);
        json_object_set_new(s.root, names[i], entry);
        char *text = json_dumps(s.root, JSON_COMPACT);
        shard_write(&s, SHARD, text);
        free(text);
        opens_with(-EBADMSG, names[i], SHARD, names[i]);
        shard_restore(&s, SHARD);
    }
}

/* Names that are not ours to judge. */
static void test_ignored(void **state)
{
    static const char *const names[] = { "__metadata__", "vision_tower.x",
                                         "mm_projector.proj.0.weight" };
    struct shard s;
    (void)state;
    shard_read(&s, SHARD);
    for (size_t i = 0; i < 3; i++)
        json_object_set_new(s.root, names[i],
                            json_pack("{s:s, s:[i], s:[i,i]}", "dtype", "BF16",
                                      "shape", 0, "data_offsets", 0, 0));
    char *text = json_dumps(s.root, JSON_COMPACT);
    shard_write(&s, SHARD, text);
    opens_with(0, NULL, NULL, "ignored names");
    free(text);
    shard_restore(&s, SHARD);
}

/* The same tensor in two shards. */
static void test_twice(void **state)
{
    static const char name[] = LAYER "post_attention_layernorm.weight";
    struct shard s, other;
    (void)state;
    shard_read(&s, SHARD);
    shard_read(&other, OTHER);
    json_object_del(other.root,
                    "language_model.model.layers.2.input_layernorm.weight");
    json_t *moved = json_object_get(
        other.root, "language_model.model.layers.2.post_attention_layernorm"
                    ".weight");
    json_object_set(other.root, name, moved);
    json_object_del(other.root, "language_model.model.layers.2."
                                "post_attention_layernorm.weight");
    char *text = json_dumps(other.root, JSON_COMPACT);
    shard_write(&other, OTHER, text);
    opens_with(-EBADMSG, name, "is also in", "twice");
    free(text);
    shard_restore(&other, OTHER);
    shard_restore(&s, SHARD);
}

/* What stands in front of the JSON, and what is no JSON. */
static void test_headers(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        { "[]", "object" },
        { "null", "header" },
        { "{\"a\":1}", "tensor a" },
        { "{\"a\":{},\"a\":{}}", "duplicate" },
        { "{\"a\":{}", "JSON" },
        { "{}}", "JSON" },
        { "xx", "JSON" },
        { "{\"\xff\":{}}", "JSON" },
        { "{}", "missing" },
    };
    static const uint64_t lengths[] = { 0, 1, 1ull << 30, 1ull << 62,
                                        UINT64_MAX - 7, UINT64_MAX };
    struct shard s;
    (void)state;
    shard_read(&s, SHARD);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shard_write(&s, SHARD, cases[i].text);
        opens_with(i == 8 ? -ENOENT : -EBADMSG, cases[i].words,
                   i == 8 ? NULL : SHARD, cases[i].text);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(s.bytes, &lengths[i], 8);
        ckpt_files_write(dir, SHARD, s.bytes, s.length);
        opens_with(-EBADMSG, "header of", SHARD, "length");
    }
    uint64_t header = s.header;
    memcpy(s.bytes, &header, 8);
    shard_restore(&s, SHARD);
}

/* Cut anywhere, or with bytes behind. */
static void test_lengths(void **state)
{
    struct shard s;
    char found[40], expected[40];
    (void)state;
    shard_read(&s, SHARD);
    const size_t cuts[] = { 0,          1,         7,
                            8,          100,       s.header + 7,
                            s.header + 8, s.length / 2, s.length - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        snprintf(found, sizeof found, "has %zu bytes", cuts[i]);
        ckpt_files_write(dir, SHARD, s.bytes, cuts[i]);
        opens_with(-ENODATA, found, "truncated", found);
        opens_with(-ENODATA, SHARD, NULL, found);
    }
    snprintf(expected, sizeof expected, "need %zu", s.length);
    opens_with(-ENODATA, expected, NULL, expected);
    s.bytes[s.length] = 'x';
    ckpt_files_write(dir, SHARD, s.bytes, s.length + 1);
    opens_with(-EBADMSG, SHARD, "end at", "longer");
    shard_restore(&s, SHARD);
}

/* Shards that are not there, are not files, or are of two sets. */
static void test_files(void **state)
{
    char path[300], away[300], other[300];
    (void)state;
    snprintf(path, sizeof path, "%s/" SHARD, dir);
    snprintf(other, sizeof other, "%s/" OTHER, dir);
    snprintf(away, sizeof away, "%s/away", dir);
    assert_int_equal(rename(path, away), 0);
    opens_with(-ENOENT, SHARD " is missing", NULL, "one missing");
    assert_int_equal(symlink("away", path), 0);
    opens_with(0, NULL, NULL, "symbolic link");
    unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);
    opens_with(-EBADMSG, SHARD, "regular", "folder");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0666), 0);
    opens_with(-EBADMSG, SHARD, "regular", "fifo");
    unlink(path);
    assert_int_equal(rename(other, path), 0);
    opens_with(-ENOENT, OTHER " is missing", NULL, "another's name");
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(rename(away, path), 0);
    opens_with(0, NULL, NULL, "all back");
    snprintf(other, sizeof other, "%s/model-00003-of-000005.safetensors", dir);
    ckpt_files_write(dir, "model-00003-of-000005.safetensors", "", 0);
    opens_with(-EBADMSG, "different sets", NULL, "two sets");
    unlink(other);
}

/* Names without numbers: all of them together are the checkpoint. */
static void test_unnumbered(void **state)
{
    char from[300], to[300];
    (void)state;
    for (int i = 1; i <= 4; i++) {
        snprintf(from, sizeof from, "%s/model-%05d-of-000004.safetensors", dir,
                 i);
        snprintf(to, sizeof to, "%s/part%c.safetensors", dir, 'e' - i);
        assert_int_equal(rename(from, to), 0);
    }
    opens_with(0, NULL, NULL, "unnumbered");
    unlink(to); /* model level, now the first by name */
    opens_with(-ENOENT, "missing", "language_model.", "one less");
    for (int i = 1; i < 4; i++) {
        snprintf(to, sizeof to, "%s/part%c.safetensors", dir, 'e' - i);
        unlink(to);
    }
    opens_with(-ENOENT, "has no *.safetensors", NULL, "none");
}

static void test_oracles(void **state)
{
    static const char *const paths[] = { "tests/oracle/fixtures/a",
                                         "tests/oracle/fixtures/c" };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *path = paths[i];
        struct config c;
        struct error error = { 0 };
        struct ckpt *k = NULL;
        if (config_load(&c, path, &error) || ckpt_open(&k, path, &c, &error))
            fail_msg("%s", error.text);
        ckpt_close(k);
        config_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_experts),
        cmocka_unit_test(test_mutations),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_ignored),    cmocka_unit_test(test_twice),
        cmocka_unit_test(test_headers),    cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_files),      cmocka_unit_test(test_unnumbered),
        cmocka_unit_test(test_oracles),
    };
    return cmocka_run_group_tests_name("ckpt", tests, setup, teardown);
}

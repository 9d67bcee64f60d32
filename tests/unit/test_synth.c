/* Goal    a synthetic checkpoint has the layout of the published one to the
 *         byte, the same bytes for the same seed, and values that exercise the
 *         model.
 * Method  sizes of the full geometry against the table of published sizes,
 *         without writing; fills cut at random places against one fill; pinned
 *         sums of bytes; folders that may and may not be overwritten.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ckpt/ckpt.h"
#include "model/tools/synth_internal.h"
#include "tests/unit/ckpt_files.h"

static void make_config(struct config *c, const char *preset)
{
    struct synth_options o = { .dir = "-", .preset = preset };
    struct error error = { 0 };
    json_t *root;
    if (synth_config(&root, c, &o, 0, &error))
        fail_msg("%s", error.text);
    json_decref(root);
}

/* The published sizes: layers of one kind, then the last three shards. */
struct kind {
    uint32_t count;
    uint64_t file_bytes, header_bytes, first_expert;
};

static const struct kind dense = { 23, 2341216112, 2928, 0 };
static const struct kind kda_early = { 5404, 16990911504, 818704, 1268562960 };
static const struct kind mla_early = { 5398, 16567501776, 817616, 845153232 };
static const struct kind kda_late = { 5404, 16990916912, 824112, 1268568368 };
static const struct kind mla_late = { 5398, 16567507176, 823016, 845158632 };
static const struct kind last[] = { { 5, 4697664072, 584, 0 },
                                    { 3, 92289328, 304, 0 },
                                    { 165, 802448352, 19424, 0 } };

static void test_k3_sizes(void **state)
{
    struct config c;
    uint64_t all = 0, tensors = 0;
    (void)state;
    make_config(&c, "k3");
    assert_int_equal(published_shard_count(&c, true), 96);
    for (uint32_t i = 0; i < 96; i++) {
        bool mla = i < 93 && config_is_mla(&c, i);
        const struct kind *k = i == 0 ? &dense
                               : i >= 93 ? &last[i - 93]
                               : i < 10 ? (mla ? &mla_early : &kda_early)
                                        : (mla ? &mla_late : &kda_late);
        struct published_shard s;
        assert_int_equal(published_shard_init(&s, &c, i), 0);
        assert_int_equal(s.count, k->count);
        assert_int_equal(s.header_bytes, k->header_bytes);
        assert_int_equal(s.header_bytes + s.data_bytes, k->file_bytes);
        for (uint32_t t = 0; k->first_expert && t < s.count; t++)
            if (s.tensor[t].role == T_COUNT) {
                assert_int_equal(s.header_bytes + s.tensor[t].offset_bytes,
                                 k->first_expert);
                break;
            }
        all += s.header_bytes + s.data_bytes;
        tensors += s.count;
        published_shard_free(&s);
    }
    assert_int_equal(tensors, 497220);
    assert_int_equal(all, 1560936091448);
    assert_int_equal(expert_bytes(&c), 17547264);
    config_free(&c);
}

/* --size: the most experts that stay below, or the fewest and a note. */
static void test_sizes(void **state)
{
    struct synth_options o = { .dir = "-", .preset = "bench" };
    struct synth_facts facts, more;
    struct error error = { 0 };
    char count[12];
    (void)state;
    o.size_bytes = 1;
    assert_int_equal(synth_plan(&o, &facts, &error), 0);
    assert_int_equal(facts.experts, 32);
    assert_true(facts.above_size);
    assert_int_equal(facts.bytes / 10000000, 846); /* 8.47 GB, rounded */
    o.size_bytes = 20000000000;
    assert_int_equal(synth_plan(&o, &facts, &error), 0);
    assert_false(facts.above_size);
    assert_true(facts.bytes <= o.size_bytes);
    snprintf(count, sizeof count, "%u", facts.experts + 1);
    struct synth_setting one_more = { "num_experts", count };
    o.setting = &one_more;
    o.settings = 1;
    o.size_bytes = 0;
    assert_int_equal(synth_plan(&o, &more, &error), 0);
    assert_true(more.bytes > 20000000000);
}

/* What does not fit is refused before anything is written. */
static void test_no_room(void **state)
{
    static const struct synth_setting settings[] = {
        { "hidden_size", "1048576" },
        { "intermediate_size", "4194304" },
        { "first_k_dense_replace", "12" },
    };
    char *dir = ckpt_files_place();
    struct synth_options o = { .dir = dir, .preset = "tiny",
                               .setting = settings, .settings = 3 };
    struct synth_facts facts;
    struct error error = { 0 };
    (void)state;
    assert_int_equal(synth_write(&o, &facts, &error), -ENOSPC);
    assert_non_null(strstr(error.text, "GB free"));
    assert_int_equal(access(dir, F_OK), -1);
    ckpt_files_remove(dir);
}

static uint64_t sum_of(const uint8_t *bytes, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Filled in one go and in pieces of any length, every tensor of a shard is the
 * same; and it is what it was on the machine where the sums were taken. */
static void test_fill(void **state)
{
    static const struct {
        uint32_t shard, echo;
        uint64_t sum;
    } cases[] = {
        { 1, 0, UINT64_C(0xc1f2a8ae7db7a435) },
        { 3, 0, UINT64_C(0x2366f76c61d1142e) },
        { 13, 0, UINT64_C(0x9f4cfcc6bd70d1ba) },
        { 13, 5, UINT64_C(0x4725573884727c41) },
    };
    struct config c;
    uint64_t random = 1;
    (void)state;
    make_config(&c, "tiny");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct synth_fill fill = { &c, 7, cases[i].echo, NULL };
        struct published_shard s;
        assert_int_equal(published_shard_init(&s, &c, cases[i].shard), 0);
        uint8_t *whole = malloc(s.data_bytes), *cut = malloc(s.data_bytes);
        for (uint32_t t = 0; t < s.count; t++) {
            uint64_t at = s.tensor[t].offset_bytes;
            uint64_t length = s.tensor[t].length_bytes;
            synth_fill(whole + at, &fill, &s.tensor[t], 0, length);
            for (uint64_t done = 0, n; done < length; done += n) {
                random = synth_mix(random);
                n = random % (length / 3 + 9) + 1;
                if (n > length - done)
                    n = length - done;
                synth_fill(cut + at + done, &fill, &s.tensor[t], done, n);
            }
        }
        assert_memory_equal(whole, cut, s.data_bytes);
        if (sum_of(whole, s.data_bytes) != cases[i].sum)
            fail_msg("case %zu: 0x%llx", i,
                     (unsigned long long)sum_of(whole, s.data_bytes));
        free(whole);
        free(cut);
        published_shard_free(&s);
    }
    config_free(&c);
}

static const struct published_tensor *
tensor_named(const struct published_shard *s, const char *end)
{
    for (uint32_t t = 0; t < s->count; t++) {
        const char *name = s->tensor[t].name;
        if (strlen(name) > strlen(end) &&
            !strcmp(name + strlen(name) - strlen(end), end))
            return &s->tensor[t];
    }
    fail_msg("no tensor %s", end);
    return NULL;
}

/* All 16 codes, three scales, gains that are not 1, biases of both signs, and
 * another seed gives other bytes. */
static void test_values(void **state)
{
    struct config c;
    struct synth_fill fill = { &c, 0, 0, NULL };
    struct synth_fill other = { &c, 1, 0, NULL };
    struct published_shard s;
    static uint8_t bytes[4096], more[4096];
    unsigned codes = 0;
    (void)state;
    make_config(&c, "tiny");
    assert_int_equal(published_shard_init(&s, &c, 1), 0);
    const struct published_tensor *t = tensor_named(&s, "3.w1.weight_packed");
    synth_fill(bytes, &fill, t, 0, 2048);
    synth_fill(more, &other, t, 0, 2048);
    assert_memory_not_equal(bytes, more, 64);
    for (int i = 0; i < 2048; i++)
        codes |= 1u << (bytes[i] & 15) | 1u << (bytes[i] >> 4);
    assert_int_equal(codes, 0xffff);
    t = tensor_named(&s, "3.w1.weight_scale");
    synth_fill(bytes, &fill, t, 0, t->length_bytes);
    for (uint64_t i = 0; i < t->length_bytes; i++)
        assert_in_range(bytes[i], 122, 124);
    t = tensor_named(&s, "input_layernorm.weight");
    synth_fill(bytes, &fill, t, 0, t->length_bytes);
    for (size_t i = 0; i < t->length_bytes; i += 2) {
        uint32_t bits = (uint32_t)(bytes[i] | bytes[i + 1] << 8) << 16;
        float gain;
        memcpy(&gain, &bits, sizeof gain);
        assert_true(gain > 0.59f && gain < 1.41f);
    }
    float bias[14], low = 0, high = 0;
    t = tensor_named(&s, "e_score_correction_bias");
    assert_int_equal(t->length_bytes, sizeof bias);
    synth_fill((uint8_t *)bias, &fill, t, 0, sizeof bias);
    for (int i = 0; i < 14; i++) {
        low = bias[i] < low ? bias[i] : low;
        high = bias[i] > high ? bias[i] : high;
    }
    assert_true(low < -0.05f && low >= -0.15f && high > 0.05f && high <= 0.15f);
    float a_log[16];
    t = tensor_named(&s, "A_log");
    assert_int_equal(t->length_bytes, sizeof a_log);
    synth_fill((uint8_t *)a_log, &fill, t, 0, sizeof a_log);
    assert_memory_not_equal(&a_log[4], &a_log[5], 4);
    for (uint32_t i = c.kda_heads; i < 16; i++)
        assert_int_equal(sum_of((uint8_t *)&a_log[i], 4),
                         sum_of((uint8_t[4]){ 0 }, 4));
    published_shard_free(&s);
    config_free(&c);
}

/* What merging from single bytes makes of a text, with no other way in: the
 * number of tokens. */
static size_t merged(char tokens[][16], const uint8_t *lengths, int count,
                     const char *text, size_t length)
{
    size_t start[17], parts = length;
    for (size_t i = 0; i <= length; i++)
        start[i] = i;
    for (;;) {
        int best = count;
        size_t at = 0;
        for (size_t i = 0; i + 2 <= parts; i++)
            for (int r = 256; r < best; r++)
                if (lengths[r] == start[i + 2] - start[i] &&
                    !memcmp(tokens[r], text + start[i], lengths[r])) {
                    best = r;
                    at = i;
                }
        if (best == count)
            return parts;
        for (size_t i = at + 1; i < parts; i++)
            start[i] = start[i + 1];
        parts--;
    }
}

static int digit(char c)
{
    const char *all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                      "0123456789+/";
    return (int)(strchr(all, c) - all);
}

/* Every token is reached by merges, and none is there twice. */
static void test_tokens(void **state)
{
    enum { TOKENS = 2048 - SYNTH_SPECIALS };
    static char tokens[TOKENS][16];
    static uint8_t lengths[TOKENS];
    const struct synth_setting vocab = { "vocab_size", "2048" };
    char *dir = ckpt_files_place();
    struct synth_options o = { .dir = dir, .preset = "tiny", .sparse = true,
                               .setting = &vocab, .settings = 1 };
    struct synth_facts facts;
    struct error error = { 0 };
    size_t length;
    int count = 0;
    (void)state;
    assert_int_equal(synth_write(&o, &facts, &error), 0);
    char *text = ckpt_files_read(dir, "tiktoken.model", &length);
    for (char *line = text; *line; line = strchr(line, '\n') + 1, count++) {
        assert_in_range(count, 0, TOKENS - 1);
        int bits = 0, held = 0;
        for (char *c = line; *c != ' ' && *c != '='; c++) {
            bits = (bits << 6 | digit(*c)) & 0xffff;
            held += 6;
            if (held >= 8) {
                held -= 8;
                tokens[count][lengths[count]++] = (char)(bits >> held);
            }
        }
        assert_int_equal(atoi(strchr(line, ' ')), count);
    }
    assert_int_equal(count, TOKENS);
    for (int i = 0; i < count; i++) {
        assert_int_equal(merged(tokens, lengths, count, tokens[i], lengths[i]),
                         1);
        for (int j = 0; j < i; j++)
            assert_false(lengths[i] == lengths[j] &&
                         !memcmp(tokens[i], tokens[j], lengths[i]));
    }
    free(text);
    ckpt_files_remove(dir);
}

static int write_to(char *dir, bool sparse, struct error *error)
{
    struct synth_options o = { .dir = dir, .preset = "tiny", .sparse = sparse };
    struct synth_facts facts;
    *error = (struct error){ 0 };
    return synth_write(&o, &facts, error);
}

/* Its own folder again, with what a killed run left; not another's. */
static void test_folders(void **state)
{
    struct error error;
    struct config c;
    struct ckpt *k;
    size_t length;
    char path[300];
    char *dir = ckpt_files_place();
    (void)state;
    assert_int_equal(mkdir(dir, 0777), 0);
    static const char aside[] =
        ".model-00001-of-000014.safetensors.sluice-12345678";
    ckpt_files_write(dir, aside, "x", 1);
    assert_int_equal(write_to(dir, false, &error), 0);
    ckpt_files_write(dir, "model-00001-of-000099.safetensors", "x", 1);
    ckpt_files_write(dir, "notes", "mine", 4);
    assert_int_equal(write_to(dir, false, &error), 0);
    free(ckpt_files_read(dir, "notes", &length));
    snprintf(path, sizeof path, "%s/%s", dir, aside);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(config_load(&c, dir, &error), 0);
    assert_int_equal(ckpt_open(&k, dir, &c, &error), 0);
    ckpt_close(k);
    config_free(&c);
    ckpt_files_write(dir, "config.json", "{\"model_type\":\"kimi_k3\"}", 24);
    assert_int_equal(write_to(dir, false, &error), -EEXIST);
    assert_non_null(strstr(error.text, "not empty"));
    snprintf(path, sizeof path, "%s/model-00001-of-000014.safetensors", dir);
    assert_int_equal(access(path, F_OK), 0);
    ckpt_files_remove(dir);
}

/* What a downloader has so far is not ours. */
static void test_part(void **state)
{
    static const char *const name[] = {
        "config.json.part", "model-00001-of-000014.safetensors.part" };
    struct error error;
    size_t length;
    (void)state;
    for (int i = 0; i < 2; i++) {
        char *dir = ckpt_files_place();
        assert_int_equal(mkdir(dir, 0777), 0);
        ckpt_files_write(dir, name[i], "far", 3);
        assert_int_equal(write_to(dir, false, &error), -EEXIST);
        char *text = ckpt_files_read(dir, name[i], &length);
        assert_string_equal(text, "far");
        free(text);
        ckpt_files_remove(dir);
    }
}

/* A write that fails: one sentence, no shard under its name, no .part. */
static void test_write_fails(void **state)
{
    struct rlimit old, small;
    struct error error;
    char path[300];
    char *dir = ckpt_files_place();
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (int sparse = 0; sparse < 2; sparse++) {
        small = (struct rlimit){ 300000, old.rlim_max };
        setrlimit(RLIMIT_FSIZE, &small);
        int code = write_to(dir, sparse, &error);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(code, -EFBIG);
        assert_non_null(
            strstr(error.text, "model-00001-of-000014.safetensors"));
        snprintf(path, sizeof path, "%s/model-00001-of-000014.safetensors",
                 dir);
        assert_int_equal(access(path, F_OK), -1);
        strcat(path, ".part");
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(write_to(dir, false, &error), 0);
    signal(SIGXFSZ, SIG_DFL);
    ckpt_files_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_k3_sizes),   cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_room),    cmocka_unit_test(test_fill),
        cmocka_unit_test(test_values),     cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_folders),    cmocka_unit_test(test_write_fails),
        cmocka_unit_test(test_part),
    };
    return cmocka_run_group_tests_name("synth", tests, NULL, NULL);
}

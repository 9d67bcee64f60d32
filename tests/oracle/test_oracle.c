/* Goal    it is Kimi K3: logits, greedy ids and chosen experts of an
 *         independent float64 implementation, and the same bits however they
 *         are computed.
 * Method  the oracle checkpoints (data/README.md): largest difference over
 *         largest logit <= 2e-5 at every position, greedy continuation and
 *         every set of experts equal; then memcmp of the logits over budgets
 *         from the floor to everything, threads, rows, methods, policies,
 *         prefetches, simulated drives, and company in the pass.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "compute/kern.h"
#include "io/paced.h"
#include "model/generate.h"
#include "model/k3.h"

enum { NEW = 16, PLENTY = 400 << 20 };

struct oracle {
    char      dir[128];
    json_t   *expected;
    uint32_t  prompt[64], count;
    float    *logits; /* of the oracle */
};

/* What one generation gave. */
struct outcome {
    float    *logits;
    size_t    rows;
    uint32_t  ids[NEW], count;
    uint32_t  experts_all, top_k;
    json_t   *experts; /* layer -> row -> ids, when asked for */
};

static bool open_oracle(struct oracle *o, const char *name)
{
    static const char *const places[] = { "tests/oracle/fixtures",
                                          "../shared/data/oracle" };
    struct stat st;
    char path[192];
    for (int i = 0; i < 2; i++) {
        snprintf(o->dir, sizeof o->dir, "%s/%s", places[i], name);
        snprintf(path, sizeof path, "%s/expected.json", o->dir);
        if (!stat(path, &st))
            break;
        if (i == 1)
            return false;
    }
    o->expected = json_load_file(path, 0, NULL);
    json_t *ids = json_object_get(o->expected, "ids");
    o->count = (uint32_t)json_array_size(ids);
    for (uint32_t i = 0; i < o->count; i++)
        o->prompt[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    snprintf(path, sizeof path, "%s/logits.f32", o->dir);
    assert_int_equal(stat(path, &st), 0);
    o->logits = malloc((size_t)st.st_size);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(o->logits, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    return true;
}

static void close_oracle(struct oracle *o)
{
    json_decref(o->expected);
    free(o->logits);
}

static int keep_row(void *arg, const float *row)
{
    struct outcome *out = arg;
    /* The first float says how long a row is; see run_once. */
    size_t n = (size_t)out->logits[0];
    memcpy(out->logits + 1 + out->rows * n, row, n * sizeof *row);
    out->rows++;
    return 0;
}

static void keep_experts(void *arg, uint32_t layer, uint32_t row,
                         const uint32_t *ids, const float *weights,
                         const uint8_t *how)
{
    struct outcome *out = arg;
    char key[32];
    (void)weights;
    (void)how;
    (void)row;
    if (!out->experts)
        return;
    snprintf(key, sizeof key, "%u", layer);
    json_t *rows = json_object_get(out->experts, key);
    if (!rows) {
        rows = json_array();
        json_object_set_new(out->experts, key, rows);
    }
    json_t *list = json_array();
    for (uint32_t e = 0; e < out->experts_all; e++) /* ascending */
        for (uint32_t i = 0; i < out->top_k; i++)
            if (ids[i] == e)
                json_array_append_new(list, json_integer(e));
    json_array_append_new(rows, list);
}

static int run_once(const struct oracle *o, const struct k3_options *options,
                    struct outcome *out, struct why *why)
{
    struct k3 *k;
    struct k3_options all = *options;
    all.routed = keep_experts;
    all.routed_arg = out;
    int err = k3_open(&k, o->dir, &all, why);
    if (err)
        return err;
    uint32_t vocab = k3_config(k)->vocab;
    out->rows = 0;
    out->experts_all = k3_config(k)->experts;
    out->top_k = k3_config(k)->top_k;
    out->logits = malloc((1 + (size_t)vocab * (o->count + NEW)) *
                         sizeof(float));
    out->logits[0] = (float)vocab;
    struct generate_options g = {
        .prompt = o->prompt, .prompt_count = o->count, .most = NEW,
        .sample = { .top_p = 1 }, .ignore_end = true, .all_logits = true,
        .logits = keep_row, .arg = out,
    };
    struct generate_result r = { .ids = out->ids };
    err = generate(k, &g, &r, why);
    out->count = r.count;
    k3_close(k);
    return err;
}

static struct k3_options plenty(void)
{
    return (struct k3_options){ .memory_bytes = PLENTY, .rows = 64,
                                .context = 64 };
}

/* The file has a list a layer and pass: the prompt, then one position each. The
 * last position's is not ours: its id was not fed. */
static void compare_experts(const json_t *expected, const json_t *got)
{
    json_t *all = json_object(), *part, *rows;
    const char *key;
    size_t index;
    json_array_foreach(expected, index, part) {
        char layer[32];
        snprintf(layer, sizeof layer, "%d",
                 (int)json_integer_value(json_array_get(part, 0)));
        if (!json_object_get(all, layer))
            json_object_set_new(all, layer, json_array());
        json_array_extend(json_object_get(all, layer),
                          json_array_get(part, 1));
    }
    assert_true(json_object_size(all) > 0);
    json_object_foreach(all, key, rows) {
        json_t *mine = json_object_get(got, key);
        json_array_remove(rows, json_array_size(rows) - 1);
        assert_int_equal(json_array_size(mine), json_array_size(rows));
        assert_true(json_equal(mine, rows));
    }
    json_decref(all);
}

static void compare(const char *name)
{
    struct oracle o;
    struct outcome out = { .experts = json_object() };
    struct k3_options options = plenty();
    struct why why = { 0 };
    if (!open_oracle(&o, name)) {
        json_decref(out.experts);
        skip();
    }
    if (run_once(&o, &options, &out, &why))
        fail_msg("%s", why.text);
    size_t vocab = (size_t)out.logits[0];
    double largest = 0, worst = 0;
    for (size_t i = 0; i < o.count * vocab; i++)
        largest = fmax(largest, fabs((double)o.logits[i]));
    for (size_t i = 0; i < o.count * vocab; i++)
        worst = fmax(worst, fabs((double)o.logits[i] -
                                 (double)out.logits[1 + i]));
    if (!(worst / largest <= 2e-5))
        fail_msg("logits differ by %g of the largest", worst / largest);
    json_t *ids = json_object_get(o.expected, "generated");
    assert_int_equal(out.count, NEW);
    for (uint32_t i = 0; i < NEW; i++)
        assert_int_equal(out.ids[i],
                         json_integer_value(json_array_get(ids, i)));
    compare_experts(json_object_get(o.expected, "experts"), out.experts);
    json_decref(out.experts);
    free(out.logits);
    close_oracle(&o);
}

static void oracle_a(void **state)
{
    (void)state;
    compare("a");
}

static void oracle_b(void **state)
{
    (void)state;
    compare("b");
}

static void oracle_c(void **state)
{
    (void)state;
    compare("c");
}

/* Run with `options` and compare with `want`; frees what it made. */
static void same(const struct oracle *o, const struct k3_options *options,
                 const struct outcome *want, const char *what)
{
    struct outcome out = { 0 };
    struct why why = { 0 };
    if (run_once(o, options, &out, &why))
        fail_msg("%s: %s", what, why.text);
    size_t n = out.rows * (size_t)out.logits[0];
    assert_int_equal(out.rows, want->rows);
    if (memcmp(out.logits + 1, want->logits + 1, n * sizeof(float)))
        fail_msg("%s: other bits", what);
    free(out.logits);
}

static void every_way_gives_the_same_bits(void **state)
{
    (void)state;
    struct oracle o;
    struct outcome want = { 0 };
    struct k3_options base = plenty(), tight;
    struct why why = { 0 };
    static const char *const policies[] = { "none", "lru", "lru-layer", "lfu",
                                            "lru2", "s3fifo", "ema", "dhd" };
    static const char *const guesses[] = { "none", "prev", "ema", "table",
                                           "path", "gate" };
    struct paced_drive drives[2] = { { 400000000, 50000 },
                                     { 200000000, 0 } };
    assert_true(open_oracle(&o, "c"));
    assert_int_equal(run_once(&o, &base, &want, &why), 0);
    tight = base;
    tight.rows = 1;
    tight.memory_bytes = 1;
    struct outcome none = { 0 };
    assert_int_equal(run_once(&o, &tight, &none, &why), -ENOBUFS);
    uint64_t floor_bytes = strtoull(strstr(why.text, "floor of ") + 9, NULL,
                                    10);
    for (int i = 0; i < 8; i++) {
        tight.memory_bytes = floor_bytes + (uint64_t)i * (350 << 10);
        same(&o, &tight, &want, "budget");
    }
    tight.memory_bytes = floor_bytes + (1200 << 10);
    for (uint32_t rows = 1; rows <= 9; rows += rows < 3 ? 1 : 2) {
        tight.rows = rows;
        same(&o, &tight, &want, "rows");
    }
    for (uint32_t threads = 1; threads <= 4; threads *= 2) {
        tight.threads = threads;
        same(&o, &tight, &want, "threads");
    }
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        tight.isa = (uint8_t)(1 + isa);
        same(&o, &tight, &want, isa_name((enum isa)isa));
    }
    tight.isa = 0;
    tight.io = "pread";
    same(&o, &tight, &want, "pread");
    tight.io = "auto";
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        struct k3_options cached = base;
        cached.memory_bytes = floor_bytes + (6 << 20);
        cached.policy = policies[i];
        same(&o, &cached, &want, policies[i]);
    }
    for (size_t i = 0; i < sizeof guesses / sizeof *guesses; i++) {
        struct k3_options guessing = base;
        guessing.policy = "none";
        guessing.prefetch = guesses[i];
        guessing.paced = drives;
        guessing.paced_count = 1 + i % 2;
        same(&o, &guessing, &want, guesses[i]);
    }
    free(want.logits);
    close_oracle(&o);
}

/* The rows of one sequence beside those of others, in passes of mixed company,
 * give what it gives alone. */
static void company_leaves_no_trace(void **state)
{
    (void)state;
    struct oracle o;
    struct outcome want = { 0 };
    struct k3_options options = plenty();
    struct why why = { 0 };
    struct k3 *k;
    assert_true(open_oracle(&o, "c"));
    assert_int_equal(run_once(&o, &options, &want, &why), 0);
    size_t vocab = (size_t)want.logits[0];
    options.sequences = 3;
    assert_int_equal(k3_open(&k, o.dir, &options, &why), 0);
    uint32_t at[3] = { 0, 0, 0 };
    for (uint32_t pass = 0; at[1] < o.count; pass++) {
        struct k3_row row[16];
        uint32_t n = 0, mine = 0, before = 0;
        for (uint32_t s = 0; s < 3; s++) {
            uint32_t rows = 1 + (pass * 7 + s * 3) % 3;
            for (uint32_t i = 0; i < rows && at[s] < o.count; i++) {
                uint32_t id = s == 1 ? o.prompt[at[s]]
                                     : (at[s] * 31 + s) % 500;
                row[n++] = (struct k3_row){ .sequence = s, .position = at[s]++,
                                            .id = id, .logits = true };
                mine += s == 1;
                before += s == 0;
            }
        }
        k3_allow(k, 1);
        assert_int_equal(k3_pass(k, row, n, &why), 0);
        for (uint32_t i = 0; i < mine; i++)
            assert_memory_equal(
                k3_logits(k, before + i),
                want.logits + 1 + (at[1] - mine + i) * vocab,
                vocab * sizeof(float));
    }
    k3_close(k);
    free(want.logits);
    close_oracle(&o);
}

/* Draft rows change nothing until they are accepted, and then everything is as
 * if they had come one by one. */
static void drafts_are_as_if_they_had_come_alone(void **state)
{
    (void)state;
    struct oracle o;
    struct outcome want = { 0 };
    struct k3_options options = plenty();
    struct why why = { 0 };
    struct k3 *k;
    assert_true(open_oracle(&o, "c"));
    assert_int_equal(run_once(&o, &options, &want, &why), 0);
    size_t vocab = (size_t)want.logits[0];
    options.drafts = 4;
    assert_int_equal(k3_open(&k, o.dir, &options, &why), 0);
    for (uint32_t at = 0, pass = 0; at < o.count; pass++) {
        struct k3_row row[5];
        uint32_t n = 0, good = pass % 4;
        for (uint32_t i = 0; i < 5; i++) {
            uint32_t id = i <= good && at + i < o.count
                              ? o.prompt[at + i]
                              : (at * 13 + i) % 500; /* a wrong guess */
            row[n++] = (struct k3_row){ .position = at + i, .id = id,
                                        .draft = i > 0, .logits = true };
        }
        if (good > o.count - 1 - at)
            good = o.count - 1 - at;
        k3_allow(k, 1);
        assert_int_equal(k3_pass(k, row, n, &why), 0);
        for (uint32_t i = 0; i <= good; i++)
            assert_memory_equal(k3_logits(k, i),
                                want.logits + 1 + (at + i) * vocab,
                                vocab * sizeof(float));
        k3_accept(k, 0, good);
        at += good + 1;
    }
    k3_close(k);
    free(want.logits);
    close_oracle(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_a),
        cmocka_unit_test(oracle_b),
        cmocka_unit_test(oracle_c),
        cmocka_unit_test(every_way_gives_the_same_bits),
        cmocka_unit_test(company_leaves_no_trace),
        cmocka_unit_test(drafts_are_as_if_they_had_come_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Goal    it is Kimi K3: logits, greedy ids and chosen experts of an
 *         independent float64 implementation, and the same bits however they
 *         are computed.
 * Method  the oracle checkpoints in fixtures, and one more where it is: largest
 *         difference over largest logit <= 2e-5 at every position, greedy
 *         continuation and every set of experts equal; then memcmp of the
 *         logits over budgets from the floor to everything, threads, rows,
 *         ISAs, methods, policies, prefetches, simulated drives, and company in
 *         the pass. Budgets, policies and prefetches have to have done
 *         something: streamed less, evicted, granted rows, prefetched.
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
#include <unistd.h>

#include <cmocka.h>

#include "compute/kern.h"
#include "io/paced.h"
#include "model/decode/generate.h"
#include "model/k3/k3.h"
#include "tests/skip.h"

enum { NEW = 16, PLENTY = 400 << 20, POLICY_BYTES = 3400 << 10 };

/* More layers than fixtures has room for; test_reference.sh has the shape. */
#define ELSEWHERE "../shared/data/oracle"

struct oracle {
    char      dir[128];
    json_t   *expected;
    uint32_t  prompt[64], count;
    float    *logits; /* of the oracle */
};

/* What a generation did, so that a test knows that it tested something. */
struct did {
    struct fetch_counts experts;
    uint64_t            streamed_bytes; /* of the trunk, a pass */
    uint32_t            rows, threads, drives;
    const char         *isa;
};

/* What one generation gave. */
struct outcome {
    struct did did;
    float    *logits;
    size_t    rows;
    uint32_t  ids[NEW], count;
    uint32_t  experts_all, top_k;
    json_t   *experts; /* layer -> row -> ids, when asked for */
};

static bool open_oracle(struct oracle *o, const char *name)
{
    static const char *const places[] = { "tests/oracle/fixtures",
                                          ELSEWHERE };
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
                    struct outcome *out, struct error *error)
{
    struct k3 *k;
    struct k3_options all = *options;
    all.routed = keep_experts;
    all.routed_arg = out;
    int err = k3_open(&k, o->dir, &all, error);
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
        .prompt = o->prompt,
        .prompt_count = o->count,
        .max = NEW,
        .sample = { .top_p = 1 },
        .ignore_end = true,
        .logits = keep_row,
        .arg = out,
    };
    struct generate_result r = { .ids = out->ids };
    err = generate(k, &g, &r, error);
    out->count = r.count;
    struct k3_facts facts;
    k3_facts(k, &facts);
    out->did = (struct did){
        .experts = facts.experts,
        .streamed_bytes = k3_plan_of(k)->streamed_payload_bytes,
        .rows = k3_rows(k),
        .threads = facts.threads,
        .drives = facts.drives,
        .isa = facts.isa,
    };
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
    struct error error = { 0 };
    assert_true(open_oracle(&o, name));
    if (run_once(&o, &options, &out, &error))
        fail_msg("%s", error.text);
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

/* Run with `options` and compare with `want`. Returns what the run did. */
static struct did same(const struct oracle *o, const struct k3_options *options,
                       const struct outcome *want, const char *what)
{
    struct outcome out = { 0 };
    struct error error = { 0 };
    if (run_once(o, options, &out, &error))
        fail_msg("%s: %s", what, error.text);
    size_t n = out.rows * (size_t)out.logits[0];
    assert_int_equal(out.rows, want->rows);
    if (memcmp(out.logits + 1, want->logits + 1, n * sizeof(float)))
        fail_msg("%s: other bits", what);
    free(out.logits);
    return out.did;
}

/* Oracle c, what it gives with plenty of everything, and its floor with rows of
 * one. */
struct common {
    struct oracle  o;
    struct outcome want;
    uint64_t       floor_bytes;
};

static void open_common(struct common *c)
{
    struct k3_options options = plenty();
    struct outcome none = { 0 };
    struct error error = { 0 };
    *c = (struct common){ 0 };
    assert_true(open_oracle(&c->o, "c"));
    assert_int_equal(run_once(&c->o, &options, &c->want, &error), 0);
    options.rows = 1;
    options.memory_bytes = 1;
    assert_int_equal(run_once(&c->o, &options, &none, &error), -ENOBUFS);
    c->floor_bytes = strtoull(strstr(error.text, "floor of ") + 9, NULL, 10);
}

static void close_common(struct common *c)
{
    free(c->want.logits);
    close_oracle(&c->o);
}

static struct k3_options tight(const struct common *c, uint64_t more_bytes)
{
    struct k3_options options = plenty();
    options.rows = 1;
    options.memory_bytes = c->floor_bytes + more_bytes;
    return options;
}

/* From streaming everything to streaming nothing. */
static void any_budget_gives_the_same_bits(void **state)
{
    (void)state;
    struct common c;
    uint64_t streamed[2] = { 0 };
    open_common(&c);
    for (int i = 0; i < 8; i++) {
        struct k3_options options = tight(&c, (uint64_t)i * (350 << 10));
        struct did did = same(&c.o, &options, &c.want, "budget");
        streamed[i > 0] = did.streamed_bytes;
    }
    assert_true(streamed[0] > 2 * streamed[1]);
    close_common(&c);
}

static void any_rows_and_threads_give_the_same_bits(void **state)
{
    (void)state;
    struct common c;
    open_common(&c);
    struct k3_options options = tight(&c, 2000 << 10);
    for (uint32_t rows = 1; rows <= 9; rows += rows < 3 ? 1 : 2) {
        options.rows = rows;
        struct did did = same(&c.o, &options, &c.want, "rows");
        assert_int_equal(did.rows, rows); /* as many as were asked for */
    }
    for (uint32_t threads = 1; threads <= 4; threads *= 2) {
        options.threads = threads;
        struct did did = same(&c.o, &options, &c.want, "threads");
        assert_int_equal(did.threads, threads);
    }
    options.io = "pread";
    same(&c.o, &options, &c.want, "pread");
    close_common(&c);
}

static void isa_gives_the_same_bits(enum isa isa)
{
    struct common c;
    open_common(&c);
    struct k3_options options = tight(&c, 1200 << 10);
    options.isa = (uint8_t)(1 + isa);
    struct did did = same(&c.o, &options, &c.want, isa_name(isa));
    close_common(&c);
    if (strcmp(did.isa, isa_name(isa)))
        skip_because("this CPU has no %s", isa_name(isa));
}

static void ref_gives_the_same_bits(void **state)
{
    (void)state;
    isa_gives_the_same_bits(ISA_REF);
}

static void avx2_gives_the_same_bits(void **state)
{
    (void)state;
    isa_gives_the_same_bits(ISA_AVX2);
}

static void avx512_gives_the_same_bits(void **state)
{
    (void)state;
    isa_gives_the_same_bits(ISA_AVX512);
}

/* Frames for half of the experts, so that each policy has to choose. */
static void any_policy_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const policies[] = { "lru", "lru-layer", "lfu", "lru2",
                                            "s3fifo", "ema", "dhd" };
    struct common c;
    open_common(&c);
    struct k3_options options = tight(&c, POLICY_BYTES);
    options.policy = "none";
    struct did did = same(&c.o, &options, &c.want, "none");
    assert_int_equal(did.experts.hits, 0);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        options.policy = policies[i];
        did = same(&c.o, &options, &c.want, policies[i]);
        assert_true(did.experts.hits > 0);
        assert_true(did.experts.evictions > 0);
    }
    close_common(&c);
}

static void any_prefetch_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const prefetches[] = { "none",  "prev", "ema",
                                              "table", "path", "gate" };
    static const struct paced_drive drives[2] = { { 400000000, 50000 },
                                                  { 200000000, 0 } };
    struct common c;
    open_common(&c);
    for (size_t i = 0; i < sizeof prefetches / sizeof *prefetches; i++) {
        struct k3_options options = plenty();
        options.policy = "none";
        options.prefetch = prefetches[i];
        options.paced = drives;
        options.paced_count = 1 + i % 2;
        struct did did = same(&c.o, &options, &c.want, prefetches[i]);
        assert_int_equal(did.experts.prefetched > 0, i > 0);
        assert_int_equal(did.drives, 1 + i % 2);
    }
    close_common(&c);
}

/* The rows of one sequence beside those of others, in passes of mixed company,
 * give what it gives alone. */
static void company_leaves_no_trace(void **state)
{
    (void)state;
    struct oracle o;
    struct outcome want = { 0 };
    struct k3_options options = plenty();
    struct error error = { 0 };
    struct k3 *k;
    assert_true(open_oracle(&o, "c"));
    assert_int_equal(run_once(&o, &options, &want, &error), 0);
    size_t vocab = (size_t)want.logits[0];
    options.sequences = 3;
    assert_int_equal(k3_open(&k, o.dir, &options, &error), 0);
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
        k3_set_readahead(k, 1);
        assert_int_equal(k3_pass(k, row, n, &error), 0);
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
    struct error error = { 0 };
    struct k3 *k;
    assert_true(open_oracle(&o, "c"));
    assert_int_equal(run_once(&o, &options, &want, &error), 0);
    size_t vocab = (size_t)want.logits[0];
    options.drafts = 4;
    assert_int_equal(k3_open(&k, o.dir, &options, &error), 0);
    for (uint32_t at = 0, pass = 0; at < o.count; pass++) {
        struct k3_row row[5];
        uint32_t n = 0, good = pass % 4;
        for (uint32_t i = 0; i < 5; i++) {
            uint32_t id = i <= good && at + i < o.count
                              ? o.prompt[at + i]
                              : (at * 13 + i) % 500; /* a wrong draft */
            row[n++] = (struct k3_row){ .position = at + i, .id = id,
                                        .draft = i > 0, .logits = true };
        }
        if (good > o.count - 1 - at)
            good = o.count - 1 - at;
        k3_set_readahead(k, 1);
        assert_int_equal(k3_pass(k, row, n, &error), 0);
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
    const struct CMUnitTest elsewhere[] = { cmocka_unit_test(oracle_b) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_a),
        cmocka_unit_test(oracle_c),
        cmocka_unit_test(any_budget_gives_the_same_bits),
        cmocka_unit_test(any_rows_and_threads_give_the_same_bits),
        cmocka_unit_test(ref_gives_the_same_bits),
        cmocka_unit_test(avx2_gives_the_same_bits),
        cmocka_unit_test(avx512_gives_the_same_bits),
        cmocka_unit_test(any_policy_gives_the_same_bits),
        cmocka_unit_test(any_prefetch_gives_the_same_bits),
        cmocka_unit_test(company_leaves_no_trace),
        cmocka_unit_test(drafts_are_as_if_they_had_come_alone),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!access(ELSEWHERE "/b/expected.json", R_OK))
        failed += cmocka_run_group_tests(elsewhere, NULL, NULL);
    return failed;
}

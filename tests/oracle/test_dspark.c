/* Goal    it is a DSpark drafter: taps, context, cache, hidden states, logits,
 *         ids and confidences of an independent float64 implementation, after
 *         full, partial and no acceptance.
 * Method  the two drafters in fixtures/dspark for the model of fixtures/a: the
 *         run that golden.json describes, pass by pass, over chunks of the
 *         prompt, memory (weights resident, or streamed through a few frames)
 *         and ISAs. Largest difference over the largest value <= 1e-4, ids
 *         equal, bytes read as planned. Then fewer rows in a block, a window,
 *         and the other stream of taps.
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
#include "model/dspark/dspark.h"
#include "model/k3/k3.h"
#include "model/k3/tiles.h"

#define MODEL "tests/oracle/fixtures/a"
#define PLACE "tests/oracle/fixtures/dspark/"
enum { CONTEXT = 64, HIDDEN = 128, VOCAB = 640, PLENTY = 400 << 20,
       FLOOR = 1, TAPS = 5, LAYERS = 5 };

struct golden {
    char    dir[96];
    json_t *root;
    float  *taps, *context, *cache, *hidden, *logits;
    size_t  positions; /* in the end */
    size_t  kept;      /* floats of a position and layer */
};

struct rig {
    struct config  config;
    struct dspark *d;
    struct k3     *k;
    double  worst; /* difference over the largest */
};

static float *slurp(const struct golden *g, const char *name, size_t *bytes)
{
    char path[160];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    assert_int_equal(stat(path, &st), 0);
    float *f = malloc((size_t)st.st_size);
    FILE *file = fopen(path, "rb");
    assert_int_equal(fread(f, 1, (size_t)st.st_size, file), st.st_size);
    fclose(file);
    *bytes = (size_t)st.st_size;
    return f;
}

static void open_golden(struct golden *g, const char *kind)
{
    char path[160];
    size_t bytes, all;
    snprintf(g->dir, sizeof g->dir, PLACE "%s", kind);
    snprintf(path, sizeof path, "%s/golden.json", g->dir);
    g->root = json_load_file(path, 0, NULL);
    assert_non_null(g->root);
    g->taps = slurp(g, "taps.f32", &bytes);
    g->hidden = slurp(g, "hidden.f32", &bytes);
    g->logits = slurp(g, "logits.f32", &bytes);
    g->context = slurp(g, "context.f32", &bytes);
    g->positions = bytes / sizeof(float) / HIDDEN;
    g->cache = slurp(g, "cache.f32", &all);
    g->kept = all / sizeof(float) / LAYERS / g->positions;
}

static void close_golden(struct golden *g)
{
    json_decref(g->root);
    free(g->taps);
    free(g->hidden);
    free(g->logits);
    free(g->context);
    free(g->cache);
}

static void open_rig(struct rig *r, const char *dir, struct dspark_options o,
                     uint64_t memory, uint8_t isa)
{
    struct error error = { 0 };
    memset(r, 0, sizeof *r);
    assert_int_equal(config_load(&r->config, MODEL, &error), 0);
    o.context = CONTEXT;
    o.sequences = 2;
    o.threads = 2;
    if (dspark_open(&r->d, dir, &r->config, &o, &error))
        fail_msg("%s", error.text);
    struct k3_options k = { .memory_bytes = memory, .rows = 16, .drafts = 7,
                            .threads = 2, .context = CONTEXT, .sequences = 2,
                            .isa = isa, .guest = dspark_guest(r->d) };
    struct plan plan;
    k.memory_bytes = PLENTY;
    if (memory == FLOOR && !k3_plan(&plan, MODEL, &k, &error))
        k.memory_bytes = plan.floor_bytes + (2 << 20);
    memset(&error, 0, sizeof error);
    if (k3_open(&r->k, MODEL, &k, &error) ||
        dspark_start(r->d, r->k, &error))
        fail_msg("%s", error.text);
}

static void close_rig(struct rig *r)
{
    k3_close(r->k);
    dspark_close(r->d);
    config_free(&r->config);
}

/* The largest difference, over the largest value. */
static void compare(struct rig *r, const char *what, const float *got,
                    const float *want, size_t n)
{
    double most = 1e-30, off = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        most = fmax(most, fabs((double)want[i]));
        off = d > off || isnan(d) ? d : off;
    }
    r->worst = fmax(r->worst, off / most);
    if (!(off / most <= 1e-4))
        fail_msg("%s: off by %g of %g", what, off, most);
}

static uint32_t whole(const json_t *o, const char *name)
{
    return (uint32_t)json_integer_value(json_object_get(o, name));
}

static uint32_t item(const json_t *list, size_t i)
{
    return (uint32_t)json_integer_value(json_array_get(list, i));
}

/* One pass of n rows of sequence 1 from the list's item `first` on. */
static void pass(struct rig *r, const json_t *ids, uint32_t first, uint32_t n,
                 uint32_t position, bool drafts)
{
    struct k3_row row[16];
    struct error error = { 0 };
    for (uint32_t i = 0; i < n; i++)
        row[i] = (struct k3_row){ .sequence = 1, .position = position + i,
                                  .id = item(ids, first + i), .logits = true,
                                  .draft = drafts && i, .phase = K3_DECODE };
    if (k3_pass(r->k, row, n, &error))
        fail_msg("%s", error.text);
}

static uint32_t argmax(const float *l)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
        best = l[i] > l[best] ? i : best;
    return best;
}

static void check_rows(struct rig *r, const struct golden *g, const json_t *p,
                       uint32_t first, uint32_t n)
{
    const float *want = g->taps + (size_t)(whole(p, "tap_row") + first) *
                                      TAPS * HIDDEN;
    for (uint32_t i = 0; i < n; i++) {
        compare(r, "taps", k3_taps(r->k, i), want + i * TAPS * HIDDEN,
                TAPS * HIDDEN);
        assert_int_equal(argmax(k3_logits(r->k, i)),
                         item(json_object_get(p, "argmax"), first + i));
    }
}

static void check_draft(struct rig *r, const struct golden *g, const json_t *p,
                        uint32_t kept)
{
    const json_t *draft = json_object_get(p, "draft");
    size_t n = json_array_size(draft);
    struct dspark_ask ask = { .sequence = 1, .id = whole(p, "anchor") };
    if (dspark_draft(r->d, &ask, 1))
        fail_msg("%s", dspark_failure(r->d));
    for (size_t i = 0; i < n; i++) {
        double c = json_number_value(
            json_array_get(json_object_get(p, "confidence"), i));
        assert_int_equal(ask.ids[i], item(draft, i));
        assert_true(fabs((double)ask.confidence[i] - c) < 1e-4);
    }
    size_t slot = whole(p, "slot");
    compare(r, "hidden", dspark_hidden(r->d, 0), g->hidden + slot * HIDDEN,
            n * HIDDEN);
    compare(r, "logits", dspark_logits(r->d, 0), g->logits + slot * VOCAB,
            n * VOCAB);
    compare(r, "context", dspark_fused(r->d, 0),
            g->context + (size_t)(whole(p, "position") - kept) * HIDDEN,
            (size_t)kept * HIDDEN);
}

/* A draft reads an embedding row and, unless they are in memory, weights and
 * head, each once. */
static void check_bytes(const struct rig *r)
{
    const struct tiles *t = k3_tiles(r->k);
    struct dspark_facts f;
    dspark_facts(r->d, &f);
    uint64_t draft = 2 * HIDDEN + (f.resident ? 0 : f.sweep_bytes);
    for (uint32_t i = 0; i < t->count; i++)
        if (tiles_first_piece(t, i)->role == T_HEAD && !t->tile[i].home)
            draft += t->tile[i].payload_bytes;
    assert_int_equal(f.sweeps, f.drafts);
    assert_int_equal(f.read_bytes, f.drafts * draft);
}

/* Rows of the prompt in passes of `chunk`; then as the golden run. */
static void follow(struct rig *r, const struct golden *g, uint32_t chunk)
{
    const json_t *passes = json_object_get(g->root, "passes"), *p;
    const json_t *prompt = json_array_get(passes, 0);
    uint32_t count = whole(prompt, "commit"), kept = count;
    dspark_begin(r->d, 1, 0);
    for (uint32_t at = 0; at < count; at += chunk) {
        uint32_t n = count - at < chunk ? count - at : chunk;
        pass(r, json_object_get(prompt, "ids"), at, n, at, false);
        check_rows(r, g, prompt, at, n);
        dspark_keep(r->d, 1, at, 0, n);
    }
    for (size_t i = 1; i < json_array_size(passes); i++) {
        p = json_array_get(passes, i);
        uint32_t n = (uint32_t)json_array_size(json_object_get(p, "ids"));
        uint32_t position = whole(p, "position"), commit = whole(p, "commit");
        if (n > 1) {
            check_draft(r, g, p, kept);
            kept = 0;
        }
        pass(r, json_object_get(p, "ids"), 0, n, position, true);
        check_rows(r, g, p, 0, n);
        if (n > 1)
            k3_accept(r->k, 1, commit - 1);
        dspark_keep(r->d, 1, position, 0, commit);
        kept += commit;
    }
    check_bytes(r);
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t i = 0; i < g->positions; i++) {
            float out[256];
            assert_true(dspark_cache(r->d, 1, l, i, out));
            compare(r, "cache", out, g->cache + (l * g->positions + i) *
                                                    g->kept, g->kept);
        }
}

static void run_golden(const char *kind)
{
    static const struct { uint32_t chunk; uint64_t memory; uint8_t isa; }
    way[] = { { 12, PLENTY, 0 }, { 1, PLENTY, 0 }, { 5, FLOOR, 0 },
              { 12, FLOOR, 1 + ISA_REF } };
    struct golden g;
    open_golden(&g, kind);
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        struct rig r;
        struct dspark_facts facts;
        open_rig(&r, g.dir, (struct dspark_options){ 0 }, way[i].memory,
                 way[i].isa);
        follow(&r, &g, way[i].chunk);
        dspark_facts(r.d, &facts);
        assert_int_equal(facts.resident, way[i].memory == PLENTY);
        assert_true(facts.resident || facts.read_bytes > facts.sweep_bytes);
        print_message("# %s: off by %.1e of the largest\n", kind, r.worst);
        close_rig(&r);
    }
    close_golden(&g);
}

static void radixark(void **state)
{
    (void)state;
    run_golden("radixark");
}

static void inferact(void **state)
{
    (void)state;
    run_golden("inferact");
}

/* The first draft with another number of rows, or a window. */
static void run_alternate(const struct golden *g, const json_t *a)
{
    const char *name = json_string_value(json_object_get(a, "switch"));
    const json_t *draft = json_object_get(a, "draft");
    const json_t *prompt = json_array_get(json_object_get(g->root, "passes"),
                                          0);
    struct dspark_options o = { 0 };
    struct rig r;
    if (sscanf(name, "rows=%u", &o.rows) != 1 &&
        sscanf(name, "window=%u", &o.window) != 1)
        return;
    open_rig(&r, g->dir, o, PLENTY, 0);
    dspark_begin(r.d, 1, 0);
    pass(&r, json_object_get(prompt, "ids"), 0, 12, 0, false);
    dspark_keep(r.d, 1, 0, 0, 12);
    struct dspark_ask ask = { .sequence = 1, .id = whole(a, "anchor") };
    assert_int_equal(dspark_draft(r.d, &ask, 1), 0);
    assert_int_equal(dspark_rows(r.d), json_array_size(draft));
    for (size_t i = 0; i < json_array_size(draft); i++) {
        double best = json_number_value(
            json_array_get(json_object_get(a, "best_logit"), i));
        double got = (double)dspark_logits(r.d, 0)[i * VOCAB + ask.ids[i]];
        assert_int_equal(ask.ids[i], item(draft, i));
        assert_true(fabs(got - best) < 1e-4 * 20);
    }
    close_rig(&r);
}

static void alternates(void **state)
{
    static const char *const kinds[] = { "radixark", "inferact" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct golden g;
        open_golden(&g, kinds[i]);
        const json_t *list = json_object_get(g.root, "alternates");
        assert_true(json_array_size(list) >= 3);
        for (size_t j = 0; j < json_array_size(list); j++)
            run_alternate(&g, json_array_get(list, j));
        close_golden(&g);
    }
}

/* Both fixtures have taps after layers 2, 8 and 11, of the two streams: each
 * drafter, told to read the other's, gets the other's. */
static void other_stream(void **state)
{
    static const uint32_t mine[2][3] = { { 0, 3, 4 }, { 1, 3, 4 } };
    static const char *const kinds[] = { "radixark", "inferact" };
    struct golden g[2];
    (void)state;
    open_golden(&g[0], kinds[0]);
    open_golden(&g[1], kinds[1]);
    for (int i = 0; i < 2; i++) {
        const json_t *prompt =
            json_array_get(json_object_get(g[i].root, "passes"), 0);
        struct dspark_options o = {
            .stream = i ? DSPARK_STREAM_MIXED : DSPARK_STREAM_PREFIX };
        struct rig r;
        open_rig(&r, g[i].dir, o, PLENTY, 0);
        pass(&r, json_object_get(prompt, "ids"), 0, 12, 0, false);
        for (uint32_t row = 0; row < 12; row++)
            for (int t = 0; t < 3; t++)
                compare(&r, "taps of the other stream",
                        k3_taps(r.k, row) + mine[i][t] * HIDDEN,
                        g[!i].taps + (row * TAPS + mine[!i][t]) * HIDDEN,
                        HIDDEN);
        close_rig(&r);
    }
    close_golden(&g[0]);
    close_golden(&g[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(radixark),
        cmocka_unit_test(inferact),
        cmocka_unit_test(alternates),
        cmocka_unit_test(other_stream),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

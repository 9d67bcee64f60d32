/* Goal    prompts that begin alike are read once, and nobody can tell from ids
 *         and logits; no pass more than without; a leader that leaves does not
 *         take its followers with it.
 * Method  24 requests with 160 ids in common and 16 of their own, in 24 places,
 *         in 8 and in 1: the rows of prompts are counted; with "all" it is
 *         64 requests with 512 ids. Random trees of beginnings, requests that
 *         come late, are cancelled, have ids already or draft; few rows and
 *         many. Every row of logits that was computed is compared with the same
 *         row of a run that shares nothing. Decisions small enough to do by
 *         hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/decode/batch.h"
#include "model/decode/share.h"
#include "tests/property/small_model.h"

enum { VOCAB = 512, OWN = 16, CONTEXT = 640 };

static uint32_t many = 24, common = 160, rounds = 2;

struct asked {
    uint32_t ids[CONTEXT], count, max, given;
    struct sample_options sample;
    /* What came. */
    uint32_t made, rows;
    float   *logits; /* [count + max][VOCAB] */
    enum batch_reason reason;
};

struct world {
    struct asked *a;
    uint32_t n, next, finished;
    bool     late, cancel, common;
    uint64_t seed;
};

static struct small_model model;

static int set_up(void **state)
{
    (void)state;
    small_model_make(&model, 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    small_model_remove(&model);
    return 0;
}

static struct asked *copy_of(const struct asked *from, uint32_t n)
{
    struct asked *a = calloc(n, sizeof *a);
    assert_non_null(a);
    for (uint32_t i = 0; i < n; i++) {
        a[i] = from[i];
        a[i].made = a[i].rows = 0;
        a[i].logits = malloc(sizeof(float) * VOCAB * (a[i].count + a[i].max));
        assert_non_null(a[i].logits);
    }
    return a;
}

static void free_all(struct asked *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(a[i].logits);
    free(a);
}

static bool next(void *arg, struct batch_request *out)
{
    struct world *w = arg;
    if (w->next == w->n || (w->late && small_model_random(&w->seed) % 3))
        return false;
    struct asked *a = &w->a[w->next];
    uint32_t shared = w->common ? w->next * 7 % a->count : 0;
    *out = (struct batch_request){ .tag = w->next++, .common = shared,
                                   .ids = a->ids,
                                   .prompt_count = a->count, .max = a->max,
                                   .given = a->given, .sample = a->sample,
                                   .ignore_end = true, .logits = true };
    return true;
}

static bool cancelled(void *arg, uint64_t tag)
{
    struct world *w = arg;
    return w->cancel && small_model_random(&w->seed) % 16 == tag % 16;
}

static bool logits(void *arg, uint64_t tag, const float *row)
{
    struct world *w = arg;
    struct asked *a = &w->a[tag];
    assert_true(a->rows < a->count + a->max);
    memcpy(a->logits + (size_t)a->rows++ * VOCAB, row, VOCAB * sizeof *row);
    return false;
}

static void finished(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason)
{
    struct world *w = arg;
    w->a[tag].made = count;
    w->a[tag].reason = reason;
    w->finished++;
}

struct variant {
    uint32_t places, rows, held, drafts, threads;
    bool     share, late, cancel, streamed, common;
};

static struct batch_counts run(struct asked *a, uint32_t n,
                               const struct variant *v)
{
    struct world w = { .a = a, .n = n, .late = v->late, .cancel = v->cancel,
                       .common = v->common,
                       .seed = 11 };
    struct error error = { 0 };
    struct k3_options o = small_model_options(1u << 30);
    o.sequences = v->places + v->held;
    o.rows = v->rows;
    o.context = CONTEXT;
    o.drafts = v->drafts * v->places;
    o.threads = v->threads ? v->threads : 2;
    if (v->streamed)
        o.memory_bytes = small_model_floor(&model, o) + (200 << 10);
    struct k3 *k = small_model_open(&model, &o);
    struct batch_options b = {
        .sequences = v->places, .draft = { v->drafts, false }, .next = next,
        .logits = logits, .cancelled = cancelled, .finished = finished,
        .share = v->share, .held = v->held, .arg = &w };
    struct batch *batch;
    assert_int_equal(batch_open(&batch, k, &b, &error), 0);
    while (w.finished < n)
        assert_true(batch_step(batch, &error) >= 0);
    struct batch_counts c = *batch_counts(batch);
    batch_close(batch);
    k3_close(k);
    return c;
}

/* The rows that were computed are rows of the truth, in order: some of its
 * prompt's, where others had read the rest, and all from its last on. */
static void compare(const struct asked *a, const struct asked *truth,
                    uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (a[i].reason == BATCH_CANCELLED)
            continue;
        assert_int_equal(a[i].made, truth[i].made);
        assert_memory_equal(a[i].ids, truth[i].ids,
                            (a[i].count + a[i].made) * sizeof *a[i].ids);
        uint32_t row = 0, known = a[i].count + a[i].given;
        uint32_t rest = truth[i].rows - known + 1;
        assert_true(a[i].rows >= rest);
        for (uint32_t r = 0; r < a[i].rows; r++, row++) {
            if (r == a[i].rows - rest)
                row = known - 1;
            while (row < truth[i].rows &&
                   memcmp(a[i].logits + (size_t)r * VOCAB,
                          truth[i].logits + (size_t)row * VOCAB,
                          VOCAB * sizeof(float)))
                row++;
            assert_true(row < truth[i].rows);
            assert_true(r < a[i].rows - rest ||
                        row == known - 1 + r - (a[i].rows - rest));
        }
    }
}

/* ---- the target ---- */

static struct asked *make_many(void)
{
    uint64_t seed = 21;
    struct asked *a = calloc(many, sizeof *a);
    assert_non_null(a);
    for (uint32_t i = 0; i < many; i++) {
        a[i].count = common + OWN;
        a[i].max = 2;
        for (uint32_t j = 0; j < common; j++)
            a[i].ids[j] = i ? a[0].ids[j] : small_model_random(&seed) % VOCAB;
        a[i].ids[common] = i; /* here they part */
        for (uint32_t j = common + 1; j < common + OWN; j++)
            a[i].ids[j] = small_model_random(&seed) % VOCAB;
    }
    return a;
}

static void test_many(void **state)
{
    (void)state;
    struct asked *plain = make_many(), *truth = copy_of(plain, many);
    uint64_t read = common + many * OWN;
    struct batch_counts all = run(
        truth, many, &(struct variant){ .places = many, .rows = 512 });
    assert_int_equal(all.prompt_ids, many * (common + OWN));
    const struct variant v[] = {
        { .places = many, .rows = 256, .share = true },
        { .places = 8, .rows = 256, .share = true, .held = 1 },
        { .places = 1, .rows = 64, .share = true, .held = 1, .threads = 1 },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct asked *a = copy_of(plain, many);
        struct batch_counts c = run(a, many, &v[i]);
        print_message("%u places: %llu prompt rows, %llu passes\n", v[i].places,
                      (unsigned long long)c.prompt_ids,
                      (unsigned long long)c.passes);
        assert_int_equal(c.prompt_ids, read);
        assert_int_equal(c.prompt_ids + c.copied_ids, all.prompt_ids);
        compare(a, truth, many);
        free_all(a, many);
    }
    free_all(truth, many);
    free(plain);
}

/* ---- trees ---- */

/* Each continues an earlier one from somewhere, or asks the same again. */
static void make_tree(struct asked *a, uint32_t n, uint64_t *seed)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = i ? small_model_random(seed) % i : 0;
        uint32_t kept = i ? small_model_random(seed) % (a[from].count + 1) : 0;
        uint32_t own = small_model_random(seed) % 40;
        memset(&a[i], 0, sizeof a[i]);
        memcpy(a[i].ids, a[from].ids, kept * sizeof *a->ids);
        if (kept + own > CONTEXT - 16)
            own = 0;
        a[i].count = kept + own ? kept + own : 1;
        for (uint32_t j = kept; j < a[i].count; j++)
            a[i].ids[j] = small_model_random(seed) % VOCAB;
        a[i].max = 1 + small_model_random(seed) % 8;
        a[i].sample = (struct sample_options){
            .temperature = i % 2 ? 0.8 : 0, .top_p = 0.9, .seed = i };
    }
}

static void test_trees(void **state)
{
    enum { N = 20 };
    (void)state;
    static const struct variant v[] = {
        { .places = 20, .rows = 64 },
        { .places = 5, .rows = 24, .held = 2 },
        { .places = 3, .rows = 9, .held = 1, .late = true },
        { .places = 6, .rows = 32, .drafts = 2, .held = 1 },
        { .places = 8, .rows = 40, .cancel = true, .held = 1 },
        { .places = 3, .rows = 20, .held = 3, .common = true },
        { .places = 4, .rows = 16, .streamed = true, .held = 1, .threads = 1 },
    };
    uint64_t seed = 5, copied = 0, cancelled_ones = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        static struct asked plain[N];
        make_tree(plain, N, &seed);
        struct asked *truth = copy_of(plain, N);
        struct batch_counts all = run(
            truth, N, &(struct variant){ .places = 4, .rows = 48 });
        assert_int_equal(all.copied_ids, 0);
        for (uint32_t i = 0; i < N && round % 2; i++) {
            plain[i].given = truth[i].made / 2;
            memcpy(plain[i].ids, truth[i].ids, sizeof plain[i].ids);
            all.prompt_ids += plain[i].given;
        }
        for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
            struct variant with = v[i];
            with.share = true;
            struct asked *a = copy_of(plain, N);
            struct batch_counts c = run(a, N, &with);
            compare(a, truth, N);
            if (!with.cancel)
                assert_int_equal(c.prompt_ids + c.copied_ids, all.prompt_ids);
            for (uint32_t j = 0; j < N; j++)
                cancelled_ones += a[j].reason == BATCH_CANCELLED;
            copied += c.copied_ids;
            free_all(a, N);
        }
        free_all(truth, N);
    }
    assert_true(copied > 200 * rounds && cancelled_ones > 2 * rounds);
}

/* ---- by hand ---- */

static void test_decide(void **state)
{
    (void)state;
    uint32_t a[20], b[20], c[20];
    for (uint32_t i = 0; i < 20; i++)
        a[i] = b[i] = c[i] = i;
    b[12] = 99;
    c[6] = 99;
    struct share_prompt p[4] = { { .ids = a, .known = 20 },
                                 { .ids = b, .known = 20 },
                                 { .ids = c, .known = 20 },
                                 { .ids = NULL } };
    /* All fit in two passes of 40, the first two in one; a copy makes it three,
     * or two. */
    share_decide(p, 3, 3, 40);
    assert_int_equal(p[0].until, 20);
    assert_int_equal(p[1].leader, SHARE_ALONE);
    /* In passes of 6 it pays. To 12 a copy saves 12 rows, to 6 for both others
     * 12 as well: the first that was found. */
    share_decide(p, 4, 3, 6);
    assert_int_equal(p[0].leader, SHARE_ALONE);
    assert_int_equal(p[1].leader, 0);
    assert_int_equal(p[1].until, 12);
    assert_int_equal(p[0].until, 12);
    assert_int_equal(p[2].leader, SHARE_ALONE);
    assert_int_equal(p[2].until, 20);
    /* Who has read more leads; where the ids have parted nobody waits. */
    p[1].position = 8;
    share_decide(p, 3, 3, 6);
    assert_int_equal(p[0].leader, 1);
    assert_int_equal(p[2].leader, SHARE_ALONE);
    /* One without a place does not lead; the same prompt waits for all but its
     * last id. */
    p[0] = (struct share_prompt){ .ids = a, .known = 20 };
    p[1] = (struct share_prompt){ .ids = a, .known = 20, .position = 0 };
    share_decide(p, 2, 1, 4);
    assert_int_equal(p[1].leader, 0);
    assert_int_equal(p[0].until, 19);
    assert_int_equal(p[0].leader, SHARE_ALONE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decide),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_trees),
    };
    if (argc > 1 && !strcmp(argv[1], "all")) {
        many = 64;
        common = 512;
        rounds = 6;
    }
    return cmocka_run_group_tests_name("share", tests, set_up, tear_down);
}

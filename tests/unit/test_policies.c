/* Goal    each policy evicts what its definition says, in the right order, and
 *         the cache obeys its rules about groups whatever the policy.
 * Method  traces short enough to do by hand. A property test cannot find a
 *         wrong order: any order is safe.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sched/cache/cache.h"
#include "sched/trace/trace.h"

#define EXPERTS 8u
#define HERE    100u /* what use() returns for a hit, */
#define FREE    101u /* for a free frame, */
#define PASSED  102u /* for a bypass; else the block that was evicted */

static struct cache *make(const char *policy, uint32_t layers, uint32_t top_k,
                          uint32_t frames)
{
    struct cache *c;
    struct cache_options o = { .policy = policy,
                               .layers = layers,
                               .experts = EXPERTS,
                               .top_k = top_k,
                               .frames = frames };
    assert_int_equal(cache_open(&c, &o), 0);
    return c;
}

static uint32_t said(const struct cache_verdict *v)
{
    if (v->answer == CACHE_HIT)
        return HERE;
    if (v->answer == CACHE_BYPASS)
        return PASSED;
    return v->evicted_block == CACHE_NONE ? FREE : v->evicted_block;
}

/* One row chooses one expert. */
static uint32_t use(struct cache *c, uint32_t step, uint32_t layer,
                    uint32_t expert)
{
    struct cache_use u = { expert, 1, 1, 0 };
    struct cache_verdict v;
    cache_group(c, step, layer, &u, 1, &v);
    cache_audit(c);
    return said(&v);
}

/* One row chooses n experts, best first. */
static void choose(struct cache *c, uint32_t step, uint32_t layer,
                   const uint32_t *experts, uint32_t n, uint32_t *out)
{
    struct cache_use u[EXPERTS] = { { 0, 0, 0, 0 } };
    struct cache_verdict v[EXPERTS];
    for (uint32_t i = 0; i < n; i++)
        u[i] = (struct cache_use){ experts[i], i + 1, 1, 0 };
    cache_group(c, step, layer, u, n, v);
    cache_audit(c);
    for (uint32_t i = 0; i < n; i++)
        out[i] = said(&v[i]);
}

/* Use experts of layer 0 one after the other and compare. */
static void follow(struct cache *c, const uint32_t (*steps)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(use(c, (uint32_t)i, 0, steps[i][0]), steps[i][1]);
    cache_close(c);
}

#define FOLLOW(c, ...)                                                    \
    do {                                                                  \
        static const uint32_t steps_[][2] = { __VA_ARGS__ };              \
        follow(c, steps_, sizeof steps_ / sizeof *steps_);                \
    } while (0)

static void none_keeps_nothing(void **state)
{
    (void)state;
    FOLLOW(make("none", 1, 1, 4), { 0, PASSED }, { 0, PASSED });
}

static void lru_evicts_the_oldest_use(void **state)
{
    (void)state;
    FOLLOW(make("lru", 1, 1, 3), { 0, FREE }, { 1, FREE }, { 2, FREE },
           { 0, HERE }, { 3, 1 }, { 1, 2 }, { 0, HERE }, { 2, 3 });
}

static void fifo_evicts_the_first_in(void **state)
{
    (void)state;
    FOLLOW(make("fifo", 1, 1, 3), { 0, FREE }, { 1, FREE }, { 2, FREE },
           { 0, HERE }, { 3, 0 }, { 1, HERE }, { 0, 1 }, { 1, 2 });
}

static void lfu_evicts_the_rarest_and_remembers(void **state)
{
    (void)state;
    FOLLOW(make("lfu", 1, 1, 3), { 0, FREE }, { 0, HERE }, { 1, FREE },
           { 2, FREE }, { 2, HERE }, { 3, 1 }, /* 0:2 2:2 3:1 */
           { 1, 3 },                           /* 1:2, its second use */
           { 3, 0 },                           /* all have 2: the oldest */
           { 0, 2 });
}

static void lru2_evicts_by_the_last_use_but_one(void **state)
{
    (void)state;
    FOLLOW(make("lru2", 1, 1, 3), { 0, FREE }, { 1, FREE }, { 1, HERE },
           { 0, HERE }, { 2, FREE }, /* but one: 0 at 1, 1 at 2, 2 never */
           { 3, 2 },                 /* never comes first */
           { 2, 3 },                 /* 2 came back: at 5 */
           { 4, 0 }, { 5, 4 }, { 4, 5 }, { 6, 1 });
}

static void lru_layer_has_shares(void **state)
{
    (void)state;
    struct cache *c = make("lru-layer", 2, 1, 5); /* 3 and 2 */
    assert_int_equal(use(c, 0, 1, 0), FREE);
    assert_int_equal(use(c, 0, 1, 1), FREE);
    assert_int_equal(use(c, 0, 1, 2), EXPERTS + 0); /* though 3 are free */
    for (uint32_t e = 0; e < 3; e++)
        assert_int_equal(use(c, 1, 0, e), FREE);
    assert_int_equal(use(c, 1, 0, 0), HERE);
    assert_int_equal(use(c, 1, 0, 3), 1);
    assert_int_equal(use(c, 1, 1, 1), HERE);
    cache_close(c);
}

/* A share of 2 below top-4: the two best ranks of the newest row. */
static void lru_layer_keeps_by_rank(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = { "lru-layer", "ema" };
        static const uint32_t first[] = { 3, 4, 5, 6 };
        static const uint32_t second[] = { 0, 3, 1, 2 };
        uint32_t out[4];
        struct cache *c = make(names[i], 2, 4, 4);
        choose(c, 0, 0, first, 4, out);
        assert_int_equal(out[0], FREE);
        assert_int_equal(out[1], FREE);
        assert_int_equal(out[2], PASSED);
        assert_int_equal(out[3], PASSED);
        choose(c, 1, 0, second, 4, out);
        assert_int_equal(out[0], 4);
        assert_int_equal(out[1], HERE);
        assert_int_equal(out[2], PASSED);
        assert_int_equal(out[3], PASSED);
        cache_close(c);
    }
}

/* When all of a group fit, its best rank is the last to go. */
static void lru_layer_lets_rank_win_ties(void **state)
{
    (void)state;
    static const uint32_t row[] = { 5, 2, 7 };
    uint32_t out[3];
    struct cache *c = make("lru-layer", 1, 3, 3);
    choose(c, 0, 0, row, 3, out);
    assert_int_equal(use(c, 1, 0, 0), 7);
    assert_int_equal(use(c, 2, 0, 1), 2);
    assert_int_equal(use(c, 3, 0, 3), 5);
    cache_close(c);
}

static void ema_prefers_use_over_recency(void **state)
{
    (void)state;
    FOLLOW(make("ema", 1, 1, 2), { 0, FREE }, { 0, HERE }, { 0, HERE },
           { 1, FREE }, { 2, 1 }, { 1, 2 }, { 1, HERE }, { 1, HERE },
           { 1, HERE }, /* 1 has five uses, all of them later than 0's three */
           { 2, 0 });
}

/* 10 frames: the small queue holds one. */
static void s3fifo_filters_what_is_used_once(void **state)
{
    (void)state;
    struct cache *c = make("s3fifo", 3, 1, 10);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(use(c, i, i / EXPERTS, i % EXPERTS), FREE);
    assert_int_equal(use(c, 10, 0, 1), HERE);
    assert_int_equal(use(c, 11, 0, 1), HERE); /* used twice: it will move */
    assert_int_equal(use(c, 12, 2, 0), 0);    /* now 0 is a ghost */
    assert_int_equal(use(c, 13, 2, 1), 2);    /* 1 went to the main queue */
    assert_int_equal(use(c, 14, 0, 0), 3);    /* a ghost: to the main queue */
    for (uint32_t b = 10; b < 24; b++)        /* all of the small queue goes */
        if (b != 16 && b != 17)
            use(c, 5 + b, b / EXPERTS, b % EXPERTS);
    assert_false(cache_resident(c, 2, 1));
    assert_true(cache_resident(c, 0, 0));
    assert_true(cache_resident(c, 0, 1));
    cache_close(c);
}

/* Layer 0 wants another expert each token, layer 1 the same: with one frame, a
 * recency list never hits. */
static void dhd_refuses_what_is_less_likely(void **state)
{
    (void)state;
    struct cache *c = make("dhd", 2, 1, 1);
    assert_int_equal(use(c, 0, 1, 0), FREE);
    for (uint32_t t = 1; t < 6; t++) {
        assert_int_equal(use(c, t, 0, t), PASSED);
        assert_int_equal(use(c, t, 1, 0), HERE);
    }
    assert_int_equal(use(c, 6, 0, 6), PASSED);
    assert_int_equal(use(c, 6, 1, 1), PASSED); /* 0 was used six times */
    assert_int_equal(use(c, 7, 0, 7), PASSED);
    assert_int_equal(use(c, 7, 1, 2), EXPERTS); /* but not in two ticks */
    cache_close(c);
}

/* Of layers with the same history, the one that runs later pays more. */
static void dhd_minds_the_distance(void **state)
{
    (void)state;
    struct cache *c = make("dhd", 4, 1, 3);
    assert_int_equal(use(c, 0, 1, 0), FREE);
    assert_int_equal(use(c, 0, 2, 0), FREE);
    assert_int_equal(use(c, 0, 3, 0), FREE);
    assert_int_equal(use(c, 1, 0, 0), PASSED);
    assert_int_equal(use(c, 2, 0, 0), 3 * EXPERTS);
    cache_close(c);
}

static void dhd_prefers_good_ranks_and_late_rows(void **state)
{
    (void)state;
    static const uint32_t row[] = { 6, 5, 4, 3 };
    uint32_t out[4];
    struct cache *c = make("dhd", 1, 4, 2);
    choose(c, 0, 0, row, 4, out);
    assert_int_equal(out[0], FREE);
    assert_int_equal(out[1], FREE);
    assert_int_equal(out[2], PASSED);
    assert_int_equal(out[3], PASSED);
    cache_close(c);

    c = make("dhd", 1, 4, 1); /* the same rank, five rows apart */
    struct cache_use u[] = { { 1, 1, 1, 5 }, { 2, 1, 1, 0 } };
    struct cache_verdict v[2];
    cache_group(c, 0, 0, u, 2, v);
    assert_int_equal(v[0].answer, CACHE_BYPASS);
    assert_int_equal(v[1].answer, CACHE_ADMIT);
    cache_close(c);
}

static void dhd_breaks_ties_by_the_lower_key(void **state)
{
    (void)state;
    struct cache_use u[] = { { 7, 0, 1, 0 }, { 3, 0, 1, 0 }, { 5, 0, 1, 0 } };
    struct cache_verdict v[3];
    struct cache *c = make("dhd", 1, 3, 2);
    cache_group(c, 0, 0, u, 3, v); /* equal chances: 3 and 5 get in */
    assert_int_equal(v[0].answer, CACHE_BYPASS);
    assert_int_equal(v[1].frame, 0);
    assert_int_equal(v[2].frame, 1);
    assert_int_equal(use(c, 1, 0, 0), 3); /* and 3 goes first */
    cache_close(c);
}

static void min_knows_the_future(void **state)
{
    (void)state;
    /*                            0  1  2  0  3  1  0  4  1 */
    static const uint32_t who[] = { 0, 1, 2, 0, 3, 1, 0, 4, 1 };
    static const uint32_t next[] = { 3, 5, UINT32_MAX, 6, UINT32_MAX, 8,
                                     UINT32_MAX, UINT32_MAX, UINT32_MAX };
    static const uint32_t want[] = { FREE, FREE, PASSED, HERE, PASSED, HERE,
                                     HERE, 0, HERE };
    struct cache *c;
    struct cache_options o = { .policy = "min",
                               .layers = 1,
                               .experts = EXPERTS,
                               .top_k = 1,
                               .frames = 2,
                               .next_use = next,
                               .next_uses = 9 };
    assert_int_equal(cache_open(&c, &o), 0);
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(use(c, i, 0, who[i]), want[i]);
    cache_close(c);
    o.next_use = NULL;
    assert_int_equal(cache_open(&c, &o), -EINVAL);
}

/* The profile uses 5 three times, 2 and 6 twice, 1 once. */
static void static_pin_keeps_its_profile(void **state)
{
    (void)state;
    static const uint32_t rows[][2] = {
        { 5, 2 }, { 5, 6 }, { 2, 5 }, { 6, 1 }
    };
    char path[] = "/tmp/sluice-pin-XXXXXX";
    struct trace_info info = { .layers = 1, .experts = EXPERTS, .top_k = 2 };
    struct trace_writer *w;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(trace_create(&w, path, &info, NULL, 1), 0);
    for (uint32_t i = 0; i < 4; i++) {
        trace_begin(w, i, 1);
        trace_row(w, 0, 0, i, 0, TRACE_DECODE, 0);
        trace_choice(w, 0, 0, rows[i], NULL);
        assert_int_equal(trace_commit(w), 0);
    }
    assert_int_equal(trace_finish(w), 0);

    struct cache *c;
    struct cache_options o = { .policy = "static-pin",
                               .layers = 1,
                               .experts = EXPERTS,
                               .top_k = 1,
                               .frames = 2,
                               .pin_file = path };
    assert_int_equal(cache_open(&c, &o), 0);
    FOLLOW(c, { 6, PASSED }, { 5, FREE }, { 1, PASSED }, { 2, FREE },
           { 6, PASSED }, { 5, HERE }, { 2, HERE });
    o.experts = EXPERTS - 1;
    assert_int_equal(cache_open(&c, &o), -EINVAL);
    o.pin_file = "/nonexistent";
    assert_int_equal(cache_open(&c, &o), -ENOENT);
    o.pin_file = NULL;
    assert_int_equal(cache_open(&c, &o), -EINVAL);
    unlink(path);
}

/* The i-th policy that can be opened without files or a future, or NULL. */
static const char *online(uint32_t i)
{
    const char *name;
    bool offline;
    for (uint32_t k = 0; (name = cache_policy_name(k, NULL, &offline)); k++)
        if (!offline && strcmp(name, "static-pin") && i-- == 0)
            return name;
    return NULL;
}

static void group_members_spare_each_other(void **state)
{
    (void)state;
    static const uint32_t row[] = { 0, 1, 2, 3, 4 }, again[] = { 5, 1, 0, 6 };
    const char *name;
    for (uint32_t i = 0; (name = online(i)); i++) {
        uint32_t out[5], kept = 0;
        struct cache *c = make(name, 1, 1, 3);
        choose(c, 0, 0, row, 5, out);
        for (uint32_t k = 0; k < 5; k++) {
            assert_true(out[k] == FREE || out[k] == PASSED);
            kept += cache_resident(c, 0, k);
        }
        assert_int_equal(kept, strcmp(name, "none") ? 3 : 0);
        choose(c, 1, 0, again, 4, out);
        for (uint32_t k = 0; k < 4; k++)
            assert_true(out[k] >= EXPERTS ||
                        (out[k] != 5 && out[k] != 1 && out[k] != 0 &&
                         out[k] != 6));
        cache_close(c);
    }
}

static void no_frames_and_wrong_options(void **state)
{
    (void)state;
    const char *name;
    for (uint32_t i = 0; (name = online(i)); i++) {
        struct cache *c = make(name, 2, 1, 0);
        assert_int_equal(use(c, 0, 0, 3), PASSED);
        assert_int_equal(use(c, 0, 1, 3), PASSED);
        cache_close(c);
    }
    struct cache *c;
    struct cache_options o = { "lru", 1, 8, 2, 4, NULL, NULL, 0 };
    o.policy = "mru";
    assert_int_equal(cache_open(&c, &o), -EINVAL);
    assert_null(c);
    o.policy = "lru";
    o.top_k = 9;
    assert_int_equal(cache_open(&c, &o), -EINVAL);
    o.top_k = 0;
    assert_int_equal(cache_open(&c, &o), -EINVAL);
    cache_close(NULL);
}

/* Three rows: the second and third of sequence A, one of B between them. */
static void rows_make_a_group(void **state)
{
    (void)state;
    static const uint32_t a[] = { 4, 2 }, b[] = { 2, 7 }, d[] = { 7, 4 };
    uint32_t n;
    struct cache *c = make("none", 1, 2, 0);
    cache_row(c, a, 2, true, 1);
    cache_row(c, b, 2, true, 0);
    cache_row(c, d, 2, true, 0);
    const struct cache_use *u = cache_uses(c, &n);
    static const struct cache_use want[] = { { 4, 1, 2, 0 }, { 2, 1, 2, 0 },
                                             { 7, 1, 2, 0 } };
    assert_int_equal(n, 3);
    assert_memory_equal(u, want, sizeof want);
    cache_row(c, a, 2, false, 3);
    u = cache_uses(c, &n);
    static const struct cache_use plain[] = { { 4, 0, 1, 3 }, { 2, 0, 1, 3 } };
    assert_int_equal(n, 2);
    assert_memory_equal(u, plain, sizeof plain);
    cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_keeps_nothing),
        cmocka_unit_test(lru_evicts_the_oldest_use),
        cmocka_unit_test(fifo_evicts_the_first_in),
        cmocka_unit_test(lfu_evicts_the_rarest_and_remembers),
        cmocka_unit_test(lru2_evicts_by_the_last_use_but_one),
        cmocka_unit_test(lru_layer_has_shares),
        cmocka_unit_test(lru_layer_keeps_by_rank),
        cmocka_unit_test(lru_layer_lets_rank_win_ties),
        cmocka_unit_test(ema_prefers_use_over_recency),
        cmocka_unit_test(s3fifo_filters_what_is_used_once),
        cmocka_unit_test(dhd_refuses_what_is_less_likely),
        cmocka_unit_test(dhd_minds_the_distance),
        cmocka_unit_test(dhd_prefers_good_ranks_and_late_rows),
        cmocka_unit_test(dhd_breaks_ties_by_the_lower_key),
        cmocka_unit_test(min_knows_the_future),
        cmocka_unit_test(static_pin_keeps_its_profile),
        cmocka_unit_test(group_members_spare_each_other),
        cmocka_unit_test(no_frames_and_wrong_options),
        cmocka_unit_test(rows_make_a_group),
    };
    return cmocka_run_group_tests_name("policies", tests, NULL, NULL);
}

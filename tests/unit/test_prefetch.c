/* Goal    each prefetcher names what its definition says, likeliest first, and
 *         the governor's rules hold one by one.
 * Method  sequences short enough to do by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "sched/prefetch/governor.h"
#include "sched/prefetch/prefetcher.h"

enum { LAYERS = 3, EXPERTS = 16, TOP_K = 2, SEQUENCES = 2 };

static struct prefetcher *make(const char *name)
{
    struct prefetcher *p;
    assert_int_equal(
        prefetcher_open(&p, name, LAYERS, EXPERTS, TOP_K, SEQUENCES), 0);
    return p;
}

/* A token of `sequence` went through all layers; ids[layer] in rank order. */
static void token(struct prefetcher *p, uint32_t sequence, uint32_t step,
                  const uint32_t ids[LAYERS][TOP_K])
{
    for (uint32_t m = 0; m < LAYERS; m++)
        prefetcher_saw(p, sequence, step, m, ids[m], TOP_K);
}

/* The names are exactly these, and their chances fall or stay in 0 .. 1. */
static void names(struct prefetcher *p, uint32_t sequence, uint32_t layer,
                  const uint32_t *want, uint32_t n)
{
    uint32_t ids[EXPERTS];
    float chance[EXPERTS];
    uint32_t got = prefetcher_next(p, sequence, layer, ids, chance, EXPERTS);
    assert_int_equal(got, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], want[i]);
        assert_true(chance[i] >= 0 && chance[i] <= 1);
        assert_true(i == 0 || chance[i] <= chance[i - 1]);
    }
    if (n > 1) { /* fewer names are the first of them */
        assert_int_equal(prefetcher_next(p, sequence, layer, ids, chance, 1),
                         1);
        assert_int_equal(ids[0], want[0]);
    }
    assert_int_equal(prefetcher_next(p, sequence, layer, ids, chance, 0), 0);
}

#define NAMES(p, sequence, layer, ...)                                         \
    do {                                                                       \
        static const uint32_t want_[] = { __VA_ARGS__ };                       \
        names(p, sequence, layer, want_, sizeof want_ / sizeof *want_);        \
    } while (0)

static const uint32_t first[LAYERS][TOP_K] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
static const uint32_t other[LAYERS][TOP_K] = { { 7, 8 },
                                               { 9, 10 },
                                               { 11, 12 } };

static void nobody_knows_at_first(void **state)
{
    (void)state;
    const char *name;
    for (uint32_t i = 0; (name = prefetcher_name(i, NULL)); i++) {
        struct prefetcher *p = make(name);
        for (uint32_t m = 0; m < LAYERS; m++)
            names(p, 0, m, NULL, 0);
        if (!strcmp(name, "none") || !strcmp(name, "gate")) {
            token(p, 0, 0, first);
            names(p, 0, 0, NULL, 0);
        }
        prefetcher_close(p);
    }
    struct prefetcher *p;
    assert_int_equal(prefetcher_open(&p, "oracle", 1, 8, 2, 1), -EINVAL);
    assert_int_equal(prefetcher_open(&p, "prev", 1, 8, 9, 1), -EINVAL);
    assert_null(p);
    prefetcher_close(NULL);
}

static void prev_names_the_last_row(void **state)
{
    (void)state;
    struct prefetcher *p = make("prev");
    token(p, 0, 0, first);
    NAMES(p, 0, 1, 3, 4);
    names(p, 1, 1, NULL, 0); /* another sequence */
    token(p, 1, 1, other);
    token(p, 0, 2, other);
    NAMES(p, 0, 1, 9, 10);
    prefetcher_forget(p, 0);
    names(p, 0, 1, NULL, 0);
    NAMES(p, 1, 1, 9, 10);
    prefetcher_close(p);
}

static void ema_names_the_most_used_lately(void **state)
{
    (void)state;
    static const uint32_t a[] = { 1, 2 }, b[] = { 1, 3 }, d[] = { 3, 1 };
    struct prefetcher *p = make("ema");
    prefetcher_saw(p, 0, 0, 0, a, 2);
    prefetcher_saw(p, 0, 1, 0, b, 2);
    NAMES(p, 0, 0, 1, 3, 2); /* 3: .5 now, 2: .5 a row ago */
    prefetcher_saw(p, 0, 2, 0, d, 2);
    NAMES(p, 0, 0, 1, 3, 2); /* 1: 2.31, 3: 1.85 */
    prefetcher_saw(p, 0, 3, 0, d, 2);
    NAMES(p, 0, 0, 3, 1, 2); /* 3: 2.81, 1: 2.13 */
    prefetcher_forget(p, 0);
    names(p, 0, 0, NULL, 0);
    prefetcher_close(p);
}

/* Whoever chose 1, 2 in layer 0 chose 3, 4 in layer 1. */
static void table_names_what_followed(void **state)
{
    (void)state;
    struct prefetcher *p = make("table");
    for (uint32_t t = 0; t < 8; t++)
        token(p, 0, t, t % 2 ? other : first);
    prefetcher_saw(p, 0, 8, 0, first[0], TOP_K);
    NAMES(p, 0, 1, 3, 4, 9, 10); /* base rates bring the others */
    prefetcher_saw(p, 1, 9, 0, other[0], TOP_K); /* all sequences share it */
    NAMES(p, 1, 1, 9, 10, 3, 4);
    prefetcher_saw(p, 1, 9, 1, other[1], TOP_K);
    prefetcher_saw(p, 1, 9, 2, first[2], TOP_K); /* at times follows other[1] */
    NAMES(p, 1, 0, 7, 8, 1, 2); /* after first came other, from layer 2 to 0 */
    for (uint32_t t = 10; t < 1000; t++) { /* counts are halved, not wrapped */
        uint32_t ids[2];
        float chance[2];
        prefetcher_saw(p, 0, t, 0, first[0], TOP_K);
        assert_int_equal(prefetcher_next(p, 0, 1, ids, chance, 2), 2);
        assert_int_equal(ids[0], 3);
        assert_true(chance[0] > 0.5f);
        prefetcher_saw(p, 0, t, 1, first[1], TOP_K);
        prefetcher_saw(p, 0, t, 2, first[2], TOP_K);
    }
    prefetcher_close(p);
}

/* More rows in a pass than are remembered do not mix up the others. */
static void table_takes_long_passes(void **state)
{
    (void)state;
    struct prefetcher *p = make("table");
    for (uint32_t m = 0; m < LAYERS; m++)
        for (uint32_t row = 0; row < 201; row++)
            prefetcher_saw(p, 0, 0, m, row % 2 ? other[m] : first[m], TOP_K);
    prefetcher_saw(p, 1, 1, 0, first[0], TOP_K);
    NAMES(p, 1, 1, 3, 4, 9, 10);
    NAMES(p, 0, 0, 1, 2, 7, 8); /* unseen pairs: base rates, 1 and 2 lead */
    prefetcher_close(p);
}

/* Two earlier tokens shared layers 0 and 1 with this one, one shared none. */
static void path_follows_those_who_went_along(void **state)
{
    (void)state;
    static const uint32_t along[LAYERS][TOP_K] = { { 1, 2 },
                                                   { 3, 4 },
                                                   { 13, 14 } };
    struct prefetcher *p = make("path");
    token(p, 0, 0, other);
    token(p, 0, 1, first);
    token(p, 0, 2, along);
    token(p, 0, 3, other);
    prefetcher_saw(p, 0, 4, 0, first[0], TOP_K);
    prefetcher_saw(p, 0, 4, 1, first[1], TOP_K);
    /* Before layer 0 lies the token before: `other`. That was so for `first`
     * but not for `along`; token 0 has nothing before it and does not vote. */
    NAMES(p, 0, 2, 5, 6, 13, 14, 11, 12);
    names(p, 1, 2, NULL, 0);
    prefetcher_forget(p, 0);
    names(p, 0, 2, NULL, 0);
    prefetcher_close(p);
}

/* Far more tokens than are remembered, in passes of one and of many rows. */
static void path_forgets_the_oldest(void **state)
{
    (void)state;
    struct prefetcher *p = make("path");
    uint32_t step = 0;
    token(p, 0, step++, first);
    for (uint32_t t = 0; t < 600; t++)
        token(p, 0, step++, other);
    NAMES(p, 0, 0, 7, 8);
    for (uint32_t m = 0; m < LAYERS; m++)
        for (uint32_t row = 0; row < 700; row++)
            prefetcher_saw(p, 0, step, m, first[m], TOP_K);
    NAMES(p, 0, 0, 1, 2);
    prefetcher_close(p);
}

static uint32_t say(void *arg, uint32_t sequence, uint32_t layer, uint32_t *ids,
                    float *confidence, uint32_t max)
{
    uint32_t *asked = arg;
    asked[0] = sequence;
    asked[1] = layer;
    if (!max)
        return 0;
    ids[0] = 5;
    confidence[0] = 0.9f;
    return 1;
}

static void gate_asks_the_model(void **state)
{
    (void)state;
    uint32_t asked[2] = { 9, 9 };
    struct prefetcher *p = make("gate");
    prefetcher_set_gate(p, say, asked);
    NAMES(p, 1, 2, 5);
    assert_int_equal(asked[0], 1);
    assert_int_equal(asked[1], 2);
    prefetcher_close(p);
}

/* -- governor ------------------------------------------------------------ */

static const struct governor_now idle = {
    .expert_bytes = 10, .prefetch_bytes_max = 1000, .idle_s = 1, .read_s = 0.01
};

static void width_is_what_time_and_bytes_allow(void **state)
{
    (void)state;
    struct governor_now now = idle;
    assert_int_equal(governor_width(&now), 16);
    now.idle_s = 0.0301;
    assert_int_equal(governor_width(&now), 3);
    now.idle_s = 0.0099;
    assert_int_equal(governor_width(&now), 0);
    now.idle_s = -1;
    assert_int_equal(governor_width(&now), 0);
    now = idle;
    now.prefetch_bytes = 975;
    assert_int_equal(governor_width(&now), 2);
    now.prefetch_bytes = 1000;
    assert_int_equal(governor_width(&now), 0);
    now = idle;
    now.read_s = 0; /* not measured yet */
    assert_int_equal(governor_width(&now), 0);
}

static void precision_is_by_layer_and_rank(void **state)
{
    (void)state;
    struct governor *g;
    assert_int_equal(governor_open(&g, LAYERS), 0);
    assert_true(governor_allows(g, &idle, 0, 1)); /* .5 to start with */
    for (int i = 0; i < 4; i++)
        governor_saw(g, 0, 1, false);
    assert_float_equal(governor_precision(g, 0, 1), 0.2048f, 1e-6f);
    assert_false(governor_allows(g, &idle, 0, 1));
    assert_true(governor_allows(g, &idle, 0, 2)); /* another rank */
    /* A layer that was not seen is as the others are: .5 x .95^4 */
    assert_float_equal(governor_precision(g, 1, 1), 0.407253f, 1e-5f);
    for (int i = 0; i < 2; i++)
        governor_saw(g, 0, 1, true); /* seen, though it was not read */
    assert_true(governor_allows(g, &idle, 0, 1)); /* .49 */
    assert_false(governor_allows(g, &idle, 0, 17));
    governor_saw(g, 0, 17, true); /* ranks beyond are of no interest */
    governor_close(g);
}

static void a_busy_drive_wants_more(void **state)
{
    (void)state;
    struct governor *g;
    struct governor_now now = idle;
    now.disk_bound = true;
    assert_int_equal(governor_open(&g, LAYERS), 0);
    governor_count(g, 1000000, 0);
    assert_false(governor_allows(g, &now, 0, 1)); /* .5 is not above .5 */
    governor_saw(g, 0, 1, true);
    assert_true(governor_allows(g, &now, 0, 1));
    governor_close(g);
}

/* Whatever the prefetches turn out to be, at most 5 % of all bytes are wasted.
 */
static void waste_is_bounded_when_disk_bound(void **state)
{
    (void)state;
    struct governor *g;
    struct governor_now now = idle;
    uint64_t bytes = 0, wasted = 0;
    now.disk_bound = true;
    assert_int_equal(governor_open(&g, 1), 0);
    for (int layer = 0; layer < 10000; layer++) {
        for (uint32_t rank = 1; rank <= 16; rank++)
            governor_saw(g, 0, rank, true); /* the best precision there is */
        now.prefetch_bytes = 0;
        for (uint32_t rank = 1; rank <= 16; rank++)
            if (governor_allows(g, &now, 0, rank))
                now.prefetch_bytes += now.expert_bytes;
        governor_count(g, 100 + now.prefetch_bytes, now.prefetch_bytes);
        bytes += 100 + now.prefetch_bytes;
        wasted += now.prefetch_bytes; /* the worst case: all of them */
        assert_true((double)wasted <= 0.05 * (double)bytes);
    }
    assert_true((double)wasted >= 0.04 * (double)bytes); /* and it is used */
    governor_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_knows_at_first),
        cmocka_unit_test(prev_names_the_last_row),
        cmocka_unit_test(ema_names_the_most_used_lately),
        cmocka_unit_test(table_names_what_followed),
        cmocka_unit_test(table_takes_long_passes),
        cmocka_unit_test(path_follows_those_who_went_along),
        cmocka_unit_test(path_forgets_the_oldest),
        cmocka_unit_test(gate_asks_the_model),
        cmocka_unit_test(width_is_what_time_and_bytes_allow),
        cmocka_unit_test(precision_is_by_layer_and_rank),
        cmocka_unit_test(a_busy_drive_wants_more),
        cmocka_unit_test(waste_is_bounded_when_disk_bound),
    };
    return cmocka_run_group_tests_name("predict", tests, NULL, NULL);
}

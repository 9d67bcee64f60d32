/* Goal    a draft row leaves no trace unless it comes true, and then exactly
 *         the trace that the row would have left, whatever else is in the pass.
 * Method  texts of random ids go through one row at a time: the logits of every
 *         position are the truth. Then the same texts go through in passes of
 *         several sequences, each with some sure rows and some drafts that are
 *         right for a random while and wrong after it. All logits of rows with
 *         only true rows before them must be the same bytes, with the trunk
 *         resident and with as little memory as can be. The order of rows, the
 *         widths and where drafts go wrong are random.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/property/small_model.h"

enum { TEXTS = 4, LENGTH = 20, VOCAB = 512, DRAFTS = 5,
       SOME_DRAFTS = 3 };

static struct small_model model;
static uint32_t text[TEXTS][LENGTH];
static float *truth; /* [TEXTS][LENGTH][VOCAB] */

static float *true_row(uint32_t sequence, uint32_t position)
{
    return truth + ((size_t)sequence * LENGTH + position) * VOCAB;
}

static int set_up(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct error error = { 0 };
    small_model_make(&model, 0);
    truth = malloc(sizeof *truth * TEXTS * LENGTH * VOCAB);
    struct k3_options o = small_model_options(1u << 30);
    struct k3 *k = small_model_open(&model, &o);
    for (uint32_t t = 0; t < TEXTS; t++) {
        k3_reset(k, 0);
        for (uint32_t p = 0; p < LENGTH; p++) {
            text[t][p] = small_model_random(&seed) % VOCAB;
            struct k3_row row = { .position = p, .id = text[t][p],
                                  .logits = true, .phase = K3_DECODE };
            k3_set_readahead(k, 1);
            assert_int_equal(k3_pass(k, &row, 1, &error), 0);
            memcpy(true_row(t, p), k3_logits(k, 0), VOCAB * sizeof *truth);
        }
    }
    k3_close(k);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(truth);
    small_model_remove(&model);
    return 0;
}

struct plan_of_run {
    uint32_t sequence, kept, drafts, right;
};

/* Some sure rows and some drafts of one text; the first `right` are true. */
static uint32_t add_run(struct k3_row *row, uint32_t *at, uint64_t *seed,
                        struct plan_of_run *run, uint32_t room, uint32_t drafts)
{
    uint32_t left = LENGTH - *at, n = 0;
    left = left < room ? left : room;
    run->kept = 1 + small_model_random(seed) % 3;
    run->kept = run->kept < left ? run->kept : left;
    run->drafts = small_model_random(seed) % (drafts + 1);
    if (run->drafts > left - run->kept)
        run->drafts = left - run->kept;
    run->right = small_model_random(seed) % (run->drafts + 1);
    for (; n < run->kept + run->drafts; n++) {
        bool wrong = n >= run->kept + run->right;
        row[n] = (struct k3_row){
            .sequence = run->sequence, .position = *at + n,
            .id = (text[run->sequence][*at + n] + wrong) % VOCAB,
            .logits = true, .draft = n >= run->kept, .phase = K3_DECODE };
    }
    *at += run->kept + run->right;
    return n;
}

static void one_pass(struct k3 *k, uint32_t at[TEXTS], uint64_t *seed)
{
    struct k3_row row[32];
    struct plan_of_run run[TEXTS];
    uint32_t n = 0, runs = 0, drafts = k3_drafts(k);
    struct error error = { 0 };
    uint32_t first = small_model_random(seed) % TEXTS;
    for (uint32_t i = 0; i < TEXTS; i++) {
        uint32_t s = (first + i) % TEXTS;
        if (at[s] == LENGTH || n == k3_rows(k) ||
            (n && small_model_random(seed) % 4 == 0))
            continue;
        run[runs].sequence = s;
        n += add_run(row + n, &at[s], seed, &run[runs], k3_rows(k) - n,
                     drafts);
        drafts -= run[runs++].drafts;
    }
    assert_true(n > 0);
    k3_set_readahead(k, 1);
    assert_int_equal(k3_pass(k, row, n, &error), 0);
    for (uint32_t i = 0, r = 0; i < runs; i++) {
        uint32_t total = run[i].kept + run[i].drafts;
        uint32_t good = run[i].kept + run[i].right;
        for (uint32_t j = 0; j < good; j++)
            assert_memory_equal(k3_logits(k, r + j),
                                true_row(run[i].sequence,
                                         row[r + j].position),
                                VOCAB * sizeof *truth);
        if (run[i].drafts)
            k3_accept(k, run[i].sequence, run[i].right);
        r += total;
    }
}

static void check(struct k3 *k, uint64_t seed)
{
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t at[TEXTS] = { 0 };
        for (uint32_t s = 0; s < TEXTS; s++)
            k3_reset(k, s);
        while (at[0] < LENGTH || at[1] < LENGTH || at[2] < LENGTH ||
               at[3] < LENGTH)
            one_pass(k, at, &seed);
    }
    k3_close(k);
}

static struct k3_options options(void)
{
    struct k3_options o = small_model_options(1u << 30);
    o.sequences = TEXTS;
    o.drafts = DRAFTS;
    return o;
}

static void test_resident(void **state)
{
    (void)state;
    struct k3_options o = options();
    struct k3 *k = small_model_open(&model, &o);
    assert_int_equal(k3_drafts(k), DRAFTS);
    check(k, 1);
}

/* The least memory that has room for the drafts leaves none for the trunk. */
static void test_streamed(void **state)
{
    (void)state;
    struct k3_options o = options();
    o.memory_bytes = small_model_floor(&model, o);
    struct k3 *k = small_model_open(&model, &o);
    while (k3_drafts(k) < SOME_DRAFTS) {
        k3_close(k);
        o.memory_bytes += 64 << 10;
        k = small_model_open(&model, &o);
    }
    assert_true(k3_plan_of(k)->streamed_tiles > 0);
    check(k, 2);
}

static void test_lowered(void **state)
{
    (void)state;
    struct k3_options o = options();
    o.memory_bytes = small_model_floor(&model, o);
    struct k3 *k = small_model_open(&model, &o);
    assert_int_equal(k3_drafts(k), 0);
    k3_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resident),
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_lowered),
    };
    return cmocka_run_group_tests_name("drafts", tests, set_up, tear_down);
}

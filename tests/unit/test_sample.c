/* Goal    what is sampled is what the definition says, ties by the lower id,
 *         and sampling does not allocate.
 * Method  rows of logits by lot, with many equal ones, against a plain sort of
 *         all ids; a malloc of our own counts, except under sanitizers, which
 *         bring their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "model/decode/sample.h"
#include "tests/unit/own_malloc.h"

enum { VOCAB = 3000 };

static unsigned long allocations;

#if OWN_MALLOC
void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
#endif

static float logits[VOCAB];
static struct { double weight; uint32_t id, more[2]; } scratch[VOCAB];
static const struct sample_context none;
static uint32_t order[VOCAB];

static int by_logit(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (logits[x] != logits[y])
        return logits[x] > logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static double weight(uint32_t id, double temperature)
{
    return exp(((double)logits[id] - (double)logits[order[0]]) / temperature);
}

/* The definition, word for word. */
static uint32_t defined(uint32_t vocab, const struct sample_options *o,
                        uint64_t sequence, uint64_t position)
{
    for (uint32_t i = 0; i < vocab; i++)
        order[i] = i;
    qsort(order, vocab, sizeof *order, by_logit);
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        total += weight(i, o->temperature);
    uint32_t kept = vocab;
    if (o->top_p < 1) {
        for (kept = 0; kept < vocab && (!kept || sum < o->top_p * total);)
            sum += weight(order[kept++], o->temperature);
        total = sum;
    }
    double at = sample_number(o->seed, sequence, position) * total;
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t id = o->top_p < 1 ? order[i] : i;
        at -= weight(id, o->temperature);
        if (at < 0 || i + 1 == kept)
            return id;
    }
    return 0;
}

static void test_definition(void **state)
{
    (void)state;
    static const double top_p[] = { 0, 1e-6, 0.1, 0.5, 0.9, 0.999999, 1 };
    static const double temperature[] = { 0.05, 0.7, 1, 3 };
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t vocab = round % 4 ? 1 + round * 13 % VOCAB : 1 + round % 9;
        /* Many levels, a few, one. */
        double levels = round % 3 == 0 ? 1e6 : round % 3 == 1 ? 7 : 1;
        for (uint32_t i = 0; i < vocab; i++)
            logits[i] = (float)(floor(sample_number(1, round, i) * levels) /
                                levels * 20);
        for (uint32_t j = 0; j < 4; j++) {
            struct sample_options o = {
                .temperature = temperature[(round + j) % 4],
                .top_p = top_p[(round + 3 * j) % 7], .seed = round };
            uint32_t want = defined(vocab, &o, 3, j);
            unsigned long before = allocations;
            uint32_t got = sample(logits, vocab, &o, &none, 3, j, scratch);
            assert_int_equal(allocations, before);
            assert_int_equal(got, want);
        }
    }
}

static void test_greedy(void **state)
{
    (void)state;
    struct sample_options o = { .top_p = 0.9 };
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = i % 100 == 42 ? 2 : 1;
    assert_int_equal(sample_greedy(logits, VOCAB), 42);
    assert_int_equal(sample(logits, VOCAB, &o, &none, 0, 0, scratch), 42);
    o = (struct sample_options){ .temperature = 1, .top_p = 0 };
    assert_int_equal(sample(logits, VOCAB, &o, &none, 0, 0, scratch), 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_greedy),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}

/* Goal    every sampler draws from the distribution that its definition gives.
 * Method  the definition word for word, over a small vocabulary with equal
 *         logits in it, gives each id's probability; 100,000 draws at as many
 *         positions are compared with it by chi-square; greedy with biases,
 *         penalties and a mask against the same definition. Random sets of
 *         options, and each option alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/decode/sample.h"

enum { VOCAB = 12, DRAWS = 100000, IDS = 9, PROMPT = 5 };

static const float logits[VOCAB] = { 1, 0.5f, 3, 2, 2, -1, 2.5f, 0, -2, 1,
                                     2.9f, -4 };
static const uint32_t ids[IDS] = { 2, 2, 5, 7, 10, 3, 3, 2, 11 };
static uint64_t mask = 0xdef;

/* Probabilities of all ids; greedy: 1 for the id. */
static void define(double p[VOCAB], const struct sample_options *o,
                   const struct sample_context *c)
{
    double l[VOCAB], sum = 0, best = -INFINITY;
    int order[VOCAB], n = 0;
    for (int i = 0; i < VOCAB; i++) {
        int all = 0, fresh = 0;
        l[i] = logits[i];
        p[i] = 0;
        for (uint32_t b = 0; b < o->biases; b++)
            l[i] += o->bias[b].id == (uint32_t)i ? o->bias[b].add : 0;
        for (uint32_t j = 0; j < c->prompt + c->fresh; j++) {
            all += c->ids[j] == (uint32_t)i;
            fresh += c->ids[j] == (uint32_t)i && j >= c->prompt;
        }
        double r = o->repetition != 0 ? o->repetition : 1;
        if (all)
            l[i] = l[i] > 0 ? l[i] / r : l[i] * r;
        l[i] -= o->frequency * fresh + (fresh ? o->presence : 0);
        if (c->mask && !(*c->mask >> i & 1))
            continue;
        int at = n++;
        while (at && l[order[at - 1]] < l[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
        best = l[i] > best ? l[i] : best;
    }
    if (o->temperature <= 0) {
        p[order[0]] = 1;
        return;
    }
    int kept = 0;
    for (int i = 0; i < n; i++) {
        double w = exp((l[order[i]] - best) / o->temperature);
        if (w < o->min_p || (o->top_k && i >= (int)o->top_k))
            break;
        p[order[i]] = w;
        sum += w;
        kept++;
    }
    double share = 0, left = sum;
    for (int i = 0; i < kept; i++) {
        if (o->top_p < 1 && i && share >= o->top_p * sum) {
            left -= p[order[i]];
            p[order[i]] = 0;
        } else {
            share += p[order[i]];
        }
    }
    for (int i = 0; i < VOCAB; i++)
        p[i] /= left;
}

static double chi_square(const double p[VOCAB], const uint32_t seen[VOCAB],
                         int *freedom)
{
    double chi = 0;
    *freedom = -1;
    for (int i = 0; i < VOCAB; i++) {
        double want = p[i] * DRAWS;
        if (want == 0) {
            assert_int_equal(seen[i], 0);
            continue;
        }
        chi += (seen[i] - want) * (seen[i] - want) / want;
        (*freedom)++;
    }
    return chi;
}

static void check(const struct sample_options *o,
                  const struct sample_context *c)
{
    double p[VOCAB];
    uint32_t seen[VOCAB] = { 0 };
    struct { double weight; uint32_t more[3]; } scratch[VOCAB];
    int freedom;
    define(p, o, c);
    int draws = o->temperature > 0 ? DRAWS : 1;
    for (int i = 0; i < draws; i++)
        seen[sample(logits, VOCAB, o, c, 1, (uint64_t)i, scratch)]++;
    if (draws == 1) {
        for (int i = 0; i < VOCAB; i++)
            assert_int_equal(seen[i], p[i] == 1);
        return;
    }
    double chi = chi_square(p, seen, &freedom);
    /* Wilson and Hilferty: five standard deviations above what is expected. */
    double cube = cbrt(chi / (freedom ? freedom : 1));
    double sigmas = freedom ? (cube - (1 - 2.0 / (9 * freedom))) /
                                  sqrt(2.0 / (9 * freedom))
                            : 0;
    if (sigmas > 5)
        printf("# T %g top_p %g top_k %u min_p %g: chi-square %g of %d\n",
               o->temperature, o->top_p, o->top_k, o->min_p, chi, freedom);
    assert_true(sigmas < 5);
}

static const struct sample_bias bias[] = { { 5, 4 }, { 2, -100 }, { 0, 1 } };

static void each_sampler_alone(void **state)
{
    (void)state;
    struct sample_context c = { .ids = ids, .prompt = PROMPT,
                                .fresh = IDS - PROMPT };
    const struct sample_options all[] = {
        { .temperature = 1, .top_p = 1 }, { .temperature = .4, .top_p = 1 },
        { .temperature = 1, .top_p = .7 }, { .temperature = 1, .top_p = 0 },
        { .temperature = 1, .top_p = 1, .top_k = 3 },
        { .temperature = 1, .top_p = 1, .top_k = 1 },
        { .temperature = 1, .top_p = 1, .top_k = 99 },
        { .temperature = 1, .top_p = 1, .min_p = .2 },
        { .temperature = 1, .top_p = 1, .presence = 1.5 },
        { .temperature = 1, .top_p = 1, .frequency = .6 },
        { .temperature = 1, .top_p = 1, .repetition = 1.4 },
        { .temperature = 1, .top_p = 1, .bias = bias, .biases = 3 },
        { .temperature = 1.3, .top_p = .8, .top_k = 5, .min_p = .05,
          .presence = .3, .frequency = -.2, .repetition = 1.1, .bias = bias,
          .biases = 2 },
        { .top_p = 1, .bias = bias, .biases = 3 },
        { .top_p = 1, .frequency = 2 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sample_options o = all[i];
        o.seed = i;
        c.mask = NULL;
        check(&o, &c);
        c.mask = &mask;
        check(&o, &c);
    }
}

static void random_options(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        double lot[10];
        for (uint64_t j = 0; j < 10; j++)
            lot[j] = sample_number(77, i, j);
        struct sample_options o = {
            .temperature = lot[0] < .2 ? 0 : 2 * lot[0], .seed = i,
            .top_p = lot[1] < .4 ? 1 : lot[1],
            .top_k = lot[2] < .4 ? 0 : (uint32_t)(1 + lot[2] * 10),
            .min_p = lot[3] < .5 ? 0 : lot[3] / 4,
            .presence = lot[4] < .5 ? 0 : lot[4],
            .frequency = lot[5] < .5 ? 0 : lot[5],
            .repetition = lot[6] < .5 ? 0 : .5 + lot[6], .bias = bias,
            .biases = (uint32_t)(lot[7] * 4) };
        struct sample_context c = { .ids = ids, .prompt = PROMPT,
                                    .fresh = (uint32_t)(lot[8] * 5),
                                    .mask = lot[9] < .5 ? NULL : &mask };
        check(&o, &c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sampler_alone),
        cmocka_unit_test(random_options),
    };
    return cmocka_run_group_tests_name("samplers", tests, NULL, NULL);
}

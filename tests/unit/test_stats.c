/* Goal    noise is told from difference, as Welch's test does.
 * Method  quantiles of Student's distribution from printed tables; groups whose
 *         interval is worked out by hand; 2,000 pairs of groups of one
 *         distribution: as many false alarms as alpha says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "bin/report/stats.h"

static void quantiles_are_the_printed_ones(void **state)
{
    (void)state;
    static const struct { double t, df, p; } known[] = {
        { 12.706, 1, .975 }, { 2.776, 4, .975 }, { 4.604, 4, .995 },
        { 1.812, 10, .95 }, { 2.042, 30, .975 }, { 1.960, 1e6, .975 },
        { 0, 7, .5 }, { -2.776, 4, .025 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(fabs(stats_student_cdf(known[i].t, known[i].df) -
                         known[i].p) < 1e-4);
}

static void an_interval_by_hand(void **state)
{
    (void)state;
    /* Means 2 and 5, variances 1 and 1, so 1/3 each of the mean: df 4, and
     * 3 +- 2.776 * sqrt(2/3). */
    struct stats_group a = { 3, { 1, 2, 3 } }, b = { 3, { 4, 5, 6 } };
    struct stats_result r = stats_compare(&a, &b, 0.05);
    assert_true(r.known && r.differs);
    assert_true(fabs(r.low - (3 - 2.7764 * sqrt(2.0 / 3))) < 1e-3);
    assert_true(fabs(r.high - (3 + 2.7764 * sqrt(2.0 / 3))) < 1e-3);
    assert_false(stats_compare(&a, &b, 0.01).differs);
}

static void counts_have_no_noise(void **state)
{
    (void)state;
    struct stats_group a = { 2, { 7, 7 } }, b = { 2, { 8, 8 } };
    assert_true(stats_compare(&a, &b, 0.001).differs);
    assert_false(stats_compare(&a, &a, 0.5).differs);
    a.n = 1;
    assert_false(stats_compare(&a, &b, 0.05).known);
    assert_false(stats_compare(&a, &b, 0.05).differs);
}

static double normal(unsigned short seed[3])
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += erand48(seed);
    return sum;
}

static void false_alarms_are_rare(void **state)
{
    (void)state;
    unsigned short seed[3] = { 1, 2, 3 };
    int alarms = 0, found = 0;
    for (int trial = 0; trial < 2000; trial++) {
        struct stats_group a = { .n = 5 }, b = { .n = 5 }, c = { .n = 5 };
        for (size_t i = 0; i < 5; i++) {
            a.value[i] = 100 + normal(seed);
            b.value[i] = 100 + normal(seed);
            c.value[i] = 105 + normal(seed);
        }
        alarms += stats_compare(&a, &b, 0.05).differs;
        found += stats_compare(&a, &c, 0.05).differs;
    }
    assert_in_range(alarms, 50, 140); /* 100 expected */
    assert_true(found > 1990);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_the_printed_ones),
        cmocka_unit_test(an_interval_by_hand),
        cmocka_unit_test(counts_have_no_noise),
        cmocka_unit_test(false_alarms_are_rare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

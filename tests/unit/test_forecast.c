/* Goal    distinct experts follow the study that they come from, and the number
 *         of sequences is the best for the budget.
 * Method  distinct experts a layer that a study of recorded routing found for
 *         1 to 128 sequences, and curves made by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/sim/forecast.h"

static void near(double got, double want, double share)
{
    if (got < want * (1 - share) || got > want * (1 + share))
        fail_msg("%g, wanted %g", got, want);
}

static void test_distinct(void **state)
{
    (void)state;
    static const double study[][2] = { { 1, 16 },   { 2, 31 },   { 4, 57 },
                                       { 8, 101 },  { 16, 168 }, { 32, 257 },
                                       { 64, 363 }, { 128, 475 } };
    for (size_t i = 0; i < sizeof study / sizeof *study; i++)
        near(forecast_distinct(896, 16, study[i][0], 0), study[i][1], 0.03);
    near(forecast_distinct(8, 8, 5, 0), 8, 0);
    near(forecast_distinct(4, 8, 5, 0.5), 2, 0);
    near(forecast_distinct(896, 16, 1e6, 0), 896, 0.01);
}

/* The most popular experts take more than their share of the choices. */
static void test_kept(void **state)
{
    (void)state;
    double before = forecast_distinct(896, 16, 4, 0);
    for (double kept = 0.1; kept < 1; kept += 0.1) {
        double now = forecast_distinct(896, 16, 4, kept);
        assert_true(now < before);
        assert_true(now < (1 - kept) * forecast_distinct(896, 16, 4, 0));
        before = now;
    }
    near(forecast_distinct(896, 16, 4, 1), 0, 0);
}

static void test_best(void **state)
{
    (void)state;
    struct forecast c[4] = {
        { .simulated = true, .ids_per_s = 1 },
        { .simulated = true, .ids_per_s = 2 },
        { .simulated = true, .ids_per_s = 1.98 }, { .ids_per_s = 9 } };
    assert_int_equal(forecast_best(c, 4), 2); /* 1.98 is hardly less */
    c[1].ids_per_s = 3;
    assert_int_equal(forecast_best(c, 4), 1);
    for (int i = 0; i < 4; i++)
        c[i].simulated = false;
    assert_int_equal(forecast_best(c, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_best),
    };
    return cmocka_run_group_tests_name("forecast", tests, NULL, NULL);
}

/* Goal    a number that a person reads has three significant digits, is never
 *         shown as zero unless it is, and says "1 row".
 * Method  values at the edges where digits or units change, by hand; a sweep
 *         over 40 powers of ten against strtod.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/figure.h"

#define SAYS(call, words) assert_string_equal((call).text, words)

static void three_digits(void **state)
{
    (void)state;
    SAYS(figure(0), "0");
    SAYS(figure(-0.0), "0");
    SAYS(figure(0.08834), "0.0883");
    SAYS(figure(0.00012345), "0.000123");
    SAYS(figure(0.000012345), "1.23e-05");
    SAYS(figure(1.5), "1.50");
    SAYS(figure(9.994), "9.99");
    SAYS(figure(9.996), "10.0");
    SAYS(figure(99.96), "100");
    SAYS(figure(999.6), "1000");
    SAYS(figure(1564.3), "1564");
    SAYS(figure(-0.25), "-0.250");
}

static void of_any_size(void **state)
{
    (void)state;
    for (int p = -20; p < 20; p++)
        for (int i = 1; i < 1000; i += 37) {
            double v = i * pow(10, p), was = strtod(figure(v).text, NULL);
            assert_true(was > 0 && fabs(was / v - 1) < .00501);
            v = -v;
            assert_true(fabs(strtod(figure(v).text, NULL) / v - 1) < .00501);
        }
    SAYS(figure(HUGE_VAL), "inf");
}

static void what_was_chosen(void **state)
{
    (void)state;
    SAYS(figure_chosen(32), "32");
    SAYS(figure_chosen(0.25), "0.25");
    SAYS(figure_chosen(100), "100");
    SAYS(figure_chosen(1536), "1536");
    SAYS(figure_chosen(0.09375), "0.0938");
    SAYS(figure_chosen(0), "0");
    SAYS(figure_chosen(1e-9), "1e-09");
}

static void percent(void **state)
{
    (void)state;
    SAYS(figure_points(0), "0");
    SAYS(figure_points(.000008192), "0.0008");
    SAYS(figure_points(.00123), "0.123");
    SAYS(figure_points(-.5574), "-55.7");
    SAYS(figure_percent(0), "0");
    SAYS(figure_percent(0.0003), "0.03");
    SAYS(figure_percent(0.0094), "0.9");
    SAYS(figure_percent(0.014), "1");
    SAYS(figure_percent(0.906), "91");
    SAYS(figure_percent(0.9949), "99");
    SAYS(figure_percent(0.9979), "99.8");
    SAYS(figure_percent(1), "100");
}

static void units(void **state)
{
    (void)state;
    SAYS(figure_span(0), "0 s");
    SAYS(figure_span(0.00034), "340 µs");
    SAYS(figure_span(0.0123), "12.3 ms");
    SAYS(figure_span(9.81), "9.81 s");
    SAYS(figure_span(2700), "45.0 min");
    SAYS(figure_span(11520), "3.20 h");
    SAYS(figure_memory(0x1.8p31), "3.00 GiB");
    SAYS(figure_memory(350 * 0x1p20), "350 MiB");
}

static void counts(void **state)
{
    (void)state;
    SAYS(figure_count(0, "row"), "0 rows");
    SAYS(figure_count(1, "row"), "1 row");
    SAYS(figure_count(1, "pass"), "1 pass");
    SAYS(figure_count(2, "pass"), "2 passes");
    SAYS(figure_count(UINT64_MAX, "processor"),
         "18446744073709551615 processors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_digits),
        cmocka_unit_test(of_any_size),
        cmocka_unit_test(what_was_chosen),
        cmocka_unit_test(percent),
        cmocka_unit_test(units),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

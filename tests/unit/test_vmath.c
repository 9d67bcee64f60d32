/* Goal    exp, tanh and sigmoid stay within the errors vmath.h states, treat
 *         the special values as it says, and have the same bits on every ISA.
 * Method  floats of all exponents and both signs, a fixed stride through the
 *         bit patterns (all of them would take minutes), against long double.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "compute/kern.h"
#include "compute/vmath.h"

enum { BATCH = 1000 };
#define STRIDE 4099u /* prime: visits all low bits; a million floats */

static struct kern kern;

typedef void vector_fn(const struct kern *kern, float *y, const float *x,
                       size_t n);
typedef long double exact_fn(long double x);

/* Distance in units of the last place of the exact result. */
static long double ulps(float got, long double want)
{
    if (fabsl(want) > (long double)FLT_MAX)
        return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    int e;
    frexpl(want, &e);
    if (e < FLT_MIN_EXP)
        e = FLT_MIN_EXP;
    return fabsl((long double)got - want) / ldexpl(1, e - FLT_MANT_DIG);
}

static long double sigmoid_exact(long double x)
{
    return 1 / (1 + expl(-x));
}

static void walk(vector_fn *fn, exact_fn *exact, double max, const char *name)
{
    enum isa best = kern_init(&kern, ISA_COUNT - 1);
    float x[BATCH], y[BATCH], other[BATCH];
    long double worst = 0, at = 0;
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        size_t n = 0;
        for (; n < BATCH && bits <= UINT32_MAX; bits += STRIDE) {
            x[n] = vmath_float((uint32_t)bits);
            if (!isnan(x[n]))
                n++;
        }
        kern_init(&kern, ISA_REF);
        fn(&kern, y, x, n);
        for (enum isa isa = ISA_REF + 1; isa <= best; isa++) {
            kern_init(&kern, isa);
            fn(&kern, other, x, n);
            assert_memory_equal(other, y, n * sizeof *y);
        }
        for (size_t i = 0; i < n; i++) {
            long double u = ulps(y[i], exact((long double)x[i]));
            if (u > worst) {
                worst = u;
                at = (long double)x[i];
            }
        }
    }
    print_message("# %s: %.3Lf ulp at %.9Lg\n", name, worst, at);
    if (!(worst <= (long double)max))
        fail_msg("%s: %.3Lf ulp at %.9Lg", name, worst, at);
}

static void exp_error(void **state)
{
    (void)state;
    walk(vmath_exp, expl, 0.8, "exp");
}

static void tanh_error(void **state)
{
    (void)state;
    walk(vmath_tanh, tanhl, 1.3, "tanh");
}

static void sigmoid_error(void **state)
{
    (void)state;
    walk(vmath_sigmoid, sigmoid_exact, 1.4, "sigmoid");
}

static void special_values(void **state)
{
    float x[8] = { 0.0f, -0.0f, INFINITY, -INFINITY, NAN, 100.0f, -110.0f,
                   1e-40f };
    float y[8];
    (void)state;
    enum isa best = kern_init(&kern, ISA_COUNT - 1);
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        kern_init(&kern, isa);
        vmath_exp(&kern, y, x, 8);
        assert_true(y[0] == 1.0f && y[1] == 1.0f && y[2] == INFINITY &&
                    y[3] == 0.0f && isnan(y[4]) && y[5] == INFINITY &&
                    y[6] == 0.0f && y[7] == 1.0f);
        vmath_tanh(&kern, y, x, 8);
        assert_true(y[0] == 0.0f && y[2] == 1.0f && y[3] == -1.0f &&
                    isnan(y[4]) && y[5] == 1.0f && y[6] == -1.0f &&
                    y[7] == 1e-40f);
        assert_true(signbit(y[1]) && y[1] == 0.0f);
        vmath_sigmoid(&kern, y, x, 8);
        assert_true(y[0] == 0.5f && y[1] == 0.5f && y[2] == 1.0f &&
                    y[3] == 0.0f && isnan(y[4]) && y[5] == 1.0f &&
                    y[6] == 0.0f);
    }
}

static void any_length(void **state)
{
    float x[40], want[40], y[41];
    (void)state;
    for (int i = 0; i < 40; i++)
        x[i] = (float)(i - 20) * 0.37f;
    enum isa best = kern_init(&kern, ISA_REF);
    vmath_sigmoid(&kern, want, x, 40);
    best = kern_init(&kern, ISA_COUNT - 1);
    for (enum isa isa = ISA_REF; isa <= best; isa++)
        for (size_t n = 0; n <= 40; n++) {
            kern_init(&kern, isa);
            y[n] = 7.0f;
            memcpy(y, x, n * sizeof *y);
            vmath_sigmoid(&kern, y, y, n); /* in place */
            assert_memory_equal(y, want, n * sizeof *y);
            assert_true(y[n] == 7.0f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_error),     cmocka_unit_test(tanh_error),
        cmocka_unit_test(sigmoid_error), cmocka_unit_test(special_values),
        cmocka_unit_test(any_length),
    };
    return cmocka_run_group_tests_name("vmath", tests, NULL, NULL);
}

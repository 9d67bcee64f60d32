/* Goal    a number that is begun may go on exactly where some number of the
 *         range begins so, and every walk ends in the range.
 * Method  ranges of many kinds, by hand and random. All texts up to six
 *         characters over 0 1 5 9 . e - +: a prefix that begins one of the
 *         range's numbers must be allowed. Random walks of allowed characters
 *         must end, in a number of the range; every character that is refused
 *         on the way is tried with 200 random continuations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/number.h"

static const char alphabet[] = "0159.e-+";
static const char all[] = "0123456789.eE-+";

/* "[1,5)" with integer: "i[1,5)"; a missing bound is empty. */
static struct number_range range(const char *text)
{
    struct number_range r = { 0 };
    char low[64] = "", high[64] = "";
    r.integer = *text == 'i';
    text += r.integer;
    r.low_open = *text == '(';
    const char *comma = strchr(text, ',');
    snprintf(low, sizeof low, "%.*s", (int)(comma - text - 1), text + 1);
    snprintf(high, sizeof high, "%.*s", (int)strlen(comma) - 2, comma + 1);
    r.high_open = text[strlen(text) - 1] == ')';
    r.has_low = *low != 0;
    r.has_high = *high != 0;
    if (r.has_low)
        assert_true(decimal_read(&r.low, low, strlen(low)));
    if (r.has_high)
        assert_true(decimal_read(&r.high, high, strlen(high)));
    return r;
}

static const char *const ranges[] = {
    "[,]",         "i[,]",          "[0,1]",        "(0,1)",         "i[0,9]",
    "i[10,20]",    "[10,20]",       "i[-5,5]",      "[-1.5,-0.5]",   "i(0,10)",
    "i[1,1]",      "[0,0]",         "[0.1,0.1]",    "i[100,]",       "[,-100]",
    "i[,-1]",      "(0,]",          "[,0)",         "[0.001,0.002]", "(-1,1)",
    "i[95,105]",   "i[999,1001]",   "[99.5,100.5]", "[1e3,1e5]",     "i[0,0]",
    "(5,5.1)",     "[-1e-3,0]",     "[0,1e-3]",     "i[1.5,2.5]",    "i(1,3)",
    "[1e20,1e30]", "i[-1000,-999]", "[0.99,1.01]",
};
enum { RANGES = sizeof ranges / sizeof *ranges };

static bool allowed(const struct number_range *r, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!number_may_follow(r, text, i, text[i]))
            return false;
    return true;
}

static void visit(const struct number_range *r, char *text, size_t n,
                  uint64_t *seen)
{
    if (n && number_complete(r, text, n)) {
        (*seen)++;
        if (!allowed(r, text, n)) {
            printf("# refused: %.*s\n", (int)n, text);
            fail();
        }
    }
    if (n == 6)
        return;
    for (const char *c = alphabet; *c; c++) {
        text[n] = *c;
        visit(r, text, n + 1, seen);
    }
}

static void every_short_number_is_allowed(void **state)
{
    (void)state;
    for (int i = 0; i < RANGES; i++) {
        struct number_range r = range(ranges[i]);
        char text[8];
        uint64_t seen = 0;
        visit(&r, text, 0, &seen);
    }
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 33);
}

/* Try to find a number of the range that begins so. */
static void try_hard(const struct number_range *r, const char *text, size_t n,
                     uint64_t *seed)
{
    char longer[NUMBER_FREE];
    for (int i = 0; i < 200; i++) {
        memcpy(longer, text, n);
        size_t m = n, more = next_random(seed) % 6;
        for (size_t j = 0; j < more; j++)
            longer[m++] = all[next_random(seed) % (sizeof all - 1)];
        if (number_complete(r, longer, m)) {
            printf("# %.*s of %.*s\n", (int)n, text, (int)m, longer);
            fail();
        }
    }
}

static void walk(const struct number_range *r, uint64_t *seed, bool lazy)
{
    char text[NUMBER_MAX + 1];
    size_t n = 0;
    for (;;) {
        char can[sizeof all];
        int cans = 0;
        for (const char *c = all; *c; c++) {
            bool may = number_may_follow(r, text, n, *c);
            if (may)
                can[cans++] = *c;
            if (!may && n < 8) {
                text[n] = *c;
                try_hard(r, text, n + 1, seed);
            }
        }
        bool done = number_complete(r, text, n);
        if (done && (!cans || (!lazy && next_random(seed) % 4 == 0)))
            return;
        if (!cans)
            printf("# stuck at %.*s\n", (int)n, text);
        assert_true(cans > 0);
        text[n++] = can[next_random(seed) % (uint32_t)cans];
        assert_true(n <= NUMBER_MAX);
    }
}

static void every_walk_ends_in_the_range(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int i = 0; i < RANGES; i++) {
        struct number_range r = range(ranges[i]);
        for (int j = 0; j < 30; j++)
            walk(&r, &seed, j % 3 == 0);
    }
    for (int i = 0; i < 300; i++) {
        char text[64];
        double a =
            (double)next_random(&seed) / (1 + next_random(&seed) % 99999);
        double b =
            a + (double)next_random(&seed) / (1 + next_random(&seed) % 9999999);
        bool minus = next_random(&seed) % 2;
        snprintf(text, sizeof text, "%s%c%.6g,%.6g%c",
                 next_random(&seed) % 2 ? "i" : "",
                 next_random(&seed) % 2 ? '[' : '(', minus ? -b : a,
                 minus ? -a : b, next_random(&seed) % 2 ? ']' : ')');
        struct number_range r = range(text);
        if (number_range_empty(&r))
            continue;
        for (int j = 0; j < 4; j++)
            walk(&r, &seed, j == 0);
    }
}

static void ranges_meet(void **state)
{
    (void)state;
    struct number_range a = range("[1,5]"), b = range("i(2,9]");
    struct decimal d;
    number_range_meet(&a, &b);
    assert_true(a.integer && a.low_open);
    decimal_read(&d, "2", 1);
    assert_false(number_in_range(&a, &d));
    decimal_read(&d, "5.0", 3);
    assert_true(number_in_range(&a, &d));
    struct number_range none = range("i(1,2)"), open = range("(1,2)");
    assert_true(number_range_empty(&none));
    assert_false(number_range_empty(&open));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_short_number_is_allowed),
        cmocka_unit_test(every_walk_ends_in_the_range),
        cmocka_unit_test(ranges_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

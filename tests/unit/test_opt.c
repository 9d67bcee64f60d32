/* Goal    a size on the command line is what it says, or it is refused.
 * Method  sizes with the bytes they are, and texts that only begin like one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bin/cli/opt.h"

static void test_sizes(void **state)
{
    (void)state;
    static const struct { const char *text; uint64_t bytes; } good[] = {
        { "1", 1 }, { "8G", 8ull << 30 }, { "512m", 512 << 20 },
        { "1.5K", 1536 }, { "2GiB", 2ull << 30 }, { "3TB", 3ull << 40 },
        { "64mb", 64 << 20 }, { "64Mi", 64 << 20 }, { "2gib", 2ull << 30 },
        { "9007199254740993", 9007199254740993 } };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t bytes = 77;
        assert_int_equal(opt_size(&bytes, good[i].text), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "0", "G", "-1", "1.5", "1e9", "1e3K", "0x10", "0x10K", "8GG",
        "8 G", "8GBi", "8i", "nan", "inf", "1.2.3", "9e99", "8388608T"
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes = 77;
        if (!opt_size(&bytes, bad[i]))
            fail_msg("%s is taken for %llu", bad[i],
                     (unsigned long long)bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

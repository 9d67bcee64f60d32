/* Goal    the arena gives out aligned, disjoint, zeroed memory and refuses
 *         cleanly; lists of the kernel are read as it means them.
 * Method  by hand, and against limits that cannot be met.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "io/arena.h"
#include "io/numa.h"

#define MIB ((uint64_t)1 << 20)

static void takes(void **state)
{
    (void)state;
    struct arena *a;
    struct arena_facts f;
    assert_int_equal(arena_open(&a, 3 * MIB + 1), 0);
    assert_int_equal(arena_bytes(a), 3 * MIB + 4096);
    assert_int_equal((uintptr_t)arena_base(a) % (2 * MIB), 0);
    char *one = arena_take(a, 100, 1);
    char *two = arena_take(a, 4096, 4096);
    char *big = arena_take(a, MIB, 2 * MIB);
    assert_ptr_equal(one, arena_base(a));
    assert_ptr_equal(two, one + 4096);
    assert_ptr_equal(big, one + 2 * MIB);
    assert_null(arena_take(a, 4097, 1));
    assert_null(arena_take(a, UINT64_MAX, 4096));
    char *rest = arena_take(a, 4096, 1);
    assert_ptr_equal(rest, one + 3 * MIB);
    assert_null(arena_take(a, 1, 1));
    assert_non_null(arena_take(a, 0, 1));
    for (uint64_t i = 0; i < arena_bytes(a); i++)
        assert_int_equal(one[i], 0);
    memset(one, 1, arena_bytes(a));
    arena_facts(a, &f);
    assert_int_equal(f.taken_bytes, 3 * MIB + 4096);
    assert_true(f.nodes >= 1);
    assert_true(f.huge_page_share >= 0 && f.huge_page_share <= 1);
    arena_close(a);
    arena_close(NULL);
}

/* More than one slice, so that threads populate it. */
static void large(void **state)
{
    (void)state;
    struct arena *a;
    assert_int_equal(arena_open(&a, 520 * MIB), 0);
    const char *base = arena_base(a);
    for (uint64_t at = 0; at < arena_bytes(a); at += 4096)
        assert_int_equal(base[at], 0);
    arena_close(a);
}

static void refuses(void **state)
{
    (void)state;
    struct arena *a = (void *)1;
    assert_int_equal(arena_open(&a, 0), -EINVAL);
    assert_null(a);
    assert_int_equal(arena_open(&a, UINT64_MAX), -ENOMEM);
    assert_int_equal(arena_open(&a, (uint64_t)1 << 50), -ENOMEM);
    assert_null(a);
}

static void lists(void **state)
{
    (void)state;
    uint64_t m[2];
    assert_int_equal(numa_parse_list(m, 128, "0-2,7,64-65,127\n"), 0);
    assert_int_equal(m[0], 0x87);
    assert_int_equal(m[1], (uint64_t)1 << 63 | 3);
    assert_int_equal(numa_parse_list(m, 128, "\n"), 0);
    assert_int_equal(m[0] | m[1], 0);
    static const char *const bad[] = { "128", "a",  "1-",  "2-1", "1 2",
                                       "-1",  ",1", "1,,2", "1;2" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(numa_parse_list(m, 128, bad[i]), -EINVAL);
    assert_int_equal(numa_count(0x87), 4);
    assert_true(numa_memory_nodes() != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes),
        cmocka_unit_test(large),
        cmocka_unit_test(refuses),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}

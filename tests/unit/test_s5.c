/* Goal    planes of scales come back as they were, in the bytes s5.h states,
 *         and CRC-32C is the one of RFC 3720.
 * Method  rows by hand, then random planes of every spread and width; the
 *         published test vectors, then both ways against each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/s5.h"

enum { ROWS = 9, N_MAX = 130, GUARD = 0xa5 };

static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1;
    return (uint32_t)((random_state >> 33) % below);
}

static void by_hand(void **state)
{
    static const uint8_t scale[2][7] = { { 121, 120, 121, 122, 121, 121, 120 },
                                         { 121, 121, 121, 121, 121, 121, 9 } };
    uint8_t packed[4], patch[4], back[14];
    struct s5 s = { .mode = 5, .palette = { 121, 120, 122 }, .patches = 1 };
    (void)state;
    s5_code(packed, patch, &s, scale[0], 2, 7);
    /* 0 + 1*3 + 0 + 2*27 + 0, and 0 + 1*3 for the last two. */
    static const uint8_t want[4] = { 57, 3, 0, 0 };
    static const uint8_t want_patch[4] = { 13, 0, 0, 9 };
    assert_memory_equal(packed, want, 4);
    assert_memory_equal(patch, want_patch, 4);
    assert_null(s5_check(&s, packed, patch, 2, 7));
    s5_expand(back, &s, packed, patch, 2, 7);
    assert_memory_equal(back, scale, 14);
}

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(s5_row_bytes(5, 112), 23);
    assert_int_equal(s5_row_bytes(5, 96), 20);
    assert_int_equal(s5_row_bytes(2, 5), 2);
    assert_int_equal(s5_row_bytes(4, 5), 3);
    assert_int_equal(s5_row_bytes(8, 5), 5);
    assert_int_equal(s5_row_bytes(3, 5), 0);
}

/* A plane with `values` values from `low`, `odd` in 1000 anything. */
static void fill(uint8_t *scale, size_t all, uint32_t low, uint32_t values,
                 uint32_t odd)
{
    for (size_t i = 0; i < all; i++)
        scale[i] = (uint8_t)(draw(1000) < odd ? draw(256)
                                              : low + draw(values));
}

static void random_planes(void **state)
{
    static const uint32_t values[] = { 1, 2, 3, 4, 5, 16, 17, 256 };
    uint32_t seen[9] = { 0 };
    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint8_t scale[ROWS * N_MAX], packed[ROWS * N_MAX];
        uint8_t patch[4 * ROWS * N_MAX], back[ROWS * N_MAX + 2];
        size_t rows = 1 + draw(ROWS), n = 1 + draw(N_MAX);
        fill(scale, rows * n, draw(256), values[draw(8)],
             draw(2) ? 0 : draw(60));
        struct s5 s;
        s5_choose(&s, scale, rows, n);
        size_t bytes = rows * s5_row_bytes(s.mode, n);
        assert_true(bytes + 4 * (size_t)s.patches <= rows * n);
        seen[s.mode]++;
        s5_code(packed, patch, &s, scale, rows, n);
        assert_null(s5_check(&s, packed, patch, rows, n));
        memset(back, GUARD, sizeof back);
        s5_expand(back + 1, &s, packed, patch, rows, n);
        assert_memory_equal(back + 1, scale, rows * n);
        assert_int_equal(back[0], GUARD);
        assert_int_equal(back[rows * n + 1], GUARD);
    }
    assert_true(seen[5] && seen[2] && seen[4] && seen[8]);
}

static void refuses(void **state)
{
    struct s5 s = { .mode = 5, .palette = { 1, 2, 3 }, .patches = 2 };
    uint8_t packed[2] = { 0, 242 }, patch[8] = { 1, 0, 0, 9, 4, 0, 0, 9 };
    (void)state;
    assert_null(s5_check(&s, packed, patch, 1, 10));
    packed[0] = 243;
    assert_non_null(s5_check(&s, packed, patch, 1, 10));
    packed[0] = 0;
    assert_non_null(s5_check(&s, packed, patch, 1, 4));
    patch[4] = 1;
    assert_non_null(s5_check(&s, packed, patch, 1, 10));
    patch[4] = 4;
    s.mode = 4;
    assert_non_null(s5_check(&s, packed, patch, 1, 4));
    s.mode = 6;
    assert_non_null(s5_check(&s, packed, patch, 1, 10));
}

static void crc_vectors(void **state)
{
    uint8_t bytes[48] = { 0 };
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, bytes, 32), 0x46dd794e);
    assert_int_equal(crc32c_plain(0, bytes, 32), 0x46dd794e);
}

static void crc_ways(void **state)
{
    enum { BYTES = 120000 };
    uint8_t *bytes = malloc(BYTES);
    (void)state;
    assert_non_null(bytes);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)draw(256);
    for (int round = 0; round < 3000; round++) {
        size_t at = draw(100), n = draw(round % 2 ? 2000 : BYTES - 100);
        size_t cut = draw((uint32_t)n + 1);
        uint32_t begin = draw(2) ? 0 : draw(UINT32_MAX);
        uint32_t whole = crc32c(begin, bytes + at, n);
        assert_int_equal(whole, crc32c_plain(begin, bytes + at, n));
        uint32_t half = crc32c(begin, bytes + at, cut);
        assert_int_equal(whole, crc32c(half, bytes + at + cut, n - cut));
        uint32_t first = crc32c(0, bytes + at, cut);
        uint32_t second = crc32c(0, bytes + at + cut, n - cut);
        assert_int_equal(crc32c_join(first, second, n - cut),
                         crc32c(0, bytes + at, n));
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),       cmocka_unit_test(sizes),
        cmocka_unit_test(random_planes), cmocka_unit_test(refuses),
        cmocka_unit_test(crc_vectors),   cmocka_unit_test(crc_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Goal    a block gives back every bit of its rows, whatever they hold, takes
 *         no more than its raw bytes and 128, and is the same bytes from every
 *         instruction set; a damaged block is refused or stays inside itself.
 * Method  random rows of every kind and every size of last group, encoded at
 *         every level, checked, decoded bit by bit and compared; a row by
 *         hand; then blocks with bytes flipped, decoded where u3_check accepts
 *         them, with guards around.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/kern.h"
#include "compute/u3.h"
#include "compute/u3_encode.h"
#include "compute/vmath.h"

enum { ROWS = 12, COLS = 700, KINDS = 9, GUARD = 64 };

static uint64_t random_state = 7;
static struct u3_scratch scratch;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1;
    return (uint32_t)((random_state >> 33) % below);
}

/* Sum of twelve uniform ones: near enough to a normal deviation of 1. */
static float normal(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (float)draw(1 << 20) / (float)(1 << 20);
    return sum;
}

static uint16_t weight(int kind, float scale)
{
    static const uint16_t odd[] = { 0x7f80, 0xff80, 0x7fc0, 0xffff, 0x0001,
                                    0x8001, 0x007f, 0x0000, 0x8000, 0x7f7f };
    switch (kind) {
    case 0:
        return (uint16_t)draw(65536);
    case 1:
        return 0x3f80;
    case 2:
        return odd[draw(10)];
    case 3:
        return (uint16_t)(draw(128) | draw(2) << 15); /* denormal */
    case 4: /* one long code after another: more than 57 in a group */
        return (uint16_t)(0x3000 + 0x200 * draw(7) + draw(512));
    case 5:
        return draw(20) ? (uint16_t)(vmath_bits(scale * normal()) >> 16)
                        : odd[draw(10)];
    case 6:
        return 0;
    default:
        return (uint16_t)(vmath_bits(scale * normal()) >> 16);
    }
}

static void fill(uint16_t *w, uint32_t rows, uint32_t cols)
{
    int kind = (int)draw(KINDS);
    for (uint32_t r = 0; r < rows; r++) {
        int of_row = draw(4) ? kind : (int)draw(KINDS);
        float scale = ldexpf(1, (int)draw(12) - 8);
        for (uint32_t c = 0; c < cols; c++)
            w[(size_t)r * cols + c] = weight(of_row, scale);
    }
}

static void decode_and_compare(const uint8_t *block, uint32_t bytes,
                               const uint16_t *w, uint32_t rows, uint32_t cols)
{
    static uint8_t back[ROWS * COLS * 2 + 2 * GUARD];
    const char *wrong = u3_check(block, bytes, rows, cols);
    if (wrong)
        fail_msg("%u x %u: %s", rows, cols, wrong);
    uint32_t begin = draw(rows), end = begin + 1 + draw(rows - begin);
    size_t length = (size_t)(end - begin) * cols * 2;
    memset(back, 0xa5, sizeof back);
    u3_rows_ref(back + GUARD, block, begin, end);
    assert_memory_equal(back + GUARD, w + (size_t)begin * cols, length);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(back[i], 0xa5);
        assert_int_equal(back[GUARD + length + i], 0xa5);
    }
}

static void every_row(void **state)
{
    static uint16_t w[ROWS * COLS];
    static _Alignas(64) uint8_t block[ISA_COUNT][ROWS * COLS * 2 + 256];
    uint32_t coded = 0, raw = 0;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        uint32_t rows = 1 + draw(ROWS);
        uint32_t cols = 1 + draw(round % 2 ? COLS : 130);
        uint32_t bytes = 0, max = (uint32_t)u3_bytes_max(rows, cols);
        assert_true(max <= rows * cols * 2 + 128);
        fill(w, rows, cols);
        for (int isa = 0; isa < ISA_COUNT; isa++) {
            struct kern kern;
            if (kern_init(&kern, (enum isa)isa) != (enum isa)isa)
                continue;
            memset(block[isa], 0xa5, sizeof block[isa]);
            uint32_t n = u3_encode(&kern, block[isa], w, rows, cols, &scratch);
            assert_true(n <= max && n % U3_ALIGN == 0);
            assert_int_equal(block[isa][max], 0xa5);
            bytes = isa ? bytes : n;
            assert_int_equal(n, bytes);
            assert_memory_equal(block[isa], block[0], n);
        }
        *(block[0][0] == U3_CODED ? &coded : &raw) += 1;
        decode_and_compare(block[0], bytes, w, rows, cols);
    }
    assert_true(coded > 500 && raw > 500);
}

/* Each size of the last group, coded: the padding is clean. */
static void last_groups(void **state)
{
    static uint16_t w[ROWS * COLS];
    static _Alignas(64) uint8_t block[ROWS * COLS * 2 + 256];
    struct kern kern;
    (void)state;
    kern_init(&kern, ISA_COUNT - 1);
    for (uint32_t cols = 449; cols <= 512 + 64; cols++) {
        for (uint32_t i = 0; i < 8 * cols; i++)
            w[i] = weight(7, 1);
        uint32_t n = u3_encode(&kern, block, w, 8, cols, &scratch);
        assert_int_equal(block[0], U3_CODED);
        decode_and_compare(block, n, w, 8, cols);
    }
}

/* 64 columns of 1.0, three of 2.0, two of -0.25 and four small ones, which fill
 * the table, in 256 rows that are alike; and a NaN in one of them, a patch. */
static void by_hand(void **state)
{
    enum { N = 256 };
    static uint16_t w[N][64];
    static _Alignas(64) uint8_t block[64 + N * 128 + 64];
    struct kern kern;
    struct u3 u;
    struct u3_row row;
    (void)state;
    kern_init(&kern, ISA_REF);
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < 64; c++)
            w[r][c] = 0x3f80;
        w[r][3] = w[r][4] = w[r][5] = 0x4000;
        w[r][9] = w[r][10] = 0xbe80;
        for (int c = 20; c < 24; c++)
            w[r][c] = (uint16_t)(0x3000 + 0x200 * (c - 20));
    }
    w[1][40] = 0xffc1;
    uint32_t n = u3_encode(&kern, block, w, N, 64, &scratch);
    assert_null(u3_check(block, n, N, 64));
    assert_int_equal(block[0], U3_CODED);
    u3_open(&u, block);
    u3_row_at(&row, &u, 1);
    assert_int_equal(row.table[0], 0x3f);
    assert_int_equal(row.table[1], 0x40);
    assert_int_equal(row.table[2], 0x3e);
    assert_int_equal(row.low[0], 0x80);
    assert_int_equal(row.low[8], 0x80); /* position 8 is column 32 */
    assert_int_equal(row.low[38], 0); /* and 38 is 22, here 0x3400 */
    assert_int_equal(row.table[4], 0x36); /* of ties the larger first */
    assert_int_equal(row.table[7], 0x30);
    uint64_t planes[2];
    memcpy(planes, row.planes, sizeof planes);
    /* Columns 3..5 are positions 3..5, 9 and 10 are 17 and 18, 40 is 24, 20..23
     * are 36..39. */
    assert_true(planes[0] == (UINT64_C(6) << 16 | UINT64_C(1) << 24));
    assert_true(planes[1] == (UINT64_C(0x38) | UINT64_C(6) << 16 |
                              UINT64_C(15) << 36));
    assert_int_equal(u3_get16(row.b), 0x1f8); /* 0 0 0 1 1 1 1 1 1 */
    assert_int_equal(row.c[0], 0x3c);         /* 0 0 1 1 1 1 */
    assert_int_equal(row.d0[0], 5);           /* 7 6 5 4 */
    assert_int_equal(row.d1[0], 3);
    assert_int_equal(row.patches, 1);
    assert_int_equal(u3_get16(row.column), 40);
    assert_int_equal(row.high[0], 0xff);
}

static void block_rows(void **state)
{
    (void)state;
    assert_int_equal(u3_block_rows(7168), 64);
    assert_int_equal(u3_block_rows(12288), 32);
    assert_int_equal(u3_block_rows(512), 1024);
    assert_int_equal(u3_block_rows(33792), 8);
    assert_int_equal(u3_block_rows(65535), 8);
    assert_int_equal(u3_block_rows(1), 32768);
    assert_int_equal(u3_block_rows(1 << 20), 4);
}

/* Whatever u3_check accepts is decoded without a byte outside the block: it
 * lies at the end of its allocation, for the sanitizers to see. */
static void damaged(void **state)
{
    enum { R = 6, C = 300 };
    static uint16_t w[R * C], back[R * C];
    static _Alignas(64) uint8_t block[R * C * 2 + 256];
    uint32_t refused = 0, accepted = 0;
    struct kern kern;
    (void)state;
    kern_init(&kern, ISA_COUNT - 1);
    for (int round = 0; round < 20000; round++) {
        if (round % 100 == 0)
            for (int i = 0; i < R * C; i++)
                w[i] = weight(5, 1);
        uint32_t n = u3_encode(&kern, block, w, R, C, &scratch);
        for (uint32_t flips = 1 + draw(3); flips; flips--) {
            uint32_t at = draw(3) ? draw(n) : draw(64 + 12 * R);
            block[at] ^= (uint8_t)(1u << draw(8));
        }
        uint32_t bytes = draw(20) ? n : draw(n / 64 + 1) * 64;
        uint8_t *own = aligned_alloc(64, bytes ? bytes : 64);
        assert_non_null(own);
        memcpy(own, block, bytes);
        if (u3_check(own, bytes, R, C)) {
            refused++;
        } else {
            u3_rows_ref(back, own, 0, R);
            accepted++;
        }
        free(own);
    }
    assert_true(refused > 2000 && accepted > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),     cmocka_unit_test(block_rows),
        cmocka_unit_test(every_row),   cmocka_unit_test(last_groups),
        cmocka_unit_test(damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

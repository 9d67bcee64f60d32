/* Goal    Decoding coded weights and multiplying with them give the bits of the
 *         raw path, on every instruction set, for any matrix, shape and cut.
 * Method  Random, constant, NaN and infinity, denormal, one-value and
 *         mixed-scale rows, and gaussian ones; every size of last group; blocks
 *         made bit by bit with one to four tables, good and bad ones. Decoded
 *         rows against the source, products against bf16_gemm of the reference
 *         on the source, with guards around.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/kern.h"
#include "compute/pack.h"
#include "compute/u3.h"
#include "compute/vmath.h"
#include "tests/property/u3_block.h"

enum { ROWS_MAX = 70, OUTPUTS_MAX = 41, COLS_MAX = 2200, GUARD = 0x5a };

enum kind {
    GAUSS, MIXED, RANDOM, CONSTANT, ONE_VALUE, DENORMAL, SPECIAL, KINDS
};

static uint64_t seed = 1;
static enum isa best;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static float draw_float(void)
{
    return (float)(int32_t)(draw() << 1) / 1073741824.0f;
}

/* Bell-shaped enough: the exponents are what matters. */
static float bell(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++)
        sum += draw_float();
    return sum;
}

static uint16_t bf16(float x)
{
    return (uint16_t)(vmath_bits(x) >> 16);
}

static struct {
    uint32_t rows, cols;
    uint16_t w[OUTPUTS_MAX * COLS_MAX];
    float packed[ROWS_MAX * (COLS_MAX + 256)];
    float want[ROWS_MAX][OUTPUTS_MAX];
    float got[ROWS_MAX][OUTPUTS_MAX + 2];
    bool finite;
} m;

static uint16_t weight(enum kind kind, float scale, uint16_t one)
{
    switch (kind) {
    case RANDOM:
        return (uint16_t)draw();
    case CONSTANT:
        return 0x3f80;
    case ONE_VALUE:
        return draw() % 50 ? one : (uint16_t)(one ^ 0x8000);
    case DENORMAL:
        return (uint16_t)((draw() & 0x80ff) | (draw() % 9 ? 0 : 0x3c00));
    case SPECIAL:
        return draw() % 40 ? bf16(bell())
                           : (uint16_t)(0x7f80 | (draw() & 0x80ff));
    default:
        return bf16(scale * bell() * (draw() % 20 ? 1.0f : 4.0f));
    }
}

static void fill(enum kind kind, uint32_t rows, uint32_t cols)
{
    m.rows = rows;
    m.cols = cols;
    for (uint32_t r = 0; r < rows; r++) {
        float scale = kind == MIXED ? ldexpf(1.0f, (int)(draw() % 40) - 30)
                                    : 0.02f;
        uint16_t one = (uint16_t)draw();
        for (uint32_t c = 0; c < cols; c++)
            m.w[r * cols + c] = weight(kind, scale, one);
    }
    static float x[COLS_MAX];
    for (uint32_t r = 0; r < ROWS_MAX; r++) {
        for (uint32_t c = 0; c < cols; c++)
            x[c] = draw_float();
        pack_rows(m.packed + r * pack_cols(cols), x, 1, cols, cols);
    }
}

/* A block of it: tables that fit the rows, or any. */
static void *block(uint32_t tables)
{
    uint8_t table[4][8];
    for (uint32_t t = 0; t < tables; t++) {
        u3_block_table(table[t], m.w, m.rows, m.cols, t, tables);
        for (unsigned i = 0; draw() % 4 == 0 && i < 8; i++)
            table[t][i] = draw() & 127;
    }
    return u3_block(m.w, m.rows, m.cols, (const uint8_t (*)[8])table, tables);
}

/* The levels that this CPU has; `isa` is one of them. */
static bool level(struct kern *kern, enum isa isa)
{
    return kern_init(kern, isa) == isa;
}

static void check_rows(const struct kern *kern, const struct u3 *u,
                       uint32_t begin, uint32_t end)
{
    static uint8_t room[sizeof m.w + 192];
    size_t row_bytes = 2 * (size_t)m.cols, n = (end - begin) * row_bytes;
    uint8_t *to = room + 64 + draw() % 64;
    memset(room, GUARD, sizeof room);
    u3_rows(kern, to, u, begin, end);
    assert_memory_equal(to, (uint8_t *)m.w + begin * row_bytes, n);
    for (uint8_t *g = room; g < to; g++)
        assert_int_equal(*g, GUARD);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(to[n + i], GUARD);
}

/* Is it the same number, or both not a number? */
static bool same(float a, float b)
{
    return vmath_bits(a) == vmath_bits(b) || (isnan(a) && isnan(b));
}

/* The products of all rows of x with every row of m, by the raw path. */
static void settle(void)
{
    struct kern ref;
    kern_init(&ref, ISA_REF);
    bf16_gemm(&ref, m.want[0], OUTPUTS_MAX, m.w, m.cols, m.packed, ROWS_MAX, 0,
              m.rows);
}

/* Rows [row, row+n) of the block times rows [r, r+rows) of x. */
static void check_gemm(const struct kern *kern, const struct u3 *u,
                       uint32_t row, uint32_t n, size_t r, size_t rows)
{
    const size_t ldy = OUTPUTS_MAX + 2, begin = 1 + draw() % (ldy - n - 1);
    bool finite = true;
    memset(m.got, GUARD, sizeof m.got);
    bool ok = u3_gemm(kern, m.got[0], ldy, u, row,
                      m.packed + r * pack_cols(m.cols), rows, begin,
                      begin + n);
    uint32_t guard;
    memset(&guard, GUARD, sizeof guard);
    for (size_t j = 0; j < rows; j++)
        for (size_t o = 0; o < ldy; o++) {
            float got = m.got[j][o];
            if (o < begin || o >= begin + n) {
                assert_int_equal(vmath_bits(got), guard);
                continue;
            }
            float want = m.want[r + j][row + o - begin];
            finite &= isfinite(want) != 0;
            if (!same(got, want))
                fail_msg("%s, %u columns, %zu rows, output %zu: %a, not %a",
                         isa_name(kern->isa), m.cols, rows, row + o - begin,
                         (double)got, (double)want);
        }
    assert_int_equal(ok, finite);
}

static void check_all(const struct u3 *u, size_t rounds)
{
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        struct kern kern;
        if (!level(&kern, isa))
            continue;
        check_rows(&kern, u, 0, m.rows);
        size_t tries = isa == ISA_REF ? 1 : rounds;
        for (size_t i = 0; i < tries; i++) {
            uint32_t begin = draw() % m.rows;
            uint32_t end = begin + 1 + draw() % (m.rows - begin);
            check_rows(&kern, u, begin, end);
            size_t rows = isa == ISA_REF ? 1 : 1 + draw() % ROWS_MAX;
            check_gemm(&kern, u, begin, end - begin,
                       draw() % (ROWS_MAX - rows + 1), rows);
        }
        for (size_t rows = 1; isa != ISA_REF && rows < 9; rows++)
            check_gemm(&kern, u, 0, m.rows, draw() % 9, rows);
    }
}

static void matrix(enum kind kind, uint32_t rows, uint32_t cols,
                   uint32_t tables, size_t rounds)
{
    fill(kind, rows, cols);
    settle();
    void *b = block(tables);
    struct u3 u;
    u3_open(&u, b);
    check_all(&u, rounds);
    free(b);
}

static void every_last_group(void **state)
{
    (void)state;
    for (uint32_t cols = 1; cols <= 200; cols++)
        matrix((enum kind)(cols % KINDS), 1 + draw() % 9, cols,
               1 + cols % 4, 2);
}

static void every_kind(void **state)
{
    (void)state;
    for (enum kind kind = GAUSS; kind < KINDS; kind++)
        for (uint32_t tables = 1; tables <= 4; tables++)
            matrix(kind, 1 + draw() % OUTPUTS_MAX, 1 + draw() % 400, tables, 6);
}

/* Several chunks of a panel, bands, and blocks that end in a part of each. */
static void large(void **state)
{
    static const uint32_t cols[] = { 768, 769, 1536, 1600, 2112, 2200 };
    (void)state;
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        for (enum kind kind = GAUSS; kind < KINDS; kind += 3)
            matrix(kind, OUTPUTS_MAX - (uint32_t)(i % 2), cols[i], 4, 4);
}

/* A raw block goes the raw way. */
static void raw_blocks(void **state)
{
    (void)state;
    fill(SPECIAL, 7, 100);
    settle();
    size_t bytes = (size_t)u3_bytes_max(7, 100);
    uint8_t *b = aligned_alloc(64, bytes);
    assert_non_null(b);
    memset(b, 0, bytes);
    b[2] = 7;
    b[4] = 100;
    uint32_t length = (uint32_t)bytes;
    memcpy(b + 16, &length, 4);
    memcpy(b + 64, m.w, 7 * 100 * 2);
    assert_null(u3_check(b, bytes, 7, 100));
    struct u3 u;
    u3_open(&u, b);
    check_all(&u, 5);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_last_group),
        cmocka_unit_test(every_kind),
        cmocka_unit_test(large),
        cmocka_unit_test(raw_blocks),
    };
    struct kern kern;
    best = kern_init(&kern, ISA_COUNT - 1);
    for (enum isa isa = ISA_REF; isa < ISA_COUNT; isa++)
        if (!level(&kern, isa))
            print_message("# this CPU has no %s\n", isa_name(isa));
    return cmocka_run_group_tests_name("u3 bits", tests, NULL, NULL);
}

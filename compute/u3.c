/* u3.c - is a block what it says it is, where its parts are, and the way into
 * the table. */
#include "compute/u3.h"

#include <assert.h>

#include "compute/bf16.h"
#include "compute/kern.h"

enum { BLOCK_RAW_BYTES = 1 << 20, BLOCK_ROWS_MIN = 4 };

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

uint32_t u3_rows_within(uint32_t cols, uint64_t raw_bytes)
{
    uint64_t rows = U3_ROWS_MAX;
    while (rows > BLOCK_ROWS_MIN && rows * cols * 2 > raw_bytes)
        rows /= 2;
    return (uint32_t)rows;
}

uint32_t u3_block_rows(uint32_t cols)
{
    return u3_rows_within(cols, BLOCK_RAW_BYTES);
}

uint64_t u3_bytes_max(uint32_t rows, uint32_t cols)
{
    return round_up(U3_HEADER + (uint64_t)rows * cols * 2, U3_ALIGN);
}

static bool all_zero(const uint8_t *from, uint64_t n)
{
    uint8_t any = 0;
    for (uint64_t i = 0; i < n; i++)
        any |= from[i];
    return !any;
}

static const char *check_raw(const uint8_t *block, uint64_t bytes,
                             uint64_t data_bytes)
{
    if (bytes != round_up(U3_HEADER + data_bytes, U3_ALIGN))
        return "a raw block of another size";
    if (block[1] || !all_zero(block + 8, 8) || !all_zero(block + 20, 44))
        return "fields that a raw block has not";
    if (!all_zero(block + U3_HEADER + data_bytes,
                  bytes - U3_HEADER - data_bytes))
        return "bytes after its end";
    return NULL;
}

/* Ones among the first `bits` bits; *clean: none after them, up to `bytes`. */
static uint64_t ones(const uint8_t *from, uint64_t bits, uint64_t bytes,
                     bool *clean)
{
    uint64_t sum = 0, i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        sum += (uint64_t)__builtin_popcountll(word);
    }
    uint64_t last = 0;
    memcpy(&last, from + i, bytes - i);
    sum += (uint64_t)__builtin_popcountll(last);
    if (bits % 8 && bytes && from[bytes - 1] >> bits % 8)
        *clean = false;
    return sum;
}

/* Do the counts of one row follow from its planes? *end: where it ends in V,
 * which is known to be inside. */
static const char *check_row(const struct u3 *u, uint32_t r, uint64_t *end,
                             uint64_t streams_bytes, uint32_t tables)
{
    const uint8_t *row = u->row + (size_t)r * U3_ROW;
    uint32_t at = u3_get32(row), b = u3_get16(row + 4), c = u3_get16(row + 6);
    uint32_t d = u3_get16(row + 8), n = u3_get16(row + 10);
    if ((at & 0x3fffffff) != *end || at >> 30 >= tables)
        return "a row table that is out of order";
    *end += (uint64_t)b + c + 2 * (uint64_t)d + 3 * (uint64_t)n;
    if (*end > streams_bytes || n > u->cols)
        return "a row that goes past its end";
    struct u3_row parts;
    u3_row_at(&parts, u, r);
    uint64_t sum = 0;
    for (uint32_t g = 0; g < u->width / U3_GROUP; g++) {
        uint64_t a;
        memcpy(&a, parts.planes + 16 * (size_t)g + 8, sizeof a);
        int in_group = __builtin_popcountll(a);
        if (in_group > U3_ONES_MAX)
            return "a group with too many long codes";
        sum += (uint64_t)in_group;
    }
    bool clean = true;
    uint64_t in_b = ones(parts.b, sum, b, &clean);
    uint64_t in_c = ones(parts.c, in_b, c, &clean);
    ones(parts.d0, in_c, d, &clean);
    ones(parts.d1, in_c, d, &clean);
    if (b != (sum + 7) / 8 || c != (in_b + 7) / 8 || d != (in_c + 7) / 8 ||
        !clean)
        return "planes of another length than their codes";
    for (uint32_t i = 0; i < n; i++) {
        uint32_t column = u3_get16(parts.column + 2 * (size_t)i);
        if (column >= u->cols ||
            (i && column <= u3_get16(parts.column + 2 * (size_t)(i - 1))))
            return "patches that are out of order";
    }
    return NULL;
}

/* Sign and A of the positions past the last column. */
static bool padding_clean(const struct u3 *u, uint32_t r)
{
    uint32_t used = u->cols % U3_GROUP;
    uint64_t sign_a[2], pad = 0;
    if (!used)
        return true;
    for (uint32_t p = 0; p < U3_GROUP; p++) {
        uint32_t j = p % 16;
        uint32_t column = 8 * (p / 16) + (j < 8 ? j : 24 + j);
        pad |= (uint64_t)(column >= used) << p;
    }
    size_t last = (size_t)(r + 1) * (u->width / U3_GROUP) - 1;
    memcpy(sign_a, u->planes + 16 * last, sizeof sign_a);
    return !((sign_a[0] | sign_a[1]) & pad);
}

static const char *check_coded(const uint8_t *block, uint64_t bytes,
                               uint32_t rows, uint32_t cols)
{
    uint64_t width = round_up(cols, U3_GROUP);
    uint64_t low_at = round_up(U3_HEADER + (uint64_t)rows * U3_ROW, U3_ALIGN);
    uint64_t p_at = low_at + rows * width;
    uint64_t v_at = round_up(p_at + rows * width / 4, U3_ALIGN);
    uint32_t tables = block[1], patches = 0;
    if (cols > U3_COLS_MAX)
        return "more columns than can be coded";
    if (u3_get32(block + 8) != p_at || u3_get32(block + 12) != v_at ||
        bytes < v_at + 8)
        return "sections that are not where they belong";
    if (!tables || tables > U3_TABLES_MAX || !all_zero(block + 24, 8))
        return "a header that makes no sense";
    for (uint32_t i = 0; i < 8 * U3_TABLES_MAX; i++)
        if (block[32 + i] > 127 || (i % 8 == 3 && block[32 + i]) ||
            (i / 8 >= tables && block[32 + i]))
            return "tables that make no sense";
    struct u3 u;
    u3_open(&u, block);
    uint64_t end = 0;
    for (uint32_t r = 0; r < rows; r++) {
        const char *wrong = check_row(&u, r, &end, bytes - 8 - v_at, tables);
        if (wrong)
            return wrong;
        if (!padding_clean(&u, r))
            return "codes past the last column";
        patches += u3_get16(u.row + (size_t)r * U3_ROW + 10);
    }
    if (patches != u3_get32(block + 20) ||
        !all_zero(block + v_at + end, bytes - v_at - end))
        return "an end that its rows do not have";
    return NULL;
}

const char *u3_check(const void *block, uint64_t bytes, uint32_t rows,
                     uint32_t cols)
{
    const uint8_t *b = block;
    if (bytes < U3_HEADER || bytes % U3_ALIGN || bytes > UINT32_MAX ||
        bytes != u3_get32(b + 16))
        return "another length than its header says";
    if (rows < 1 || rows > U3_ROWS_MAX || u3_get16(b + 2) != rows ||
        u3_get32(b + 4) != cols || !cols)
        return "another shape than its matrix";
    if (b[0] == U3_RAW)
        return check_raw(b, bytes, (uint64_t)rows * cols * 2);
    if (b[0] == U3_CODED)
        return check_coded(b, bytes, rows, cols);
    return "a mode that is not known";
}

void u3_open(struct u3 *out, const void *block)
{
    const uint8_t *b = block;
    *out = (struct u3){ .mode = b[0], .rows = u3_get16(b + 2),
                        .cols = u3_get32(b + 4), .table = b + 32 };
    out->width = out->cols;
    if (out->mode == U3_RAW) {
        out->raw = b + U3_HEADER;
        return;
    }
    uint32_t rows = out->rows;
    out->width = (uint32_t)round_up(out->cols, U3_GROUP);
    out->row = b + U3_HEADER;
    out->low = b + round_up(U3_HEADER + (uint64_t)rows * U3_ROW, U3_ALIGN);
    out->planes = b + u3_get32(b + 8);
    out->streams = b + u3_get32(b + 12);
}

bool u3_gemm(const struct kern *kern, float *y, size_t ldy, const struct u3 *u,
             uint32_t row, const float *xp, size_t rows, size_t begin,
             size_t end)
{
    assert(rows >= 1 && rows <= GEMM_ROWS_MAX);
    assert(begin <= end);
    assert(end <= ldy || rows == 1);
    assert(row <= u->rows && end - begin <= u->rows - row);
    if (u->mode == U3_RAW)
        return kern->bf16_gemm(y, ldy, u->raw + (size_t)row * u->cols * 2,
                               u->cols, xp, rows, begin, end);
    return kern->u3_gemm(y, ldy, u, row, xp, rows, begin, end);
}

void u3_rows(const struct kern *kern, void *dst, const struct u3 *u,
             uint32_t begin, uint32_t end)
{
    assert(begin <= end && end <= u->rows);
    size_t row_bytes = (size_t)u->cols * 2;
    if (u->mode == U3_RAW)
        memcpy(dst, u->raw + begin * row_bytes, (end - begin) * row_bytes);
    else
        kern->u3_rows(dst, u, begin, end);
}

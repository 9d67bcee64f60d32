/* u3.h - bf16 matrices without loss in about .68 of their bytes, in blocks.
 *
 * A weight is a low byte (the last bit of the exponent, 7 of mantissa), stored
 * as it is, and a high byte. The sign of the high byte is a bit plane; its
 * other 7 bits are one of 7 values of a table in the prefix code 0, 10, 110,
 * 111xx, whose bits are planes too. Anything else is a patch.
 *
 * A block is up to u3_block_rows(cols) rows of a matrix. All is little endian;
 * a block lies at a multiple of 64 in its file and in memory.
 *
 *      0 u8  mode      0: raw, rows x cols bf16 from byte 64. 1: as follows
 *      1 u8  tables    1..4
 *      2 u16 rows      1..32768
 *      4 u32 cols      1..U3_COLS_MAX; raw: any
 *      8 u32 p_at      of the section P, a multiple of 64
 *     12 u32 v_at      of the section V, a multiple of 64
 *     16 u32 bytes     of the block, a multiple of 64. Mode 1: what is
 *                      after the rows of V is zero and at least 8 bytes, so
 *                      that a load of 8 bytes may begin at any byte of V
 *     20 u32 patches   of all rows
 *     24 u64           zero
 *     32 u8  table[4][8]   the 7 low bits of the high byte for index 0, 1, 2
 *                      and 4..7; entry 3 is 0; unused tables are 0
 *     64 row[rows]     12 bytes each: u32 at | table << 30; u16 b, c, d, n;
 *                      then zeros to a multiple of 64
 *        S[rows][W]    low bytes; W = cols rounded up to 64
 *   p_at P[rows][W/64] u64 sign, u64 A
 *   v_at V             row r from v_at + at, next row where it ends:
 *                      B[b] C[c] D0[d] D1[d] column u16[n] high u8[n]
 *
 * In mode 0 tables, p_at, v_at, patches, table and what follows row `rows` are
 * zero and there is no row table.
 *
 * Groups   W is cut into groups of 64 positions. Position p = 16i + j (i < 4,
 *          j < 16) of a group holds column 8i + j for j < 8, else column
 *          32 + 8i + j - 8: unpacking low and high bytes within lanes of 16
 *          then gives the columns in order. Positions of columns past the end
 *          have low byte, sign and A zero.
 * Bits     run from bit 0 of byte 0 up, group after group, in positions.
 *          A = 0: index 0. Else the next bit of B: 0 is index 1; else the next
 *          of C: 0 is index 2; else the next of D0 and of D1: 4 + D0 + 2 D1.
 *          The high byte is table[index] | sign << 7. Then each patch, columns
 *          ascending, sets the whole high byte of its column. A group has at
 *          most U3_ONES_MAX ones in A: what a 64-bit load from any bit keeps.
 *          B, C and D end in zero bits; b, c, d are their bytes, no more than
 *          the bits need.
 * Bounds   A block never takes more than its raw bytes and 128.
 */
#ifndef COMPUTE_U3_H
#define COMPUTE_U3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kern;

enum {
    U3_RAW,
    U3_CODED, /* the modes */
    U3_HEADER = 64,
    U3_ALIGN = 64,
    U3_GROUP = 64,
    U3_ROW = 12,
    U3_ONES_MAX = 57,
    U3_TABLES_MAX = 4,
    U3_ROWS_MAX = 32768,
    U3_COLS_MAX = 65535,
};

/* A block taken apart. Pointers into it; valid while it is. */
struct u3 {
    uint32_t       mode, rows, cols;
    uint32_t       width;    /* W; mode 0: cols */
    const uint8_t *raw;      /* mode 0: rows x cols bf16, else NULL */
    const uint8_t *table;    /* [4][8], at a multiple of 32 of the block */
    const uint8_t *row;      /* [rows] of U3_ROW bytes */
    const uint8_t *low;      /* S */
    const uint8_t *planes;   /* P */
    const uint8_t *streams;  /* V */
};

/* One row of a block in mode 1. */
struct u3_row {
    const uint8_t *table;  /* [8] */
    const uint8_t *low;    /* [W] */
    const uint8_t *planes; /* [W/64] of sign, A */
    const uint8_t *b, *c, *d0, *d1;
    const uint8_t *column; /* u16 [patches], at any address */
    const uint8_t *high;   /* u8 [patches] */
    uint32_t       patches;
};

/* Rows of a whole block of a matrix with `cols` columns: the largest power of
 * two with at most 1 MiB of bf16, 4 to 32768. */
uint32_t u3_block_rows(uint32_t cols);
/* The same with at most `raw_bytes` of bf16. */
uint32_t u3_rows_within(uint32_t cols, uint64_t raw_bytes);
/* The most bytes that a block of so many rows takes. */
uint64_t u3_bytes_max(uint32_t rows, uint32_t cols);

/* Is this a block of `rows` rows of `cols` columns in exactly `bytes` bytes?
 * NULL, or what is wrong in a few words. After NULL every other function here
 * stays inside the block, whatever its bits are: all counts are checked against
 * the planes that they follow from. Cost: reads P and V, about a fifth of the
 * bytes. */
const char *u3_check(const void *block, uint64_t bytes, uint32_t rows,
                     uint32_t cols);
/* Take a checked block apart. */
void u3_open(struct u3 *out, const void *block);

/* Decode rows [begin, end) of a checked block to dst, bf16 [end-begin][cols],
 * at any address: bit by bit, the specification in code. */
void u3_rows_ref(void *dst, const void *block, uint32_t begin, uint32_t end);

/* One row of a checked block in mode 1, bf16 [cols]. */
void u3_row_ref(uint8_t *dst, const struct u3 *u, uint32_t r);

/* ---- products and decoding ----
 *
 * The results are those of bf16.h with the decoded rows, bit by bit. Nothing
 * outside a block is read; prefetches go beyond it. Each call works on the
 * calling thread: split the rows of a block over threads, the split does not
 * change a bit. */

/* y[r][o] = sum_c W[o][c] * x[r][c] for output rows o in [begin, end), whose
 * weights are rows `row`, row + 1, ... of the block.
 *
 *   y    f32  [rows][ldy]         written at columns [begin, end)
 *   xp   f32  [rows][pack_cols(u->cols)]   packed rows, see pack.h
 *
 * Needs    1 <= rows <= GEMM_ROWS_MAX; row + end - begin <= u->rows; y overlaps
 *          nothing.
 * Order    As bf16_gemm. Few rows: decoded in registers. More: decoded once
 *          for 64 rows, into a panel in L1.
 * Errors   false if any output is not finite; the outputs are written all the
 *          same.
 * Cost     Reads the weight rows' bytes once for each 64 rows. One row is bound
 *          by the decoding: a Zen 4 core multiplies 23 GB/s of bf16 (AVX-512),
 *          20 (GFNI), 14 (AVX2), from memory that gives the raw path 21 to
 *          24. */
bool u3_gemm(const struct kern *kern, float *y, size_t ldy, const struct u3 *u,
             uint32_t row, const float *xp, size_t rows, size_t begin,
             size_t end);

/* Decode rows [begin, end) of a block to dst, bf16 [end-begin][cols] at any
 * address; written exactly. */
void u3_rows(const struct kern *kern, void *dst, const struct u3 *u,
             uint32_t begin, uint32_t end);

static inline uint32_t u3_get32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline uint32_t u3_get16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Where row r of a checked block in mode 1 has its parts. */
static inline void u3_row_at(struct u3_row *out, const struct u3 *u, uint32_t r)
{
    const uint8_t *row = u->row + (size_t)r * U3_ROW;
    uint32_t at = u3_get32(row);
    uint32_t d = u3_get16(row + 8);
    out->table = u->table + (at >> 30) * 8;
    out->low = u->low + (size_t)r * u->width;
    out->planes = u->planes + (size_t)r * (u->width / U3_GROUP) * 16;
    out->b = u->streams + (at & 0x3fffffff);
    out->c = out->b + u3_get16(row + 4);
    out->d0 = out->c + u3_get16(row + 6);
    out->d1 = out->d0 + d;
    out->column = out->d1 + d;
    out->patches = u3_get16(row + 10);
    out->high = out->column + (size_t)2 * out->patches;
}

#endif

/* bf16.h - products with bf16 matrices, straight from the stored bytes.
 *
 * The weights are little-endian bf16 at any address, as they lie in a tile that
 * was read from a shard; nothing is converted or copied first.
 *
 * Threads  Each call works on the calling thread. Split the output rows
 *          [begin, end) over threads: the split does not change a bit.
 * Errors   The products return false if any output is not finite (weights from
 *          a broken file, or overflow); the outputs are written all the same.
 */
#ifndef COMPUTE_BF16_H
#define COMPUTE_BF16_H

#include <stdbool.h>
#include <stddef.h>

struct kern;

enum { GEMM_ROWS_MAX = 512 };

/* y[r][o] = sum_c W[o][c] * x[r][c] for output rows o in [begin, end).
 *
 *   y    f32  [rows][ldy]         written at columns [begin, end)
 *   w    bf16 [end-begin][cols]   points at matrix row `begin`; any address
 *   xp   f32  [rows][pack_cols(cols)]   packed rows, see pack.h
 *
 * Needs    1 <= rows <= GEMM_ROWS_MAX; y overlaps nothing.
 * Order    Sixteen float32 lanes. Lane l takes columns 2l, then 2l+1, of each
 *          block of 32 columns, blocks ascending, one fma each, from +0.
 *          Columns past the end count as weight zero. Then the lanes fold 16 >
 *          8 > 4 > 2 > 1, low half + high half. The order depends on nothing
 *          else: not on rows, begin, end, alignment or instruction set.
 * Cost     Reads (end-begin)*cols*2 bytes of weights once while the packed rows
 *          of a group fit in L2; memory bandwidth binds up to about 8 rows, the
 *          fma units above. */
bool bf16_gemm(const struct kern *kern, float *y, size_t ldy, const void *w,
               size_t cols, const float *xp, size_t rows, size_t begin,
               size_t end);

/* Output rows that a thread should take at a time, a multiple of 8. Little when
 * the packed rows stay in L2, for an even split; else more, because each take
 * walks through all of them. */
size_t bf16_grain(size_t cols, size_t rows);

/* y[c] = sum_r W[r][c] * x[r]: the transposed product, for absorbing a query.
 *
 *   y  f32 [cols]     w  bf16 [rows][cols], any address     x  f32 [rows]
 *
 * Order    Each y[c] by itself: r ascending, one fma each, from +0. */
bool bf16_gemv_t(const struct kern *kern, float *y, const void *w, size_t rows,
                 size_t cols, const float *x);

/* y[i] = src[i] as float32 (exact). src is n bf16 at any address. */
void bf16_widen(const struct kern *kern, float *y, const void *src, size_t n);

#endif

/* mxfp4.h - products with MXFP4 matrices, straight from the packed form.
 *
 * Two weights a byte: byte j of a row holds column 2j in its low nibble and
 * 2j+1 in its high nibble, as E2M1. One scale byte e for 32 columns of a row,
 * worth 2^(e-127): e = 0 is the subnormal 2^-127, e = 255 is not a number.
 *
 * Threads  Each call works on the calling thread. Split the output rows
 *          [begin, end) over threads: the split does not change a bit.
 * Errors   false if any output is not finite. A scale of 255 always makes the
 *          outputs of its row so; the outputs are written all the same.
 */
#ifndef COMPUTE_MXFP4_H
#define COMPUTE_MXFP4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kern;

enum { MXFP4_BLOCK = 32 };

/* y[r][o] = sum_c W[o][c] * x[r][c] for output rows o in [begin, end).
 *
 *   y      f32 [rows][ldy]               written at columns [begin, end)
 *   w      u8  [end-begin][cols/2]       points at matrix row `begin`
 *   scale  u8  [end-begin][cols/32]      likewise
 *   xp     f32 [rows][pack_cols(cols)]   packed rows, see pack.h
 *
 * Needs    cols % 32 == 0; 1 <= rows <= GEMM_ROWS_MAX (bf16.h); no alignment.
 * Order    A weight is its element times its scale, in float32; that product is
 *          exact unless it overflows. Then as bf16_gemm: lane l takes columns
 *          2l, then 2l+1, of each block, blocks ascending, one fma each, from
 *          +0; the sixteen lanes fold 16 > 8 > 4 > 2 > 1, low + high half.
 * Cost     Reads (end-begin)*cols*17/32 bytes of weights. */
bool mxfp4_gemm(const struct kern *kern, float *y, size_t ldy, const void *w,
                const void *scale, size_t cols, const float *xp, size_t rows,
                size_t begin, size_t end);

/* The value of one element: the low four bits of `code`. */
float mxfp4_element(unsigned code);
/* 2^(e-127), or NaN for 255. */
float mxfp4_scale(uint8_t e);

#endif

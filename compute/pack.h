/* pack.h - the form in which every matrix product takes its rows.
 *
 * The weights of columns 2l and 2l+1 sit together: two bf16 in a 32-bit word,
 * two nibbles in a byte. So that a kernel never has to shuffle, the activations
 * are split the same way once a pass: for each block of 32 columns first the 16
 * even ones, then the 16 odd ones, padded with zeros to whole blocks.
 *
 *     packed[32b + l]      = x[32b + 2l]
 *     packed[32b + 16 + l] = x[32b + 2l + 1]        l = 0 .. 15
 *
 * Threads  Plain functions of their arguments.
 * Cost     One read and one write of the rows.
 */
#ifndef COMPUTE_PACK_H
#define COMPUTE_PACK_H

#include <stddef.h>

enum { PACK_BLOCK = 32 };

/* Floats from one packed row to the next: cols in whole blocks, and some more
 * where rows would otherwise lie a multiple of 4096 bytes apart and crowd into
 * the same few lines of the L1 cache. */
size_t pack_cols(size_t cols);

/* Pack rows x [rows][cols], row stride ldx, to packed [rows][pack_cols(cols)].
 * Whole blocks of each row are written, the rest of the stride is not. The two
 * do not overlap. Products are fastest from 64-byte aligned rows. */
void pack_rows(float *packed, const float *x, size_t rows, size_t cols,
               size_t ldx);

#endif

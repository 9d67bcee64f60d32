/* mla.h - latent attention in its absorbed form, one row at a time.
 *
 *     score[h][p] = (qa[h] . lat[p] + qr[h] . r[p]) * scale
 *     mix[h]      = sum_p softmax_p(score[h])[p] * lat[p]
 *
 * The cache holds one vector (lat, r) a position, shared by all heads. A row at
 * position t passes positions = t + 1.
 *
 * Order    The query of a head is (qa, qr), one vector; a score is its dot
 *          product with the cache row in sixteen lanes: lane l takes columns l,
 *          l+16, l+32, ..., ascending, one fma each, from +0; fold 16 > 8 > 4 >
 *          2 > 1, low half + high half; times scale. Positions go in blocks of
 *          MLA_BLOCK, counted from position 0. For each block: m' = max(m, its
 *          scores), c = exp(m - m'), e[p] = exp(score - m'); the block's sum of
 *          e in sixteen lanes (lane l: positions l, l+16, ... of the block)
 *          folded likewise; sum = sum*c + that, in double; mix = mix*c, then
 *          one fma for each p ascending. At the end mix * (float)(1 / sum).
 *          So the bits of a head do not depend on the heads beside it.
 * Threads  Split the heads into contiguous groups, each with its own scratch.
 * Cost     2*heads*positions*(2*latent+rope) flop; the cache is read once a
 *          call, block by block, and each block is reused from L2 by all heads
 *          of the group: groups of 8 heads and more are bound by the fma units.
 */
#ifndef COMPUTE_MLA_H
#define COMPUTE_MLA_H

#include <stddef.h>

struct kern;

enum { MLA_BLOCK = 64 };

/* Floats of scratch that mla_attend needs. */
size_t mla_scratch(size_t heads, size_t latent, size_t rope);

/*   mix    f32 [heads][latent]     written
 *   qa     f32 [heads][latent]     qr  f32 [heads][rope]
 *   cache  f32 [positions][latent+rope]
 *
 * Needs    positions >= 1, latent >= 1; no alignment. */
void mla_attend(const struct kern *kern, float *mix, const float *qa,
                const float *qr, size_t heads, const float *cache,
                size_t positions, size_t latent, size_t rope, float scale,
                float *scratch);

#endif

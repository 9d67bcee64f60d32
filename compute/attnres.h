/* attnres.h - attention residuals: one mix over the depth of the network.
 *
 *     k_s    = v_s / sqrt(mean(v_s^2) + eps)
 *     h      = sum_s softmax_s( k_s . (norm * proj) ) v_s
 *
 * The keys are normalised, the values are not.
 */
#ifndef COMPUTE_ATTNRES_H
#define COMPUTE_ATTNRES_H

#include <stdbool.h>
#include <stddef.h>

struct kern;

enum { ATTN_SOURCES_MAX = 64 };

/*   h        f32 [width]          written; must not be one of the sources
 *   sources  n pointers to f32 [width]
 *   norm, proj  bf16 [width], any address
 *
 * Needs    1 <= n <= ATTN_SOURCES_MAX.
 * Order    The two sums over a source run in double in the lanes of norm.h
 *          (norm*proj and its product with v are exact). Scores, maximum and
 *          softmax denominator in double, s ascending; each probability rounded
 *          to float32; h[i] by fma from +0, s ascending.
 * Errors   false if any output is not finite. */
bool attn_mix(const struct kern *kern, float *h, const float *const *sources,
              unsigned n, const void *norm_bf16, const void *proj_bf16,
              size_t width, float eps);

#endif

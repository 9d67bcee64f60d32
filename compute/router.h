/* router.h - scores of all experts and the choice of the best k.
 *
 * A flipped choice is a discrete error, so the dot products run in double.
 *
 * Threads  router_scores: split the experts. router_select: one call a row.
 */
#ifndef COMPUTE_ROUTER_H
#define COMPUTE_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kern;

/* s[e] = sigmoid( (float) sum_c W[e][c] * x[c] ) for experts e in [begin, end).
 *
 *   s  f32 [experts]      written at [begin, end)
 *   w  bf16 [end-begin][cols], points at row `begin`; any address
 *   x  f32 [cols]         plain, not packed
 *
 * Order    Double, sixteen lanes: lane l takes columns l, l+16, ..., ascending,
 *          from +0 (each product is exact); fold 16 > 8 > 4 > 2 > 1, low half +
 *          high half; rounded to float32; sigmoid of vmath.h.
 * Errors   false if any of the sums is not finite. */
bool router_scores(const struct kern *kern, float *s, const void *w_bf16,
                   const float *x, size_t cols, size_t begin, size_t end);

/* Choose the k experts with the largest s[e] + bias[e] (float32 sum), equal
 * ones by lowest index; ids in that order, best first. The weights come from
 * the unbiased scores: s, or with `renormalize` s / (sum of the k + 1e-20),
 * computed in double, i ascending; times `scaling`.
 *
 *   ids  u32 [k]    weights  f32 [k]    s  f32 [experts]
 *   bias f32 [experts], any address
 *
 * Needs    1 <= k <= experts. A biased score that is not a number counts as
 *          worst. */
void router_select(uint32_t *ids, float *weights, const float *s,
                   const void *bias_f32, size_t experts, size_t k,
                   bool renormalize, float scaling);

#endif

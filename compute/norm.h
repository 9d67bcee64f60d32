/* norm.h - RMS and L2 norms of one row.
 *
 * Order    The sum of squares runs in double over sixteen lanes: lane l takes
 *          elements l, l+16, l+32, ..., ascending, from +0 (each square is
 *          exact); the lanes fold 16 > 8 > 4 > 2 > 1, low half + high half. The
 *          reciprocal root is taken in double and rounded to float32 once. All
 *          that follows is float32, one rounding an operation, left to right.
 * Threads  Plain functions of their arguments.
 * Errors   The RMS norms return false if any output is not finite.
 */
#ifndef COMPUTE_NORM_H
#define COMPUTE_NORM_H

#include <stdbool.h>
#include <stddef.h>

struct kern;

/* y[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * gain[i]. y may be x.
 *
 *   y, x  f32 [n]      gain  bf16 [n], any address */
bool rms_norm(const struct kern *kern, float *y, const float *x,
              const void *gain_bf16, size_t n, float eps);

/* The same with a float32 gain at any address. */
bool rms_norm_f32(const struct kern *kern, float *y, const float *x,
                  const void *gain_f32, size_t n, float eps);

/* x[i] = x[i] * (scale / sqrt(sum(x^2) + eps)), in place: the sum, not the
 * mean. */
void l2_norm(const struct kern *kern, float *x, size_t n, float eps,
             float scale);

#endif

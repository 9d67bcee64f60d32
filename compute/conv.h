/* conv.h - the short causal convolution of a KDA layer, with its SiLU.
 *
 *     y[c] = silu( sum_j taps[c][j] * in[j][c] )      j = 0 .. kernel-1
 *
 * in[kernel-1] is the current input, in[0] the oldest; the caller keeps the
 * history and passes zeros before the first position. They are raw projection
 * outputs, from before any convolution.
 *
 * Order    j ascending, one fma each, from +0; silu(a) = a * sigmoid(a).
 * Threads  Split channels [begin, end) as you like; the bits stay.
 */
#ifndef COMPUTE_CONV_H
#define COMPUTE_CONV_H

#include <stddef.h>

struct kern;

enum { CONV_KERNEL_MAX = 16 };

/*   y     f32 [channels]             written at [begin, end); may be in[any]
 *   in    kernel pointers to f32 [channels]
 *   taps  f32 [channels][kernel]     any address
 *
 * Needs    1 <= kernel <= CONV_KERNEL_MAX. */
void conv_silu(const struct kern *kern, float *y, const float *const *in,
               const void *taps_f32, size_t begin, size_t end, unsigned kernel);

#endif

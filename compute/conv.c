#include "compute/conv.h"

#include <assert.h>

#include "compute/kern.h"

void conv_silu(const struct kern *kern, float *y, const float *const *in,
               const void *taps_f32, size_t begin, size_t end, unsigned kernel)
{
    assert(kernel >= 1 && kernel <= CONV_KERNEL_MAX);
    assert(begin <= end);
    kern->conv_silu(y, in, taps_f32, begin, end, kernel);
}

#include "compute/norm.h"

#include <assert.h>
#include <math.h>

#include "compute/kern.h"

static float rms_root(const struct kern *kern, const float *x, size_t n,
                      float eps)
{
    double mean = kern->sum_squares(x, n) / (double)n;
    return (float)(1.0 / sqrt(mean + (double)eps));
}

bool rms_norm(const struct kern *kern, float *y, const float *x,
              const void *gain_bf16, size_t n, float eps)
{
    assert(n >= 1);
    return kern->gain_bf16(y, x, gain_bf16, n, rms_root(kern, x, n, eps));
}

bool rms_norm_f32(const struct kern *kern, float *y, const float *x,
                  const void *gain_f32, size_t n, float eps)
{
    assert(n >= 1);
    return kern->gain_f32(y, x, gain_f32, n, rms_root(kern, x, n, eps));
}

void l2_norm(const struct kern *kern, float *x, size_t n, float eps,
             float scale)
{
    double sum = kern->sum_squares(x, n);
    kern->scale(x, n, (float)((double)scale / sqrt(sum + (double)eps)));
}

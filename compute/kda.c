#include "compute/kda.h"

#include <assert.h>

#include "compute/kern.h"
#include "compute/vmath.h"

void kda_decay(const struct kern *kern, float *alpha, const float *z,
               const void *dt_bias_f32, float a_log, float lower_bound,
               size_t n)
{
    kern->kda_decay(alpha, z, dt_bias_f32, vmath_exp1(a_log), lower_bound, n);
}

void kda_step(const struct kern *kern, float *o, float *state, const float *q,
              const float *k, const float *v, const float *alpha, float beta,
              size_t dk, size_t dv)
{
    assert(dk >= 1 && dv >= 1);
    kern->kda_step(o, state, q, k, v, alpha, beta, dk, dv);
}

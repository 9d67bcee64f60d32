#include "compute/vmath.h"

#include "compute/kern.h"

void vmath_exp(const struct kern *kern, float *y, const float *x, size_t n)
{
    kern->exp(y, x, n);
}

void vmath_tanh(const struct kern *kern, float *y, const float *x, size_t n)
{
    kern->tanh(y, x, n);
}

void vmath_sigmoid(const struct kern *kern, float *y, const float *x, size_t n)
{
    kern->sigmoid(y, x, n);
}

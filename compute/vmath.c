#include "compute/vmath.h"

#include "compute/kern.h"

void vmath_exp(float *y, const float *x, size_t n)
{
    kern.exp(y, x, n);
}

void vmath_tanh(float *y, const float *x, size_t n)
{
    kern.tanh(y, x, n);
}

void vmath_sigma(float *y, const float *x, size_t n)
{
    kern.sigma(y, x, n);
}

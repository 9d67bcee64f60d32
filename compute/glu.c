#include "compute/glu.h"

#include "compute/kern.h"

void situ(const struct kern *kern, float *out, const float *g, const float *u,
          size_t n, float b1, float b2)
{
    kern->situ(out, g, u, n, b1, b2);
}

void sigmoid_gate(const struct kern *kern, float *y, const float *x,
                  const float *gate, size_t n)
{
    kern->sigmoid_gate(y, x, gate, n);
}

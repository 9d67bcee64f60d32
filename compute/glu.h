/* glu.h - the gates between two products.
 *
 * Order    float32, one rounding an operation, in the order written; sigmoid
 *          and tanh are those of vmath.h.
 * Threads  Plain functions of their arguments. An output may be an input.
 */
#ifndef COMPUTE_GLU_H
#define COMPUTE_GLU_H

#include <stddef.h>

struct kern;

/* out[i] = ((b1 * tanh(g[i] / b1)) * sigmoid(g[i])) * (b2 * tanh(u[i] / b2)).
 * The sigmoid takes the uncapped gate. */
void situ(const struct kern *kern, float *out, const float *g, const float *u,
          size_t n, float b1, float b2);

/* y[i] = x[i] * sigmoid(gate[i]). */
void sigmoid_gate(const struct kern *kern, float *y, const float *x,
                  const float *gate, size_t n);

#endif

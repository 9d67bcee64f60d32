/* kda.h - Kimi Delta Attention: decay and recurrence of one head.
 *
 * State is S [dk][dv], float32, zero before the first position: 64 KB for a
 * head of K3. A caller that has several rows of one sequence takes one head and
 * loops over its rows, so that the state stays in L2.
 *
 * Threads  Split by head and by sequence.
 */
#ifndef COMPUTE_KDA_H
#define COMPUTE_KDA_H

#include <stddef.h>

struct kern;

/* alpha[i] = exp(lower_bound * sigmoid(exp(a_log) * (z[i] + dt_bias[i]))), in
 * that order, float32, exp and sigmoid of vmath.h. For one head: a_log is its
 * own, z and dt_bias are its n key channels.
 *
 *   alpha, z  f32 [n], may be the same      dt_bias  f32 [n], any address */
void kda_decay(const struct kern *kern, float *alpha, const float *z,
               const void *dt_bias_f32, float a_log, float lower_bound,
               size_t n);

/* One position of one head: decay, read, write, read.
 *
 *     t[i][j] = alpha[i] * S[i][j]
 *     u[j]    = sum_i k[i] * t[i][j]
 *     d[j]    = beta * (v[j] - u[j])
 *     S[i][j] = t[i][j] + k[i] * d[j]          one fma
 *     o[j]    = sum_i q[i] * S[i][j]           the updated state
 *
 *   o, v  f32 [dv], may be the same     state  f32 [dk][dv], updated
 *   q, k, alpha  f32 [dk]; q scaled already
 *
 * Order    float32; both sums i ascending, one fma each, from +0.
 * Cost     Reads and writes the state once. */
void kda_step(const struct kern *kern, float *o, float *state, const float *q,
              const float *k, const float *v, const float *alpha, float beta,
              size_t dk, size_t dv);

#endif

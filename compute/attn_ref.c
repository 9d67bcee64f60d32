/* attn_ref.c - delta attention and latent attention as kda.h and mla.h state
 * them, in plain C. */
#include <math.h>
#include <string.h>

#include "compute/kern.h"
#include "compute/mla.h"
#include "compute/vmath.h"

enum { LANES = 16 };

static float fold(float *lane)
{
    for (unsigned n = LANES / 2; n > 0; n /= 2)
        for (unsigned l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

static void kda_decay_ref(float *alpha, const float *z, const void *dt_bias,
                          float rate, float lower_bound, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float bias;
        memcpy(&bias, (const char *)dt_bias + i * sizeof bias, sizeof bias);
        float gate = vmath_sigmoid1(rate * (z[i] + bias));
        alpha[i] = vmath_exp1(lower_bound * gate);
    }
}

static void kda_step_ref(float *o, float *state, const float *q, const float *k,
                         const float *v, const float *alpha, float beta,
                         size_t dk, size_t dv)
{
    for (size_t j = 0; j < dv; j++) {
        float u = 0.0f, out = 0.0f;
        for (size_t i = 0; i < dk; i++)
            u = fmaf(k[i], alpha[i] * state[i * dv + j], u);
        float d = beta * (v[j] - u);
        for (size_t i = 0; i < dk; i++) {
            float s = fmaf(k[i], d, alpha[i] * state[i * dv + j]);
            state[i * dv + j] = s;
            out = fmaf(q[i], s, out);
        }
        o[j] = out;
    }
}

static float mla_score(const float *qa, const float *qr, const float *row,
                       size_t latent, size_t rope)
{
    float lane[LANES] = { 0 };
    for (size_t c = 0; c < latent + rope; c++) {
        float q = c < latent ? qa[c] : qr[c - latent];
        lane[c % LANES] = fmaf(q, row[c], lane[c % LANES]);
    }
    return fold(lane);
}

static void mla_head(float *mix, const float *qa, const float *qr,
                     const float *cache, size_t positions, size_t latent,
                     size_t rope, float scale)
{
    const size_t width = latent + rope;
    float max = -INFINITY;
    double sum = 0.0;
    memset(mix, 0, latent * sizeof *mix);
    for (size_t base = 0; base < positions; base += MLA_BLOCK) {
        const float *rows = cache + base * width;
        size_t n = positions - base < MLA_BLOCK ? positions - base : MLA_BLOCK;
        float e[MLA_BLOCK], lane[LANES] = { 0 }, before = max;
        for (size_t p = 0; p < n; p++) {
            e[p] = mla_score(qa, qr, rows + p * width, latent, rope) * scale;
            max = e[p] > max ? e[p] : max;
        }
        for (size_t p = 0; p < n; p++) {
            e[p] = vmath_exp1(e[p] - max);
            lane[p % LANES] += e[p];
        }
        float c = vmath_exp1(before - max);
        sum = sum * (double)c + (double)fold(lane);
        for (size_t i = 0; i < latent; i++) {
            mix[i] *= c;
            for (size_t p = 0; p < n; p++)
                mix[i] = fmaf(e[p], rows[p * width + i], mix[i]);
        }
    }
    for (size_t i = 0; i < latent; i++)
        mix[i] *= (float)(1.0 / sum);
}

static void mla_attend_ref(float *mix, const float *qa, const float *qr,
                           size_t heads, const float *cache, size_t positions,
                           size_t latent, size_t rope, float scale,
                           float *scratch)
{
    (void)scratch;
    for (size_t h = 0; h < heads; h++)
        mla_head(mix + h * latent, qa + h * latent, qr + h * rope, cache,
                 positions, latent, rope, scale);
}

void attn_fill_ref(struct kern *k)
{
    k->kda_decay = kda_decay_ref;
    k->kda_step = kda_step_ref;
    k->mla_attend = mla_attend_ref;
}

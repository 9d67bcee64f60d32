/* attn.h - delta attention and latent attention in sixteen lanes.
 *
 * Included by attn_avx2.c and attn_avx512.c after their lanes_*.h, which set
 * MLA_HEADS and MLA_VECTORS: how many heads share a load of the cache, and the
 * other side of the register tile. attn_ref.c says the same in plain C.
 */
#include <math.h>
#include <string.h>

#include "compute/body/vmath.h"
#include "compute/kern.h"
#include "compute/mla.h"

enum { KDA_VECTORS = 4 }; /* 128 rows of four vectors: 32 KB, stays in L1 */

/* `count` vectors of columns, the last with m lanes. The decayed state is
 * computed again in the second loop rather than stored by the first: the
 * product is the same and the store was the dearer. */
LANE_FN void kda_columns(float *o, float *state, const float *q, const float *k,
                         const float *v, const float *alpha, float beta,
                         size_t dk, size_t dv, size_t count, size_t m)
{
    vf sum[KDA_VECTORS];
#define LAST(c) (c + 1 < count ? (size_t)LANES : m)
    UNROLL for (size_t c = 0; c < count; c++)
        sum[c] = vf_set(0.0f);
    for (size_t i = 0; i < dk; i++) {
        vf decay = vf_set(alpha[i]), key = vf_set(k[i]);
        UNROLL for (size_t c = 0; c < count; c++) {
            vf s = vf_load_n(state + i * dv + c * LANES, LAST(c));
            sum[c] = vf_fma(key, vf_mul(decay, s), sum[c]);
        }
    }
    vf delta[KDA_VECTORS];
    UNROLL for (size_t c = 0; c < count; c++) {
        vf value = vf_load_n(v + c * LANES, LAST(c));
        delta[c] = vf_mul(vf_set(beta), vf_sub(value, sum[c]));
        sum[c] = vf_set(0.0f);
    }
    for (size_t i = 0; i < dk; i++) {
        vf decay = vf_set(alpha[i]), key = vf_set(k[i]), query = vf_set(q[i]);
        UNROLL for (size_t c = 0; c < count; c++) {
            float *at = state + i * dv + c * LANES;
            vf s = vf_mul(decay, vf_load_n(at, LAST(c)));
            s = vf_fma(key, delta[c], s);
            vf_store_n(at, s, LAST(c));
            sum[c] = vf_fma(query, s, sum[c]);
        }
    }
    UNROLL for (size_t c = 0; c < count; c++)
        vf_store_n(o + c * LANES, sum[c], LAST(c));
#undef LAST
}

static void kda_step(float *o, float *state, const float *q, const float *k,
                     const float *v, const float *alpha, float beta, size_t dk,
                     size_t dv)
{
    const size_t wide = KDA_VECTORS * LANES;
    size_t j = 0;
    for (; j + wide <= dv; j += wide)
        kda_columns(o + j, state + j, q, k, v + j, alpha, beta, dk, dv,
                    KDA_VECTORS, LANES);
    for (; j < dv; j += LANES)
        kda_columns(o + j, state + j, q, k, v + j, alpha, beta, dk, dv, 1,
                    dv - j < LANES ? dv - j : LANES);
}

/* One call's view: the cache block at hand and what each head carries. */
struct mla {
    const float *block; /* positions of it, [n][width] */
    size_t n;
    size_t width, latent, padded, heads;
    float scale;
    float *q;    /* [heads][padded], (qa, qr, zeros) */
    float *e;    /* [heads][MLA_BLOCK], scores, then their exponentials */
    float *max;  /* [heads] */
    float *rescale; /* [heads]: of the sums so far, under the new maximum */
    double *sum; /* [heads] */
    float *mix;  /* [heads][latent] */
};

/* Scores of positions [p, p+4) or of one, for `heads` heads from h. */
LANE_FN void mla_scores(const struct mla *a, size_t h, size_t heads, size_t p,
                        size_t positions)
{
    vf sum[4][MLA_HEADS];
    const float *rows = a->block + p * a->width, *q = a->q + h * a->padded;
    UNROLL for (size_t i = 0; i < positions; i++)
        UNROLL for (size_t j = 0; j < heads; j++)
            sum[i][j] = vf_set(0.0f);
    for (size_t c = 0; c < a->width; c += LANES) {
        size_t m = a->width - c < LANES ? a->width - c : LANES;
        vf row[4];
        UNROLL for (size_t i = 0; i < positions; i++)
            row[i] = vf_load_n(rows + i * a->width + c, m);
        UNROLL for (size_t j = 0; j < heads; j++) {
            vf x = vf_load(q + j * a->padded + c);
            UNROLL for (size_t i = 0; i < positions; i++)
                sum[i][j] = vf_fma(x, row[i], sum[i][j]);
        }
    }
    UNROLL for (size_t j = 0; j < heads; j++) {
        float *to = a->e + (h + j) * MLA_BLOCK + p;
        if (positions == 4) {
            vf_fold4(to, sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
        } else {
            UNROLL for (size_t i = 0; i < positions; i++)
                to[i] = vf_fold(sum[i][j]);
        }
    }
}

/* Scores become exponentials; positions past the end count as nothing. */
static void mla_softmax(const struct mla *a, size_t h)
{
    float *e = a->e + h * MLA_BLOCK, before = a->max[h];
    for (size_t p = a->n; p < MLA_BLOCK; p++)
        e[p] = -INFINITY;
    vf max = vf_set(before), sum = vf_set(0.0f);
    for (size_t p = 0; p < MLA_BLOCK; p += LANES) {
        vf s = vf_load(e + p);
        if (p < a->n) {
            s = vf_mul(s, vf_set(a->scale));
            vf_store(e + p, s);
        }
        max = vf_max(s, max);
    }
    a->max[h] = vf_hmax(max);
    max = vf_set(a->max[h]);
    for (size_t p = 0; p < MLA_BLOCK; p += LANES) {
        vf s = vf_exp(vf_sub(vf_load(e + p), max));
        vf_store(e + p, s);
        sum = vf_add(sum, s);
    }
    a->rescale[h] = vmath_exp1(before - a->max[h]);
    a->sum[h] = a->sum[h] * (double)a->rescale[h] + (double)vf_fold(sum);
}

/* mix = mix * rescale + e . rows for `heads` heads and `count` vectors at c. */
LANE_FN void mla_mix(const struct mla *a, size_t h, size_t heads, size_t c,
                     size_t count, size_t m)
{
    vf sum[MLA_HEADS][MLA_VECTORS];
    float *mix = a->mix + h * a->latent + c;
    const float *e = a->e + h * MLA_BLOCK, *rows = a->block + c;
    UNROLL for (size_t j = 0; j < heads; j++)
        UNROLL for (size_t i = 0; i < count; i++)
            sum[j][i] = vf_mul(vf_load_n(mix + j * a->latent + i * LANES, m),
                               vf_set(a->rescale[h + j]));
    for (size_t p = 0; p < a->n; p++) {
        vf row[MLA_VECTORS];
        UNROLL for (size_t i = 0; i < count; i++)
            row[i] = vf_load_n(rows + p * a->width + i * LANES, m);
        UNROLL for (size_t j = 0; j < heads; j++) {
            vf x = vf_set(e[j * MLA_BLOCK + p]);
            UNROLL for (size_t i = 0; i < count; i++)
                sum[j][i] = vf_fma(x, row[i], sum[j][i]);
        }
    }
    UNROLL for (size_t j = 0; j < heads; j++)
        UNROLL for (size_t i = 0; i < count; i++)
            vf_store_n(mix + j * a->latent + i * LANES, sum[j][i], m);
}

static void mla_block(const struct mla *a)
{
    size_t p = 0, h;
    for (; p < a->n; p += p + 4 <= a->n ? 4 : 1) {
        bool four = p + 4 <= a->n;
        for (h = 0; h + MLA_HEADS <= a->heads; h += MLA_HEADS) {
            if (four)
                mla_scores(a, h, MLA_HEADS, p, 4);
            else
                mla_scores(a, h, MLA_HEADS, p, 1);
        }
        for (; h < a->heads; h++) {
            if (four)
                mla_scores(a, h, 1, p, 4);
            else
                mla_scores(a, h, 1, p, 1);
        }
    }
    for (h = 0; h < a->heads; h++)
        mla_softmax(a, h);
    const size_t wide = MLA_VECTORS * LANES;
    size_t c = 0;
    for (; c + wide <= a->latent; c += wide) {
        for (h = 0; h + MLA_HEADS <= a->heads; h += MLA_HEADS)
            mla_mix(a, h, MLA_HEADS, c, MLA_VECTORS, LANES);
        for (; h < a->heads; h++)
            mla_mix(a, h, 1, c, MLA_VECTORS, LANES);
    }
    for (; c < a->latent; c += LANES)
        for (h = 0; h < a->heads; h++)
            mla_mix(a, h, 1, c, 1,
                    a->latent - c < LANES ? a->latent - c : LANES);
}

static void attend(float *mix, const float *qa, const float *qr,
                       size_t heads, const float *cache, size_t positions,
                       size_t latent, size_t rope, float scale, float *scratch)
{
    const size_t width = latent + rope;
    const size_t padded = (width + LANES - 1) / LANES * LANES;
    float *at = scratch + (-(uintptr_t)scratch / sizeof *scratch) % LANES;
    struct mla a = { .width = width, .latent = latent, .padded = padded,
                     .heads = heads, .scale = scale, .mix = mix };
    a.q = at;
    a.e = a.q + heads * padded;
    a.sum = (double *)(a.e + heads * MLA_BLOCK);
    a.max = (float *)(a.sum + heads);
    a.rescale = a.max + heads;
    memset(a.q, 0, heads * padded * sizeof *a.q);
    memset(mix, 0, heads * latent * sizeof *mix);
    for (size_t h = 0; h < heads; h++) {
        memcpy(a.q + h * padded, qa + h * latent, latent * sizeof *qa);
        memcpy(a.q + h * padded + latent, qr + h * rope, rope * sizeof *qr);
        a.max[h] = -INFINITY;
        a.sum[h] = 0.0;
    }
    for (size_t base = 0; base < positions; base += MLA_BLOCK) {
        a.block = cache + base * width;
        a.n = positions - base < MLA_BLOCK ? positions - base : MLA_BLOCK;
        mla_block(&a);
    }
    for (size_t h = 0; h < heads; h++) {
        const vf by = vf_set((float)(1.0 / a.sum[h]));
        for (size_t i = 0; i < latent; i += LANES) {
            float *to = mix + h * latent + i;
            size_t m = latent - i < LANES ? latent - i : LANES;
            vf_store_n(to, vf_mul(vf_load_n(to, m), by), m);
        }
    }
}

static void attn_fill(struct kern *k)
{
    k->kda_step = kda_step;
    k->mla_attend = attend;
}

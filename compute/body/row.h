/* row.h - norms, gates, convolution and router in sixteen lanes.
 *
 * Included by row_avx2.c and row_avx512.c after their lanes_*.h and
 * ROUTER_ROWS, the experts whose sums fit in registers; the reference in
 * row_ref.c says the same in plain C. A partial last vector is padded with
 * zeros, which leave every sum as it is: all lanes of a sum start at +0, and a
 * sum of squares or of exact products that is zero so far is +0.
 */
#include "compute/body/vmath.h"
#include "compute/kern.h"

/* i walks [0, n) in steps of sixteen; m is how many are left, at most 16. */
#define EACH(i, m, n)                                                        \
    for (size_t i = 0, m;                                                    \
         i < (n) && (m = (n) - i < LANES ? (n) - i : LANES, true); i += LANES)

/* Sum of zeros if every lane added is finite, else NaN. */
LANE_FN vf taint(vf sum, vf a)
{
    return vf_fma(a, vf_set(0.0f), sum);
}

static double sum_squares(const float *x, size_t n)
{
    vd sum = vd_set(0.0);
    EACH(i, m, n) {
        vd a = vd_widen(vf_load_n(x + i, m));
        sum = vd_fma(a, a, sum);
    }
    return vd_fold(sum);
}

static bool gain_bf16(float *y, const float *x, const void *gain, size_t n,
                      float root)
{
    vf bad = vf_set(0.0f);
    EACH(i, m, n) {
        vf a = vf_mul(vf_load_n(x + i, m), vf_set(root));
        a = vf_mul(a, vf_bf16_n((const char *)gain + 2 * i, m));
        vf_store_n(y + i, a, m);
        bad = taint(bad, a);
    }
    return vf_fold(bad) == 0.0f;
}

static bool gain_f32(float *y, const float *x, const void *gain, size_t n,
                     float root)
{
    vf bad = vf_set(0.0f);
    EACH(i, m, n) {
        vf a = vf_mul(vf_load_n(x + i, m), vf_set(root));
        a = vf_mul(a, vf_load_n((const char *)gain + 4 * i, m));
        vf_store_n(y + i, a, m);
        bad = taint(bad, a);
    }
    return vf_fold(bad) == 0.0f;
}

static void scale(float *x, size_t n, float by)
{
    EACH(i, m, n)
        vf_store_n(x + i, vf_mul(vf_load_n(x + i, m), vf_set(by)), m);
}

static double attn_dot(const float *v, const void *norm, const void *proj,
                       size_t n)
{
    vd sum = vd_set(0.0);
    EACH(i, m, n) {
        vf folded = vf_mul(vf_bf16_n((const char *)norm + 2 * i, m),
                           vf_bf16_n((const char *)proj + 2 * i, m));
        sum = vd_fma(vd_widen(vf_load_n(v + i, m)), vd_widen(folded), sum);
    }
    return vd_fold(sum);
}

static bool attn_sum(float *h, const float *const *sources, const float *prob,
                     unsigned count, size_t n)
{
    vf bad = vf_set(0.0f);
    EACH(i, m, n) {
        vf sum = vf_set(0.0f);
        for (unsigned s = 0; s < count; s++)
            sum = vf_fma(vf_set(prob[s]), vf_load_n(sources[s] + i, m), sum);
        vf_store_n(h + i, sum, m);
        bad = taint(bad, sum);
    }
    return vf_fold(bad) == 0.0f;
}

static void each_exp(float *y, const float *x, size_t n)
{
    EACH(i, m, n)
        vf_store_n(y + i, vf_exp(vf_load_n(x + i, m)), m);
}

static void each_tanh(float *y, const float *x, size_t n)
{
    EACH(i, m, n)
        vf_store_n(y + i, vf_tanh(vf_load_n(x + i, m)), m);
}

static void each_sigmoid(float *y, const float *x, size_t n)
{
    EACH(i, m, n)
        vf_store_n(y + i, vf_sigmoid(vf_load_n(x + i, m)), m);
}

static void each_situ(float *out, const float *g, const float *u, size_t n,
                      float b1, float b2)
{
    const vf c1 = vf_set(b1), c2 = vf_set(b2);
    EACH(i, m, n) {
        vf a = vf_load_n(g + i, m), b = vf_load_n(u + i, m);
        vf gate = vf_mul(vf_mul(c1, vf_tanh(vf_div(a, c1))), vf_sigmoid(a));
        vf up = vf_mul(c2, vf_tanh(vf_div(b, c2)));
        vf_store_n(out + i, vf_mul(gate, up), m);
    }
}

static void each_gate(float *y, const float *x, const float *gate, size_t n)
{
    EACH(i, m, n) {
        vf s = vf_sigmoid(vf_load_n(gate + i, m));
        vf_store_n(y + i, vf_mul(vf_load_n(x + i, m), s), m);
    }
}

/* taps lie [channel][tap]; a small transpose puts one tap of sixteen channels
 * into each vector. */
static void conv_silu(float *y, const float *const *in, const void *taps,
                      size_t begin, size_t end, unsigned kernel)
{
    const char *from = (const char *)taps + begin * kernel * sizeof(float);
    EACH(i, m, end - begin) {
        float room[16][LANES] = { 0 }; /* CONV_KERNEL_MAX taps */
        for (size_t l = 0; l < m; l++)
            for (unsigned j = 0; j < kernel; j++)
                memcpy(&room[j][l], from + ((i + l) * kernel + j) * 4, 4);
        vf a = vf_set(0.0f);
        for (unsigned j = 0; j < kernel; j++)
            a = vf_fma(vf_load(room[j]), vf_load_n(in[j] + begin + i, m), a);
        vf_store_n(y + begin + i, vf_mul(a, vf_sigmoid(a)), m);
    }
}

static void kda_decay(float *alpha, const float *z, const void *dt_bias,
                      float rate, float lower_bound, size_t n)
{
    EACH(i, m, n) {
        vf a = vf_add(vf_load_n(z + i, m),
                      vf_load_n((const char *)dt_bias + 4 * i, m));
        vf gate = vf_sigmoid(vf_mul(vf_set(rate), a));
        a = vf_exp(vf_mul(vf_set(lower_bound), gate));
        vf_store_n(alpha + i, a, m);
    }
}

/* `count` experts share the widening of x. Their rows lie one after the other;
 * ask for the bytes 12 KB ahead. */
LANE_FN bool router_rows(float *s, const char *w, const float *x, size_t cols,
                         size_t count)
{
    vd sum[ROUTER_ROWS];
    UNROLL for (size_t e = 0; e < count; e++)
        sum[e] = vd_set(0.0);
    EACH(i, m, cols) {
        vd a = vd_widen(vf_load_n(x + i, m));
        UNROLL for (size_t k = 0; k < count; k += 2)
            __builtin_prefetch(w + 12288 + 2 * count * i + 32 * k, 0, 2);
        UNROLL for (size_t e = 0; e < count; e++) {
            vf b = vf_bf16_n(w + (e * cols + i) * 2, m);
            sum[e] = vd_fma(vd_widen(b), a, sum[e]);
        }
    }
    bool finite = true;
    UNROLL for (size_t e = 0; e < count; e++) {
        double total = vd_fold(sum[e]);
        s[e] = vmath_sigmoid1((float)total);
        finite &= total - total == 0.0;
    }
    return finite;
}

static bool router_scores(float *s, const void *w, const float *x, size_t cols,
                          size_t begin, size_t end)
{
    const char *at = w;
    bool finite = true;
    size_t e = begin;
    for (; e + ROUTER_ROWS <= end; e += ROUTER_ROWS) {
        finite &= router_rows(s + e, at, x, cols, ROUTER_ROWS);
        at += ROUTER_ROWS * cols * 2;
    }
    for (; e < end; e++) {
        finite &= router_rows(s + e, at, x, cols, 1);
        at += cols * 2;
    }
    return finite;
}

static void row_fill(struct kern *k)
{
    k->sum_squares = sum_squares;
    k->gain_bf16 = gain_bf16;
    k->gain_f32 = gain_f32;
    k->scale = scale;
    k->attn_dot = attn_dot;
    k->attn_sum = attn_sum;
    k->exp = each_exp;
    k->tanh = each_tanh;
    k->sigmoid = each_sigmoid;
    k->situ = each_situ;
    k->sigmoid_gate = each_gate;
    k->conv_silu = conv_silu;
    k->kda_decay = kda_decay;
    k->router_scores = router_scores;
}

/* row_ref.c - norms, gates, convolution, router: as their headers state them,
 * in plain C. */
#include <math.h>
#include <string.h>

#include "compute/kern.h"
#include "compute/vmath.h"

enum { LANES = 16 };

static float f32_at(const void *src, size_t i)
{
    float value;
    memcpy(&value, (const char *)src + i * sizeof value, sizeof value);
    return value;
}

static float bf16_at(const void *src, size_t i)
{
    uint16_t half;
    memcpy(&half, (const char *)src + i * sizeof half, sizeof half);
    return vmath_float((uint32_t)half << 16);
}

static double fold(double *lane)
{
    for (unsigned n = LANES / 2; n > 0; n /= 2)
        for (unsigned l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

static double sum_squares_ref(const float *x, size_t n)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < n; i++)
        lane[i % LANES] += (double)x[i] * (double)x[i];
    return fold(lane);
}

static bool gain_bf16_ref(float *y, const float *x, const void *gain, size_t n,
                          float root)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * root * bf16_at(gain, i);
        finite &= isfinite(y[i]) != 0;
    }
    return finite;
}

static bool gain_f32_ref(float *y, const float *x, const void *gain, size_t n,
                         float root)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * root * f32_at(gain, i);
        finite &= isfinite(y[i]) != 0;
    }
    return finite;
}

static void scale_ref(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

static double attn_dot_ref(const float *v, const void *norm, const void *proj,
                           size_t n)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < n; i++) {
        float folded = bf16_at(norm, i) * bf16_at(proj, i);
        lane[i % LANES] += (double)v[i] * (double)folded;
    }
    return fold(lane);
}

static bool attn_sum_ref(float *h, const float *const *sources,
                         const float *prob, unsigned count, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (unsigned s = 0; s < count; s++)
            sum = fmaf(prob[s], sources[s][i], sum);
        h[i] = sum;
        finite &= isfinite(sum) != 0;
    }
    return finite;
}

static void exp_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = vmath_exp1(x[i]);
}

static void tanh_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = vmath_tanh1(x[i]);
}

static void sigmoid_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = vmath_sigmoid1(x[i]);
}

static void situ_ref(float *out, const float *g, const float *u, size_t n,
                     float b1, float b2)
{
    for (size_t i = 0; i < n; i++) {
        float gate = b1 * vmath_tanh1(g[i] / b1) * vmath_sigmoid1(g[i]);
        out[i] = gate * (b2 * vmath_tanh1(u[i] / b2));
    }
}

static void sigmoid_gate_ref(float *y, const float *x, const float *gate,
                             size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * vmath_sigmoid1(gate[i]);
}

static void conv_silu_ref(float *y, const float *const *in, const void *taps,
                          size_t begin, size_t end, unsigned kernel)
{
    for (size_t c = begin; c < end; c++) {
        float a = 0.0f;
        for (unsigned j = 0; j < kernel; j++)
            a = fmaf(f32_at(taps, c * kernel + j), in[j][c], a);
        y[c] = a * vmath_sigmoid1(a);
    }
}

static bool router_scores_ref(float *s, const void *w, const float *x,
                              size_t cols, size_t begin, size_t end)
{
    bool finite = true;
    for (size_t e = begin; e < end; e++) {
        double lane[LANES] = { 0 };
        for (size_t c = 0; c < cols; c++)
            lane[c % LANES] += (double)bf16_at(w, (e - begin) * cols + c) *
                               (double)x[c];
        double sum = fold(lane);
        s[e] = vmath_sigmoid1((float)sum);
        finite &= isfinite(sum) != 0;
    }
    return finite;
}

void row_fill_ref(struct kern *k)
{
    k->sum_squares = sum_squares_ref;
    k->gain_bf16 = gain_bf16_ref;
    k->gain_f32 = gain_f32_ref;
    k->scale = scale_ref;
    k->attn_dot = attn_dot_ref;
    k->attn_sum = attn_sum_ref;
    k->exp = exp_ref;
    k->tanh = tanh_ref;
    k->sigmoid = sigmoid_ref;
    k->situ = situ_ref;
    k->sigmoid_gate = sigmoid_gate_ref;
    k->conv_silu = conv_silu_ref;
    k->router_scores = router_scores_ref;
}

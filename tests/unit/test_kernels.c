/* Goal    the kernels compute what their headers say.
 * Method  cases small enough to do by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/bf16.h"
#include "compute/conv.h"
#include "compute/glu.h"
#include "compute/kda.h"
#include "compute/kern.h"
#include "compute/mla.h"
#include "compute/mxfp4.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/router.h"
#include "compute/vmath.h"
#include "tests/skip.h"

static struct kern kern; /* the reference */

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * (1.0 + fabs(want))))
        fail_msg("%.9g, expected %.9g", got, want);
}

static uint16_t bf16(float x)
{
    return (uint16_t)(vmath_bits(x) >> 16); /* exact for the values used here */
}

static void pack_by_hand(void **state)
{
    float x[2][33], packed[2][64];
    (void)state;
    for (int i = 0; i < 33; i++) {
        x[0][i] = (float)i;
        x[1][i] = (float)(100 + i);
    }
    assert_int_equal(pack_cols(1), 32);
    assert_int_equal(pack_cols(32), 32);
    assert_int_equal(pack_cols(33), 64);
    assert_true(pack_cols(7168) > 7168 && pack_cols(7168) % 32 == 0);
    assert_int_equal(pack_cols(3584), 3584);
    memset(packed, 0xff, sizeof packed);
    pack_rows(packed[0], x[0], 2, 33, 33);
    assert_true(packed[0][1] == 2.0f && packed[0][16] == 1.0f);
    assert_true(packed[1][15] == 130.0f && packed[1][31] == 131.0f);
    assert_true(packed[1][32] == 132.0f && packed[1][33] == 0.0f);
    assert_true(packed[1][48] == 0.0f && packed[1][63] == 0.0f);
}

static void mxfp4_nibbles(void **state)
{
    /* 0x72 in byte 0: column 0 is 1.0, column 1 is 6.0, times the scale. */
    uint8_t w[16] = { 0x72 }, scale[1] = { 129 };
    float x[32] = { 0 }, xp[32], y;
    (void)state;
    x[0] = 1.0f;
    pack_rows(xp, x, 1, 32, 32);
    assert_true(mxfp4_gemm(&kern, &y, 1, w, scale, 32, xp, 1, 0, 1));
    assert_true(y == 4.0f);
    x[0] = 0.0f;
    x[1] = 1.0f;
    pack_rows(xp, x, 1, 32, 32);
    assert_true(mxfp4_gemm(&kern, &y, 1, w, scale, 32, xp, 1, 0, 1));
    assert_true(y == 24.0f);
}

static void bf16_by_hand(void **state)
{
    uint16_t w[2][3] = { { bf16(1.0f), bf16(2.0f), bf16(-3.0f) },
                         { bf16(0.5f), bf16(0.0f), bf16(4.0f) } };
    float x[3] = { 10.0f, 100.0f, 1000.0f }, xp[32], y[5] = { 0 };
    (void)state;
    pack_rows(xp, x, 1, 3, 3);
    assert_true(bf16_gemm(&kern, y, 5, w, 3, xp, 1, 2, 4));
    assert_true(y[1] == 0.0f && y[2] == -2790.0f && y[3] == 4005.0f &&
                y[4] == 0.0f);
    float t[3], two[2] = { 3.0f, 5.0f };
    assert_true(bf16_gemv_t(&kern, t, w, 2, 3, two));
    assert_true(t[0] == 5.5f && t[1] == 6.0f && t[2] == 11.0f);
    w[1][2] = 0x7f80; /* infinity */
    assert_false(bf16_gemm(&kern, y, 5, w, 3, xp, 1, 2, 4));
    assert_false(bf16_gemv_t(&kern, t, w, 2, 3, two));
}

static void norms_by_hand(void **state)
{
    float x[4] = { 1.0f, -1.0f, 3.0f, 5.0f }, y[4];
    uint16_t g[4] = { bf16(1.0f), bf16(2.0f), bf16(0.5f), bf16(-1.0f) };
    float gf[4] = { 1.0f, 2.0f, 0.5f, -1.0f };
    (void)state;
    assert_true(rms_norm(&kern, y, x, g, 4, 7.0f)); /* mean 9, + 7: root 4 */
    assert_true(y[0] == 0.25f && y[1] == -0.5f && y[2] == 0.375f &&
                y[3] == -1.25f);
    assert_true(rms_norm_f32(&kern, y, x, gf, 4, 7.0f));
    assert_true(y[0] == 0.25f && y[3] == -1.25f);
    l2_norm(&kern, x, 4, 28.0f, 4.0f); /* sum 36, + 28: root 8 */
    assert_true(x[0] == 0.5f && x[1] == -0.5f && x[2] == 1.5f && x[3] == 2.5f);
}

static void gates_by_hand(void **state)
{
    float g[2] = { 0.0f, 2.0f }, u[2] = { 5.0f, -30.0f }, out[2];
    (void)state;
    situ(&kern, out, g, u, 2, 4.0f, 25.0f);
    assert_true(out[0] == 0.0f);
    near(out[1], 4.0 * tanh(0.5) / (1.0 + exp(-2.0)) * 25.0 * tanh(-1.2));
    sigmoid_gate(&kern, out, u, g, 2);
    near(out[0], 2.5);
    near(out[1], -30.0 / (1.0 + exp(-2.0)));
}

static void conv_by_hand(void **state)
{
    float taps[2][4] = { { 1.0f, 2.0f, 3.0f, 4.0f },
                         { 0.0f, 0.0f, 0.0f, 1.0f } };
    float a[2] = { 1.0f, 0.0f }, b[2] = { 10.0f, 0.0f }, c[2] = { -2.0f, 9.0f };
    float d[2] = { -4.0f, 2.0f }, y[2];
    const float *in[4] = { a, b, c, d };
    (void)state;
    conv_silu(&kern, y, in, taps, 0, 2, 4);
    near(y[0], -1.0 / (1.0 + exp(1.0))); /* 1 + 20 - 6 - 16 = -1 */
    near(y[1], 2.0 / (1.0 + exp(-2.0)));
}

static void kda_by_hand(void **state)
{
    /* 2 x 2 state; see the five lines of kda.h. */
    float s[4] = { 1.0f, 2.0f, 3.0f, 4.0f }, o[2];
    float q[2] = { 1.0f, -1.0f }, k[2] = { 2.0f, 1.0f }, v[2] = { 9.0f, 0.0f };
    float alpha[2] = { 0.5f, 1.0f };
    (void)state;
    kda_step(&kern, o, s, q, k, v, alpha, 0.5f, 2, 2);
    /* t = { .5, 1, 3, 4 }, u = { 4, 6 }, d = { 2.5, -3 } */
    assert_true(s[0] == 5.5f && s[1] == -5.0f && s[2] == 5.5f && s[3] == 1.0f);
    assert_true(o[0] == 0.0f && o[1] == -6.0f);
    float z[1] = { 1.0f }, bias[1] = { -0.5f };
    kda_decay(&kern, alpha, z, bias, logf(2.0f), -5.0f, 1);
    near(alpha[0], exp(-5.0 / (1.0 + exp(-1.0))));
}

static void mla_by_hand(void **state)
{
    /* One head; latent 2, rope 1; the third column takes part in the score. */
    float cache[3][3] = { { 1, 0, 0 }, { 0, 1, 0 }, { 2, 2, 1 } };
    float qa[2] = { 1.0f, 2.0f }, qr[1] = { -3.0f }, mix[2], scratch[256];
    double e[3] = { exp(0.5), exp(1.0), exp(1.5) };
    double sum = e[0] + e[1] + e[2];
    (void)state;
    assert_true(mla_scratch(1, 2, 1) <= 256);
    mla_attend(&kern, mix, qa, qr, 1, cache[0], 3, 2, 1, 0.5f, scratch);
    near(mix[0], (e[0] + 2 * e[2]) / sum);
    near(mix[1], (e[1] + 2 * e[2]) / sum);
    mla_attend(&kern, mix, qa, qr, 1, cache[0], 1, 2, 1, 0.5f, scratch);
    assert_true(mix[0] == 1.0f && mix[1] == 0.0f);
}

static void attn_by_hand(void **state)
{
    float a[2] = { 3.0f, 1.0f }, b[2] = { 0.0f, 4.0f }, h[2];
    const float *sources[2] = { a, b };
    uint16_t norm[2] = { bf16(2.0f), bf16(1.0f) };
    uint16_t proj[2] = { bf16(0.5f), bf16(-1.0f) };
    double sa = (3.0 - 1.0) / sqrt(5.0 + 4.0), sb = -4.0 / sqrt(8.0 + 4.0);
    double pa = exp(sa) / (exp(sa) + exp(sb));
    (void)state;
    assert_true(attn_mix(&kern, h, sources, 2, norm, proj, 2, 4.0f));
    near(h[0], 3.0 * pa);
    near(h[1], pa + 4.0 * (1.0 - pa));
    assert_true(attn_mix(&kern, h, sources, 1, norm, proj, 2, 4.0f));
    assert_true(h[0] == 3.0f && h[1] == 1.0f);
}

static void router_ties_and_weights(void **state)
{
    float s[6] = { 0.5f, 0.25f, 0.5f, 0.125f, 0.5f, 0.75f };
    float bias[6] = { 0.0f, 0.25f, 0.0f, 1.0f, 0.0f, -1.0f };
    uint32_t ids[4];
    float weights[4];
    (void)state;
    /* biased: .5 .5 .5 1.125 .5 -.25: expert 3, then equals by index */
    router_select(ids, weights, s, bias, 6, 4, true, 2.0f);
    assert_true(ids[0] == 3 && ids[1] == 0 && ids[2] == 1 && ids[3] == 2);
    /* unbiased scores .125 .5 .25 .5, sum 1.375, times 2 */
    near(weights[0], 2.0 * 0.125 / 1.375);
    near(weights[1], 2.0 * 0.5 / 1.375);
    near(weights[2], 2.0 * 0.25 / 1.375);
    near(weights[3], 2.0 * 0.5 / 1.375);
    router_select(ids, weights, s, bias, 6, 4, false, 1.0f);
    assert_true(weights[0] == 0.125f && weights[1] == 0.5f);
}

static void router_scores_by_hand(void **state)
{
    uint16_t w[2][3] = { { bf16(1.0f), bf16(1.0f), bf16(-1.0f) },
                         { bf16(0.0f), bf16(0.0f), bf16(0.5f) } };
    float x[3] = { 1e8f, 1.5f, 1e8f }, s[4] = { 7.0f, 7.0f, 7.0f, 7.0f };
    (void)state;
    /* The first sum loses 1.5 in float32. */
    assert_true(router_scores(&kern, s, w, x, 3, 1, 3));
    near(s[1], 1.0 / (1.0 + exp(-1.5)));
    near(s[2], 1.0);
    assert_true(s[0] == 7.0f && s[3] == 7.0f);
    w[1][0] = 0x7fc0;
    assert_false(router_scores(&kern, s, w, x, 3, 1, 3));
}

/* Filling a table leaves another alone, and the lower level is the one used. */
static void two_tables(void **state)
{
    struct kern best, before = kern;
    (void)state;
    assert_int_equal(kern.isa, ISA_REF);
    enum isa reached = kern_init(&best, ISA_COUNT - 1);
    assert_int_equal(best.isa, reached);
    assert_memory_equal(&kern, &before, sizeof kern);
    if (reached != ISA_REF)
        assert_true(best.bf16_gemm != kern.bf16_gemm);
}

/* Bits are compared on every level that the CPU has; here it is said which are
 * not. */
static void every_level(void **state)
{
    struct kern best;
    (void)state;
    enum isa reached = kern_init(&best, ISA_COUNT - 1);
    if (reached < ISA_COUNT - 1)
        skip_because("this CPU has no %s: kernels are compared up to %s",
                     isa_name(ISA_COUNT - 1), isa_name(reached));
}

static int reference(void **state)
{
    (void)state;
    kern_init(&kern, ISA_REF);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup(name, reference)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pack_by_hand),
        CASE(two_tables),
        CASE(every_level),
        CASE(mxfp4_nibbles),
        CASE(bf16_by_hand),
        CASE(norms_by_hand),
        CASE(gates_by_hand),
        CASE(conv_by_hand),
        CASE(kda_by_hand),
        CASE(mla_by_hand),
        CASE(attn_by_hand),
        CASE(router_ties_and_weights),
        CASE(router_scores_by_hand),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}

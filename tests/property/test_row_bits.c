/* Goal    norms, gates, convolution, attention and router return the same bits
 *         on every ISA at any size, alignment and cut, write nothing beside
 *         their outputs, and are right.
 * Method  random inputs; the reference level gives the bits and is held against
 *         plain formulas in double; the other levels are compared with memcmp,
 *         guard floats included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/conv.h"
#include "compute/glu.h"
#include "compute/kda.h"
#include "compute/kern.h"
#include "compute/mla.h"
#include "compute/norm.h"
#include "compute/router.h"
#include "compute/vmath.h"

enum { MAX = 600, SOURCES = 9, GUARDS = 4 };

static const size_t sizes[] = { 1, 2, 15, 16, 17, 31, 33, 64, 128, 200, 599 };
enum { SIZES = sizeof sizes / sizeof *sizes };
static enum isa best;
static struct kern kern;
static uint64_t seed = 7;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static void draw_floats(float *to, size_t n, float size)
{
    for (size_t i = 0; i < n; i++)
        to[i] = size * (float)(int32_t)(draw() << 1) / 1073741824.0f;
}

/* n bf16 at an odd address */
static void draw_bf16(unsigned char *to, size_t n, float size)
{
    for (size_t i = 0; i < n; i++) {
        float x;
        draw_floats(&x, 1, size);
        uint32_t bits = vmath_bits(x);
        memcpy(to + 2 * i, (char *)&bits + 2, 2);
    }
}

static double bf16_at(const unsigned char *from, size_t i)
{
    return (double)vmath_float((uint32_t)(from[2 * i] | from[2 * i + 1] << 8)
                               << 16);
}

static float f32_at(const unsigned char *from, size_t i)
{
    float x;
    memcpy(&x, from + 4 * i, 4);
    return x;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void near(double got, double want, double size)
{
    if (!(fabs(got - want) <= 3e-6 * size))
        fail_msg("%.9g, in double %.9g", got, want);
}

/* The output of the reference, then of each level, behind the same guards. */
static float want[MAX * 16 + GUARDS], got[MAX * 16 + GUARDS];

#define SAME_BITS(n, call)                                                     \
    do {                                                                       \
        for (enum isa isa = ISA_REF; isa <= best; isa++) {                     \
            float *out = isa == ISA_REF ? want : got;                          \
            for (size_t g_ = 0; g_ < (n) + GUARDS; g_++)                       \
                out[g_] = -7.25f;                                              \
            kern_init(&kern, isa);                                             \
            call;                                                              \
            for (size_t g_ = (n); g_ < (n) + GUARDS; g_++)                     \
                assert_true(out[g_] == -7.25f);                                \
            assert_memory_equal(out, want, (n) * sizeof *out);                 \
        }                                                                      \
    } while (0)

static float x[SOURCES][MAX + 1], z[MAX + 1];
static unsigned char gain[MAX * 4 + 3], proj[MAX * 4 + 3];

static void norms(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        double sum = 0.0;
        draw_floats(x[0], n + 1, 3.0f);
        draw_bf16(gain + 1, n, 2.0f);
        for (size_t i = 0; i < n; i++)
            sum += (double)x[0][i + 1] * (double)x[0][i + 1];
        SAME_BITS(
            n, assert_true(rms_norm(&kern, out, x[0] + 1, gain + 1, n, 1e-2f)));
        for (size_t i = 0; i < n; i++)
            near(want[i],
                 (double)x[0][i + 1] / sqrt(sum / (double)n + 1e-2) *
                     bf16_at(gain + 1, i),
                 1);
        draw_floats(z, n, 2.0f);
        memcpy(gain + 3, z, n * 4);
        SAME_BITS(
            n, assert_true(rms_norm_f32(&kern, out, x[0], gain + 3, n, 1e-2f)));
        SAME_BITS(n, for (size_t i = 0; i < n; i++) out[i] = x[0][i + 1];
                  l2_norm(&kern, out, n, 1e-3f, 0.25f));
        for (size_t i = 0; i < n; i++)
            near(want[i], (double)x[0][i + 1] / sqrt(sum + 1e-3) * 0.25, 1);
        x[0][n / 2] = INFINITY;
        for (enum isa isa = ISA_REF; isa <= best; isa++) {
            kern_init(&kern, isa);
            assert_false(rms_norm(&kern, got, x[0], gain, n, 1.0f));
            assert_false(rms_norm_f32(&kern, got, x[0], gain, n, 1.0f));
        }
    }
}

static void depth_mix(void **state)
{
    const float *sources[SOURCES];
    (void)state;
    for (size_t s = 0; s < SIZES; s++)
        for (unsigned count = 1; count <= SOURCES; count++) {
            size_t n = sizes[s];
            double score[SOURCES], sum = 0.0;
            draw_bf16(gain + 1, n, 2.0f);
            draw_bf16(proj + 1, n, 1.0f);
            for (unsigned i = 0; i < count; i++) {
                draw_floats(x[i] + 1, n, 3.0f);
                sources[i] = x[i] + 1;
                double dot = 0.0, square = 0.0;
                for (size_t c = 0; c < n; c++) {
                    double v = (double)x[i][c + 1];
                    dot += v * bf16_at(gain + 1, c) * bf16_at(proj + 1, c);
                    square += v * v;
                }
                score[i] = exp(dot / sqrt(square / (double)n + 1e-5));
                sum += score[i];
            }
            SAME_BITS(n, assert_true(attn_mix(&kern, out, sources, count,
                                              gain + 1, proj + 1, n, 1e-5f)));
            for (size_t c = 0; c < n; c++) {
                double h = 0.0;
                for (unsigned i = 0; i < count; i++)
                    h += score[i] / sum * (double)x[i][c + 1];
                near(want[c], h, 4);
            }
        }
}

static void gates(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        draw_floats(x[0], n + 1, 12.0f);
        draw_floats(x[1], n + 1, 60.0f);
        SAME_BITS(n, situ(&kern, out, x[0] + 1, x[1] + 1, n, 4.0f, 25.0f));
        for (size_t i = 0; i < n; i++) {
            double g = (double)x[0][i + 1], u = (double)x[1][i + 1];
            near(want[i], 4 * tanh(g / 4) * sigmoid(g) * 25 * tanh(u / 25),
                 100);
        }
        SAME_BITS(n, sigmoid_gate(&kern, out, x[1] + 1, x[0], n));
        for (size_t i = 0; i < n; i++)
            near(want[i], (double)x[1][i + 1] * sigmoid((double)x[0][i]), 60);
    }
}

static void convolution(void **state)
{
    const float *in[5] = { x[0] + 1, x[1] + 1, x[2], x[3] + 1, x[4] };
    (void)state;
    for (unsigned i = 0; i < 5; i++)
        draw_floats(x[i], MAX + 1, 2.0f);
    draw_floats(z, MAX, 1.0f);
    memcpy(gain + 3, z, MAX * 4);
    for (size_t s = 0; s < SIZES; s++)
        for (unsigned kernel = 1; kernel <= 4; kernel++) {
            size_t n = sizes[s] * 4 < MAX ? sizes[s] : MAX / 4 - 1;
            size_t cut = draw() % (n + 1);
            SAME_BITS(n, conv_silu(&kern, out, in, gain + 3, 0, cut, kernel);
                      conv_silu(&kern, out, in, gain + 3, cut, n, kernel));
            for (size_t c = 0; c < n; c++) {
                double a = 0.0;
                for (unsigned j = 0; j < kernel; j++)
                    a += (double)f32_at(gain + 3, c * kernel + j) *
                         (double)in[j][c];
                near(want[c], a * sigmoid(a), 8);
            }
        }
}

static void decay(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        draw_floats(x[0], n + 1, 4.0f);
        draw_floats(z, n, 1.0f);
        memcpy(gain + 1, z, n * 4);
        SAME_BITS(n, kda_decay(&kern, out, x[0] + 1, gain + 1, 0.7f, -5.0f, n));
        for (size_t i = 0; i < n; i++)
            near(want[i],
                 exp(-5 * sigmoid(exp(0.7) * (double)(x[0][i + 1] + z[i]))), 1);
    }
}

/* Ten positions; the state passes from one to the next. */
static void recurrence(void **state)
{
    static const size_t shapes[][2] = {
        { 1, 1 }, { 16, 16 }, { 7, 19 }, { 32, 64 }, { 30, 72 }, { 24, 145 },
    };
    static float in[10][4][MAX];
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t dk = shapes[s][0], dv = shapes[s][1], size = dk * dv;
        static double exact[MAX * 16], o[MAX];
        memset(exact, 0, sizeof exact);
        for (unsigned t = 0; t < 10; t++) {
            for (unsigned i = 0; i < 4; i++)
                draw_floats(in[t][i], dk > dv ? dk : dv, 1.0f);
            l2_norm(&kern, in[t][1], dk, 1e-6f, 1.0f);
            for (size_t i = 0; i < dk; i++)
                in[t][3][i] = fabsf(in[t][3][i]);
        }
        /* state, then ten outputs, in one array behind the guards */
        SAME_BITS(size + 10 * dv, memset(out, 0, size * 4);
                  for (unsigned t = 0; t < 10; t++)
                      kda_step(&kern, out + size + t * dv, out, in[t][0],
                               in[t][1], in[t][2], in[t][3], 0.625f, dk, dv));
        for (unsigned t = 0; t < 10; t++)
            for (size_t j = 0; j < dv; j++) {
                double u = 0.0;
                o[j] = 0.0;
                for (size_t i = 0; i < dk; i++) {
                    exact[i * dv + j] *= (double)in[t][3][i];
                    u += (double)in[t][1][i] * exact[i * dv + j];
                }
                for (size_t i = 0; i < dk; i++) {
                    exact[i * dv + j] +=
                        (double)in[t][1][i] * 0.625 * ((double)in[t][2][j] - u);
                    o[j] += (double)in[t][0][i] * exact[i * dv + j];
                }
                near(want[size + t * dv + j], o[j], 4);
            }
        for (size_t i = 0; i < size; i++)
            near(want[i], exact[i], 1);
    }
}

static void latent_attention(void **state)
{
    static const size_t shapes[][4] = { /* heads, positions, latent, rope */
        { 1, 1, 1, 0 },   { 4, 3, 32, 8 },    { 7, 63, 20, 5 },
        { 6, 64, 48, 16 }, { 13, 65, 64, 16 }, { 5, 200, 72, 3 },
        { 2, 129, 16, 64 },
    };
    static float cache[200 * 80 + 1], qa[13 * 72 + 1], qr[13 * 64 + 1];
    static float scratch[13 * (80 + 80) + 64];
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t heads = shapes[s][0], n = shapes[s][1], latent = shapes[s][2];
        size_t rope = shapes[s][3], width = latent + rope;
        float scale = 1.5f / sqrtf((float)width);
        assert_true(mla_scratch(heads, latent, rope) + 1 <=
                    sizeof scratch / sizeof *scratch);
        draw_floats(cache + 1, n * width, 2.0f);
        draw_floats(qa + 1, heads * latent, 2.0f);
        draw_floats(qr + 1, heads * rope, 2.0f);
        SAME_BITS(heads * latent,
                  mla_attend(&kern, out, qa + 1, qr + 1, heads, cache + 1, n,
                             latent, rope, scale, scratch + 1));
        /* any group of heads by itself */
        for (size_t h = 0; h < heads; h++) {
            size_t count = 1 + draw() % (heads - h);
            mla_attend(&kern, got, qa + 1 + h * latent, qr + 1 + h * rope,
                       count, cache + 1, n, latent, rope, scale, scratch);
            assert_memory_equal(got, want + h * latent, count * latent * 4);
        }
        for (size_t h = 0; h < heads; h++) {
            double e[200], sum = 0.0;
            for (size_t p = 0; p < n; p++) {
                double dot = 0.0;
                for (size_t c = 0; c < width; c++)
                    dot += (double)cache[1 + p * width + c] *
                           (double)(c < latent
                                        ? qa[1 + h * latent + c]
                                        : qr[1 + h * rope + c - latent]);
                sum += e[p] = exp(dot * (double)scale);
            }
            for (size_t c = 0; c < latent; c++) {
                double m = 0.0;
                for (size_t p = 0; p < n; p++)
                    m += e[p] / sum * (double)cache[1 + p * width + c];
                near(want[h * latent + c], m, 4);
            }
        }
    }
}

static void router(void **state)
{
    static unsigned char w[7 * 599 * 2 + 1];
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s], cut = draw() % 8;
        draw_floats(x[0], n + 1, 1.0f);
        draw_bf16(w + 1, 7 * n, 0.5f);
        SAME_BITS(7, assert_true(
                         router_scores(&kern, out, w + 1, x[0] + 1, n, 0, cut));
                  assert_true(router_scores(&kern, out, w + 1 + cut * n * 2,
                                            x[0] + 1, n, cut, 7)));
        for (size_t e = 0; e < 7; e++) {
            double dot = 0.0;
            for (size_t c = 0; c < n; c++)
                dot += bf16_at(w + 1, e * n + c) * (double)x[0][c + 1];
            near(want[e], sigmoid(dot), 0.1);
        }
        w[1 + (6 * n + n - 1) * 2] = 0x80;
        w[2 + (6 * n + n - 1) * 2] = 0x7f;
        for (enum isa isa = ISA_REF; isa <= best; isa++) {
            kern_init(&kern, isa);
            assert_false(router_scores(&kern, got, w + 1, x[0] + 1, n, 0, 7));
            assert_true(router_scores(&kern, got, w + 1, x[0] + 1, n, 0, 6));
        }
    }
}

/* Against a full stable sort. */
static void selection(void **state)
{
    float s[40], bias[40], weights[40];
    uint32_t ids[40];
    (void)state;
    for (unsigned round = 0; round < 2000; round++) {
        size_t experts = 1 + draw() % 40, k = 1 + draw() % experts;
        for (size_t e = 0; e < experts; e++) {
            s[e] = (float)(1 + draw() % 6) / 8.0f; /* many ties */
            bias[e] = (float)(draw() % 5) / 8.0f;
        }
        memcpy(gain + 1, bias, sizeof bias);
        router_select(ids, weights, s, gain + 1, experts, k, round % 2, 1.5f);
        bool taken[40] = { false };
        double sum = 0.0;
        for (size_t i = 0; i < k; i++) {
            size_t first = experts;
            for (size_t e = 0; e < experts; e++)
                if (!taken[e] && (first == experts ||
                                  s[e] + bias[e] > s[first] + bias[first]))
                    first = e;
            taken[first] = true;
            assert_int_equal(ids[i], first);
            sum += (double)s[first];
        }
        for (size_t i = 0; i < k; i++)
            near(weights[i],
                 1.5 * (double)s[ids[i]] / (round % 2 ? sum : 1.0), 0.1);
    }
}

int main(void)
{
    best = kern_init(&kern, ISA_COUNT - 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),       cmocka_unit_test(depth_mix),
        cmocka_unit_test(gates),       cmocka_unit_test(convolution),
        cmocka_unit_test(decay),       cmocka_unit_test(recurrence),
        cmocka_unit_test(latent_attention), cmocka_unit_test(router),
        cmocka_unit_test(selection),
    };
    return cmocka_run_group_tests_name("row bits", tests, NULL, NULL);
}

/* vmath.h - exp, tanh and sigmoid, the same bits on every instruction set.
 *
 * The scalar functions below are the specification: the vector forms do the
 * same steps in every lane. They use no libm function but fmaf, which is exact
 * by definition; libm's own expf differs between machines.
 *
 *     function        error at most    special values
 *     vmath_exp       0.8 ulp          over 88.72 inf, under -103.97 +0
 *     vmath_tanh      1.3 ulp          +-1 from |x| = 9.01 on, keeps -0
 *     vmath_sigmoid   1.4 ulp          +0 under -103.97, 1 over 17.33
 *
 * NaN gives NaN. tests/unit/test_vmath.c walks the floats and holds these
 * numbers.
 *
 * Bytes    y may be x.
 */
#ifndef COMPUTE_VMATH_H
#define COMPUTE_VMATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kern;

/* Constants shared with the vector forms. */
#define VM_LOG2E  0x1.715476p+0f
#define VM_LN2_HI 0x1.62e4p-1f /* 16 bits: times any |n| <= 150 exact */
#define VM_LN2_LO 0x1.7f7d1cp-20f
#define VM_MAGIC  0x1.8p+23f /* adding it rounds to an integer, ties to even */
#define VM_EXP_MAX 89.0f
#define VM_EXP_MIN -105.0f
/* exp(r) = 1 + r + r^2 * P(r), |r| <= ln2 / 2 (Cephes expf) */
#define VM_E0 1.9875691500e-4f
#define VM_E1 1.3981999507e-3f
#define VM_E2 8.3334519073e-3f
#define VM_E3 4.1665795894e-2f
#define VM_E4 1.6666665459e-1f
#define VM_E5 5.0000001201e-1f
/* tanh(x) = x + x^3 * Q(x^2), |x| < 0.625 (Cephes tanhf) */
#define VM_TANH_CUT 0.625f
#define VM_T0 -5.70498872745e-3f
#define VM_T1 2.06390887954e-2f
#define VM_T2 -5.37397155531e-2f
#define VM_T3 1.33314422036e-1f
#define VM_T4 -3.33332819422e-1f

static inline uint32_t vmath_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float vmath_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float vmath_exp1(float x)
{
    x = VM_EXP_MAX < x ? VM_EXP_MAX : x; /* false for NaN: it stays */
    x = VM_EXP_MIN > x ? VM_EXP_MIN : x;
    float t = fmaf(x, VM_LOG2E, VM_MAGIC);
    float n = t - VM_MAGIC;
    float a = fmaf(n, -VM_LN2_HI, x); /* exact */
    float r = fmaf(n, -VM_LN2_LO, a);
    float low = fmaf(n, -VM_LN2_LO, a - r); /* what r lost */
    float p = fmaf(VM_E0, r, VM_E1);
    p = fmaf(p, r, VM_E2);
    p = fmaf(p, r, VM_E3);
    p = fmaf(p, r, VM_E4);
    p = fmaf(p, r, VM_E5);
    p = fmaf(p, r * r, low);
    float sum = 1.0f + r;
    p = sum + ((1.0f - sum) + r + p); /* the bracket before p is exact */
    /* 2^n in two factors: 2^n itself may be subnormal or too large. */
    int32_t i = (int32_t)(vmath_bits(t) - vmath_bits(VM_MAGIC));
    int32_t half = i >> 1;
    p = p * vmath_float((uint32_t)(half + 127) << 23);
    return p * vmath_float((uint32_t)(i - half + 127) << 23);
}

/* 1 / (1 + e^-|x|), or e^-|x| / (1 + e^-|x|) for negative x: no overflow. The
 * quotient is corrected by what it and the sum left over. */
static inline float vmath_sigmoid1(float x)
{
    float e = vmath_exp1(-fabsf(x));
    float sum = 1.0f + e, low = e - (sum - 1.0f);
    float top = x < 0.0f ? e : 1.0f, inverse = 1.0f / sum;
    float q = top * inverse;
    float rest = fmaf(-q, low, fmaf(-q, sum, top));
    return fmaf(rest, inverse, q);
}

static inline float vmath_tanh1(float x)
{
    float a = fabsf(x), z = x * x;
    float p = fmaf(VM_T0, z, VM_T1);
    p = fmaf(p, z, VM_T2);
    p = fmaf(p, z, VM_T3);
    p = fmaf(p, z, VM_T4);
    float small = fmaf(p * z, a, a);
    float large = 1.0f - 2.0f / (vmath_exp1(a + a) + 1.0f);
    return copysignf(a < VM_TANH_CUT ? small : large, x);
}

/* The vector forms, through the table of kern.h. */
void vmath_exp(const struct kern *kern, float *y, const float *x, size_t n);
void vmath_tanh(const struct kern *kern, float *y, const float *x, size_t n);
void vmath_sigmoid(const struct kern *kern, float *y, const float *x, size_t n);

#endif

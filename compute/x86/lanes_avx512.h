/* lanes_avx512.h - sixteen float lanes (vf) and sixteen double lanes (vd).
 *
 * lanes_avx2.h has the same names with the same meanings; the files of body/
 * are written on top and compiled once for each. Every operation rounds once a
 * lane, so the two give the same bits. Only *_avx512.c files include this.
 *
 * The _n forms take 1 <= n <= 16 lanes: a load fills the rest with +0, a store
 * touches n elements only.
 */
#ifndef COMPUTE_X86_LANES_AVX512_H
#define COMPUTE_X86_LANES_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/x86/lanes.h"

typedef __m512 vf;
typedef struct {
    __m512d lo, hi;
} vd;

/* A register's worth of lanes: the unit of the register tiles. */
typedef __m512 reg;
enum { REG = 16 };

LANE_FN reg reg_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

LANE_FN void reg_store(float *p, reg a)
{
    _mm512_storeu_ps(p, a);
}

LANE_FN reg reg_fma(reg a, reg b, reg c)
{
    return _mm512_fmadd_ps(a, b, c);
}

LANE_FN __mmask16 lane_mask(size_t n)
{
    return (__mmask16)(0xffffu >> (LANES - n));
}

LANE_FN vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

LANE_FN vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}

LANE_FN vf vf_load_n(const void *p, size_t n)
{
    return _mm512_maskz_loadu_ps(lane_mask(n), p);
}

LANE_FN void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

LANE_FN void vf_store_n(float *p, vf a, size_t n)
{
    _mm512_mask_storeu_ps(p, lane_mask(n), a);
}

/* Sixteen bf16 in a row. */
LANE_FN vf vf_bf16_n(const void *p, size_t n)
{
    __m256i half = _mm256_maskz_loadu_epi16(lane_mask(n), p);
    __m512i wide = _mm512_cvtepu16_epi32(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

LANE_FN vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

LANE_FN vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

LANE_FN vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

LANE_FN vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once */
LANE_FN vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* a < b ? a : b, and with >: b if either is NaN */
LANE_FN vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

LANE_FN vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

/* a < b ? x : y */
LANE_FN vf vf_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

LANE_FN vf vf_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

/* The magnitude of a, which is not negative, with the sign of b. */
LANE_FN vf vf_sign(vf a, vf b)
{
    return _mm512_or_ps(a, _mm512_and_ps(_mm512_set1_ps(-0.0f), b));
}

/* p * 2^i in two exact factors; i is an integer in each lane of bits(t) minus
 * bits(magic). */
LANE_FN vf vf_pow2(vf p, vf t, vf magic)
{
    const __m512i bias = _mm512_set1_epi32(127);
    __m512i i = _mm512_sub_epi32(_mm512_castps_si512(t),
                                 _mm512_castps_si512(magic));
    __m512i half = _mm512_srai_epi32(i, 1), rest = _mm512_sub_epi32(i, half);
    half = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    rest = _mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23);
    return vf_mul(vf_mul(p, _mm512_castsi512_ps(half)),
                  _mm512_castsi512_ps(rest));
}

/* 16 > 8 > 4 > 2 > 1, low half + high half */
LANE_FN float vf_fold(vf a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a),
                             _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b),
                          _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* Four folds at once, to to[0..3]. */
LANE_FN void vf_fold4(float *to, vf a, vf b, vf c, vf d)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44),
                              _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44),
                              _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 e = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                             _mm512_shuffle_f32x4(ab, cd, 0xdd));
    e = _mm512_add_ps(e, _mm512_permute_ps(e, 0xee));
    e = _mm512_add_ps(e, _mm512_permute_ps(e, 0x55));
    e = _mm512_maskz_compress_ps(0x1111, e);
    _mm_storeu_ps(to, _mm512_castps512_ps128(e));
}

/* The largest lane; order does not matter for a maximum of numbers. */
LANE_FN float vf_hmax(vf a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a),
                             _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b),
                          _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

LANE_FN vd vd_set(double x)
{
    return (vd){ _mm512_set1_pd(x), _mm512_set1_pd(x) };
}

LANE_FN vd vd_widen(vf a)
{
    return (vd){ _mm512_cvtps_pd(_mm512_castps512_ps256(a)),
                 _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)) };
}

LANE_FN vd vd_fma(vd a, vd b, vd c)
{
    return (vd){ _mm512_fmadd_pd(a.lo, b.lo, c.lo),
                 _mm512_fmadd_pd(a.hi, b.hi, c.hi) };
}

LANE_FN double vd_fold(vd a)
{
    __m512d b = _mm512_add_pd(a.lo, a.hi);
    __m256d c = _mm256_add_pd(_mm512_castpd512_pd256(b),
                              _mm512_extractf64x4_pd(b, 1));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(c),
                           _mm256_extractf128_pd(c, 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

#endif

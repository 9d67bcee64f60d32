/* lanes_avx2.h - sixteen float lanes (vf) in two registers, sixteen double
 * lanes (vd) in four. The same names and meanings as lanes_avx512.h. Only
 * *_avx2.c files include this.
 */
#ifndef COMPUTE_X86_LANES_AVX2_H
#define COMPUTE_X86_LANES_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compute/x86/lanes.h"

typedef struct {
    __m256 lo, hi;
} vf;
typedef struct {
    __m256d q[4];
} vd;

/* A register's worth of lanes: the unit of the register tiles. */
typedef __m256 reg;
enum { REG = 8 };

LANE_FN reg reg_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

LANE_FN void reg_store(float *p, reg a)
{
    _mm256_storeu_ps(p, a);
}

LANE_FN reg reg_fma(reg a, reg b, reg c)
{
    return _mm256_fmadd_ps(a, b, c);
}

LANE_FN vf vf_set(float x)
{
    return (vf){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

LANE_FN vf vf_load(const void *p)
{
    return (vf){ _mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8) };
}

LANE_FN vf vf_load_n(const void *p, size_t n)
{
    if (n == LANES)
        return vf_load(p);
    float room[LANES] = { 0 };
    memcpy(room, p, n * sizeof *room);
    return vf_load(room);
}

LANE_FN void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

LANE_FN void vf_store_n(float *p, vf a, size_t n)
{
    if (n == LANES) {
        vf_store(p, a);
        return;
    }
    float room[LANES];
    vf_store(room, a);
    memcpy(p, room, n * sizeof *room);
}

LANE_FN __m256 lane_widen(__m128i half)
{
    __m256i wide = _mm256_cvtepu16_epi32(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

LANE_FN vf vf_bf16_n(const void *p, size_t n)
{
    uint16_t room[LANES] = { 0 };
    if (n < LANES)
        p = memcpy(room, p, n * sizeof *room);
    const __m128i *half = p;
    return (vf){ lane_widen(_mm_loadu_si128(half)),
                 lane_widen(_mm_loadu_si128(half + 1)) };
}

LANE_FN vf vf_add(vf a, vf b)
{
    return (vf){ _mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi) };
}

LANE_FN vf vf_sub(vf a, vf b)
{
    return (vf){ _mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi) };
}

LANE_FN vf vf_mul(vf a, vf b)
{
    return (vf){ _mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi) };
}

LANE_FN vf vf_div(vf a, vf b)
{
    return (vf){ _mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi) };
}

LANE_FN vf vf_fma(vf a, vf b, vf c)
{
    return (vf){ _mm256_fmadd_ps(a.lo, b.lo, c.lo),
                 _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}

LANE_FN vf vf_min(vf a, vf b)
{
    return (vf){ _mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi) };
}

LANE_FN vf vf_max(vf a, vf b)
{
    return (vf){ _mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi) };
}

LANE_FN vf vf_less(vf a, vf b, vf x, vf y)
{
    __m256 lo = _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ);
    __m256 hi = _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ);
    return (vf){ _mm256_blendv_ps(y.lo, x.lo, lo),
                 _mm256_blendv_ps(y.hi, x.hi, hi) };
}

LANE_FN vf vf_abs(vf a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){ _mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi) };
}

LANE_FN vf vf_sign(vf a, vf b)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){ _mm256_or_ps(a.lo, _mm256_and_ps(sign, b.lo)),
                 _mm256_or_ps(a.hi, _mm256_and_ps(sign, b.hi)) };
}

LANE_FN __m256 lane_pow2(__m256 p, __m256 t, __m256 magic)
{
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i i = _mm256_sub_epi32(_mm256_castps_si256(t),
                                 _mm256_castps_si256(magic));
    __m256i half = _mm256_srai_epi32(i, 1), rest = _mm256_sub_epi32(i, half);
    half = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    rest = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(half));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(rest));
}

LANE_FN vf vf_pow2(vf p, vf t, vf magic)
{
    return (vf){ lane_pow2(p.lo, t.lo, magic.lo),
                 lane_pow2(p.hi, t.hi, magic.hi) };
}

LANE_FN float vf_fold(vf a)
{
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b),
                          _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

LANE_FN void vf_fold4(float *to, vf a, vf b, vf c, vf d)
{
    __m256 p = _mm256_add_ps(a.lo, a.hi), q = _mm256_add_ps(b.lo, b.hi);
    __m256 r = _mm256_add_ps(c.lo, c.hi), s = _mm256_add_ps(d.lo, d.hi);
    __m256 pr = _mm256_add_ps(_mm256_permute2f128_ps(p, r, 0x20),
                              _mm256_permute2f128_ps(p, r, 0x31));
    __m256 qs = _mm256_add_ps(_mm256_permute2f128_ps(q, s, 0x20),
                              _mm256_permute2f128_ps(q, s, 0x31));
    /* a4 | c4 and b4 | d4: lanes 0 1 with 2 3, then 0 with 1 */
    __m256 e = _mm256_add_ps(_mm256_shuffle_ps(pr, qs, 0x44),
                             _mm256_shuffle_ps(pr, qs, 0xee));
    e = _mm256_add_ps(_mm256_shuffle_ps(e, e, 0x88),
                      _mm256_shuffle_ps(e, e, 0xdd));
    __m128 lo = _mm256_castps256_ps128(e), hi = _mm256_extractf128_ps(e, 1);
    _mm_storeu_ps(to, _mm_movelh_ps(lo, hi));
}

LANE_FN float vf_hmax(vf a)
{
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b),
                          _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

LANE_FN vd vd_set(double x)
{
    __m256d a = _mm256_set1_pd(x);
    return (vd){ { a, a, a, a } };
}

LANE_FN vd vd_widen(vf a)
{
    return (vd){ { _mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)),
                   _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1)),
                   _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)),
                   _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1)) } };
}

LANE_FN vd vd_fma(vd a, vd b, vd c)
{
    return (vd){ { _mm256_fmadd_pd(a.q[0], b.q[0], c.q[0]),
                   _mm256_fmadd_pd(a.q[1], b.q[1], c.q[1]),
                   _mm256_fmadd_pd(a.q[2], b.q[2], c.q[2]),
                   _mm256_fmadd_pd(a.q[3], b.q[3], c.q[3]) } };
}

LANE_FN double vd_fold(vd a)
{
    __m256d b = _mm256_add_pd(a.q[0], a.q[2]); /* lanes 0-3 with 8-11 */
    __m256d c = _mm256_add_pd(a.q[1], a.q[3]);
    __m256d d = _mm256_add_pd(b, c);
    __m128d e = _mm_add_pd(_mm256_castpd256_pd128(d),
                           _mm256_extractf128_pd(d, 1));
    return _mm_cvtsd_f64(_mm_add_sd(e, _mm_unpackhi_pd(e, e)));
}

#endif

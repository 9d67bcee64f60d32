#include "compute/lanes_avx2.h"

#define WEIGHT_BITS 4
#define TILE_X 3
#define DIRECT_ROWS 1 /* one_row below instead */

#include "compute/gemm_body.h"
#include "compute/mxfp4.h"

/* An element times its scale is a bf16: two bytes. For each scale, the low and
 * the high bytes of the sixteen, as tables for the byte shuffle. */
static _Alignas(32) uint8_t scaled[256][2][16];

LANE_FN __m256i both(const void *lo, const void *hi)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(lo)), _mm_loadu_si128(hi), 1);
}

LANE_FN vf widen(__m128i low, __m128i high)
{
    return (vf){ lane_widen(_mm_unpacklo_epi8(low, high)),
                 lane_widen(_mm_unpackhi_epi8(low, high)) };
}

LANE_FN struct pair pair_at(struct row row, size_t b)
{
    const __m128i nibble = _mm_set1_epi8(15);
    uint8_t e = row.scale[b / MXFP4_BLOCK];
    __m128i low = _mm_load_si128((const void *)scaled[e][0]);
    __m128i high = _mm_load_si128((const void *)scaled[e][1]);
    __m128i raw = _mm_loadu_si128((const void *)(row.w + b / 2));
    __m128i even = _mm_and_si128(raw, nibble);
    __m128i odd = _mm_and_si128(_mm_srli_epi16(raw, 4), nibble);
    return (struct pair){
        widen(_mm_shuffle_epi8(low, even), _mm_shuffle_epi8(high, even)),
        widen(_mm_shuffle_epi8(low, odd), _mm_shuffle_epi8(high, odd)),
    };
}

/* There is none: cols is a multiple of 32. */
LANE_FN struct pair pair_tail(struct row row, size_t b, size_t cols)
{
    (void)cols;
    return pair_at(row, b);
}

/* Four sums a pair of weight rows: sum[q] holds lanes 4q .. 4q+3 of the first
 * row in its low half and of the second in its high half. The byte shuffles and
 * unpacks stay within halves, so nothing ever crosses. */
LANE_FN void pair_half(__m256 sum[4], __m256i low, __m256i high, __m256i index,
                       const float *x)
{
    const __m256i zero = _mm256_setzero_si256();
    low = _mm256_shuffle_epi8(low, index);
    high = _mm256_shuffle_epi8(high, index);
    __m256i w01 = _mm256_unpacklo_epi8(low, high);
    __m256i w23 = _mm256_unpackhi_epi8(low, high);
    __m256i w[4] = { _mm256_unpacklo_epi16(zero, w01),
                     _mm256_unpackhi_epi16(zero, w01),
                     _mm256_unpacklo_epi16(zero, w23),
                     _mm256_unpackhi_epi16(zero, w23) };
    UNROLL for (size_t q = 0; q < 4; q++)
        sum[q] = _mm256_fmadd_ps(_mm256_castsi256_ps(w[q]),
                                 _mm256_broadcast_ps((const void *)(x + 4 * q)),
                                 sum[q]);
}

LANE_FN void pair_block(__m256 sum[4], const struct product *a, size_t o,
                        size_t next, size_t b)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const char *w = a->w + o * a->stride + b / 2;
    const uint8_t *e = a->scale + o * a->scale_stride + b / MXFP4_BLOCK;
    const uint8_t (*s)[16] = scaled[e[0]];
    const uint8_t (*t)[16] = scaled[e[next * a->scale_stride]];
    __m256i raw = both(w, w + next * a->stride);
    __m256i low = both(s[0], t[0]), high = both(s[1], t[1]);
    pair_half(sum, low, high, _mm256_and_si256(raw, nibble), a->xp + b);
    raw = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
    pair_half(sum, low, high, raw, a->xp + b + LANES);
}

LANE_FN void pair_fold(float *y, const __m256 sum[4], size_t rows)
{
    __m256 s = _mm256_add_ps(_mm256_add_ps(sum[0], sum[2]),
                             _mm256_add_ps(sum[1], sum[3]));
    s = _mm256_add_ps(s, _mm256_permute_ps(s, 0xee));
    s = _mm256_add_ps(s, _mm256_permute_ps(s, 0x55));
    y[0] = _mm256_cvtss_f32(s);
    if (rows == 2)
        y[1] = _mm_cvtss_f32(_mm256_extractf128_ps(s, 1));
}

/* One activation row: byte tables do in 16 steps for two rows what widening to
 * 32 bits first does in 19 for one. */
static void one_row(const struct product *a, size_t outputs)
{
    size_t o = 0;
    for (; o + 4 <= outputs; o += 4) {
        __m256 sum[2][4] = { { _mm256_setzero_ps() } };
        for (size_t b = 0; b < a->cols; b += MXFP4_BLOCK) {
            pair_block(sum[0], a, o, 1, b);
            pair_block(sum[1], a, o + 2, 1, b);
            __builtin_prefetch(a->w + o * a->stride + 2 * b + 8192, 0, 2);
        }
        pair_fold(a->y + o, sum[0], 2);
        pair_fold(a->y + o + 2, sum[1], 2);
    }
    for (; o < outputs; o++) {
        __m256 sum[4] = { _mm256_setzero_ps() };
        for (size_t b = 0; b < a->cols; b += MXFP4_BLOCK)
            pair_block(sum, a, o, 0, b);
        pair_fold(a->y + o, sum, 1);
    }
}

static bool mxfp4_gemm_avx2(float *y, size_t ldy, const void *w,
                            const void *scale, size_t cols, const float *xp,
                            size_t rows, size_t begin, size_t end)
{
    const struct product a = { .y = y + begin, .ldy = ldy, .w = w,
                               .scale = scale, .stride = cols / 2,
                               .scale_stride = cols / MXFP4_BLOCK,
                               .cols = cols, .ld = pack_cols(cols),
                               .xp = xp };
    if (rows > 1)
        return product(&a, rows, end - begin);
    one_row(&a, end - begin);
    return all_finite(&a, 1, end - begin);
}

void mxfp4_fill_avx2(struct kern *k)
{
    for (unsigned e = 0; e < 256; e++)
        for (unsigned code = 0; code < 16; code++) {
            float value = mxfp4_element(code) * mxfp4_scale((uint8_t)e);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            scaled[e][0][code] = (uint8_t)(bits >> 16);
            scaled[e][1][code] = (uint8_t)(bits >> 24);
        }
    k->mxfp4_gemm = mxfp4_gemm_avx2;
}

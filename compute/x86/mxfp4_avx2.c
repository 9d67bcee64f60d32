#include "compute/x86/lanes_avx2.h"

#define WEIGHT_BITS 4
#define TILE_X 3
#define DIRECT_ROWS 1 /* few_rows below instead */

#include "compute/body/gemm.h"
#include "compute/body/rows.h"
#include "compute/mxfp4.h"
#include "compute/x86/mxfp4_table.h"

enum { PAIR_ROWS = 2 };

/* An element times its scale is a bf16: two bytes. For each scale, the low and
 * the high bytes of the sixteen, as tables for the byte shuffle. */
#define LOW(e, code)  MXFP4_BITS(e, code) & 255
#define HIGH(e, code) MXFP4_BITS(e, code) >> 8
#define ROW(e)        { { MXFP4_CODES(LOW, e) }, { MXFP4_CODES(HIGH, e) } }
static const _Alignas(32) uint8_t scaled[256][2][16] = { MXFP4_TABLE(ROW) };

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

/* Few activation rows: the byte shuffles and unpacks of AVX2 stay within halves
 * of 16 bytes, so a register takes a pair of weight rows, one a half: 22 steps
 * for 64 weights, where pair_at takes 38. s[q] of an activation row holds lanes
 * 4q .. 4q+3 of the first weight row, and of the second.
 *
 * With one row these 22 and eight fmas share three ports, ten cycles for 34
 * bytes, where AVX-512 takes six: on a core that reads more than about 3 bytes
 * a cycle this is the limit before memory is. From cache the loop runs at 8.4
 * GB/s (10.8 cycles) beside 13.1, a ratio of 0.64; from memory the ratio is 0.6
 * to 0.76, the higher the slower the memory. */
typedef __m256 pair_sums[4];

LANE_FN void pair_half(pair_sums *sum, __m256i low, __m256i high,
                       __m256i index, const float *x, size_t ld, size_t xn)
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
    UNROLL for (size_t j = 0; j < xn; j++)
        UNROLL for (size_t q = 0; q < 4; q++) {
            const void *at = x + j * ld + 4 * q;
            sum[j][q] = _mm256_fmadd_ps(_mm256_castsi256_ps(w[q]),
                                        _mm256_broadcast_ps(at), sum[j][q]);
        }
}

LANE_FN void pair_block(pair_sums *sum, struct row first, struct row second,
                        const float *x, size_t ld, size_t b, size_t xn)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const uint8_t (*s)[16] = scaled[first.scale[b / MXFP4_BLOCK]];
    const uint8_t (*t)[16] = scaled[second.scale[b / MXFP4_BLOCK]];
    __m256i raw = both(first.w + b / 2, second.w + b / 2);
    __m256i low = both(s[0], t[0]), high = both(s[1], t[1]);
    __m256i even = _mm256_and_si256(raw, nibble);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
    pair_half(sum, low, high, even, x + b, ld, xn);
    pair_half(sum, low, high, odd, x + b + LANES, ld, xn);
    /* Load x again for the next pair: the sums need the registers. */
    __asm__ volatile("" : : : "memory");
}

LANE_FN void pair_fold(float *y, const pair_sums sum, bool two)
{
    __m256 s = _mm256_add_ps(_mm256_add_ps(sum[0], sum[2]),
                             _mm256_add_ps(sum[1], sum[3]));
    s = _mm256_add_ps(s, _mm256_permute_ps(s, 0xee));
    s = _mm256_add_ps(s, _mm256_permute_ps(s, 0x55));
    y[0] = _mm256_cvtss_f32(s);
    if (two)
        y[1] = _mm_cvtss_f32(_mm256_extractf128_ps(s, 1));
}

/* `pairs` pairs of weight rows from o; or, with `two` unset, row o alone. */
LANE_FN void pair_rows(const struct product *a, size_t o, size_t pairs,
                       bool two, size_t xn)
{
    const float *x = a->xp;
    const size_t cols = a->cols, ld = a->ld;
    struct row row[4];
    pair_sums sum[2][PAIR_ROWS];
    UNROLL for (size_t p = 0; p < pairs; p++) {
        row[2 * p] = row_of(a, o + 2 * p);
        row[2 * p + 1] = two ? row_of(a, o + 2 * p + 1) : row[2 * p];
        UNROLL for (size_t j = 0; j < xn; j++)
            UNROLL for (size_t q = 0; q < 4; q++)
                sum[p][j][q] = _mm256_setzero_ps();
    }
    for (size_t b = 0; b < cols; b += MXFP4_BLOCK) {
        fetch_ahead(row[0].w, 2 * pairs, b);
        UNROLL for (size_t p = 0; p < pairs; p++)
            pair_block(sum[p], row[2 * p], row[2 * p + 1], x, ld, b, xn);
    }
    UNROLL for (size_t p = 0; p < pairs; p++)
        UNROLL for (size_t j = 0; j < xn; j++)
            pair_fold(a->y + j * a->ldy + o + 2 * p, sum[p][j], two);
}

static void few_rows(const struct product *a, size_t rows, size_t outputs)
{
    size_t o = 0;
    if (rows == 1)
        for (; o + 4 <= outputs; o += 4)
            pair_rows(a, o, 2, true, 1);
    for (; o + 2 <= outputs; o += 2)
        rows == 1 ? pair_rows(a, o, 1, true, 1) : pair_rows(a, o, 1, true, 2);
    if (o < outputs)
        rows == 1 ? pair_rows(a, o, 1, false, 1)
                  : pair_rows(a, o, 1, false, 2);
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
    if (rows > PAIR_ROWS)
        return product(&a, rows, end - begin);
    few_rows(&a, rows, end - begin);
    return all_finite(&a, rows, end - begin);
}

void mxfp4_fill_avx2(struct kern *k)
{
    k->mxfp4_gemm = mxfp4_gemm_avx2;
}

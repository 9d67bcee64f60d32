#include "compute/x86/u3_avx2.h"

/* Four planes' bytes of eight positions in each dword, as rows of an 8x8 bit
 * matrix, times the unit vectors: its transpose, an index for each position.
 * Row 7 gives bit 0, so they are moved to rows 4..7. */
LANE_FN __m256i half_of(__m128i planes, __m256i table)
{
    const __m256i unit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i m = _mm256_slli_epi64(_mm256_cvtepu32_epi64(planes), 32);
    return _mm256_shuffle_epi8(table,
                               _mm256_gf2p8affine_epi64_epi8(unit, m, 0));
}

LANE_FN __m128i word(uint64_t x)
{
    return _mm_cvtsi64_si128((long long)x);
}

LANE_FN bytes bytes_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d0,
                       uint64_t d1, uint64_t sign, const uint64_t table[2],
                       bool alone)
{
    (void)alone;
    const uint64_t i0 = (a ^ b) | d0, i1 = (b ^ c) | d1;
    __m256i t = twice(table);
    __m128i high = _mm_unpacklo_epi8(word(i1), word(i0));
    __m128i low = _mm_unpacklo_epi8(word(sign), word(c));
    return (bytes){ half_of(_mm_unpacklo_epi16(low, high), t),
                    half_of(_mm_unpackhi_epi16(low, high), t) };
}

#include "compute/body/u3.h"

void u3_fill_gfni(struct kern *k)
{
    u3_fill(k);
}

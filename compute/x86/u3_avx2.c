#include "compute/x86/u3_avx2.h"

/* 32 bits to bytes that have `value` where the bit is set: each byte of the
 * word to its eight bytes, one bit of it kept in each, compared. */
LANE_FN __m256i spread(uint32_t bits, uint8_t value)
{
    const __m256i which = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2,
        3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), which);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)value));
}

LANE_FN __m256i half_of(uint32_t i0, uint32_t i1, uint32_t i2, uint32_t sign,
                        __m256i table)
{
    __m256i v = _mm256_or_si256(
        _mm256_or_si256(spread(i0, 1), spread(i1, 2)),
        _mm256_or_si256(spread(i2, 4), spread(sign, 8)));
    return _mm256_shuffle_epi8(table, v);
}

LANE_FN bytes bytes_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d0,
                       uint64_t d1, uint64_t sign, const uint64_t table[2],
                       bool alone)
{
    (void)alone;
    const uint64_t i0 = (a ^ b) | d0, i1 = (b ^ c) | d1;
    __m256i t = twice(table);
    return (bytes){
        half_of((uint32_t)i0, (uint32_t)i1, (uint32_t)c, (uint32_t)sign, t),
        half_of((uint32_t)(i0 >> 32), (uint32_t)(i1 >> 32),
                (uint32_t)(c >> 32), (uint32_t)(sign >> 32), t),
    };
}

#include "compute/body/u3.h"

void u3_fill_avx2(struct kern *k)
{
    u3_fill(k);
}

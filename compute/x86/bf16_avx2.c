#include "compute/x86/lanes_avx2.h"

#define WEIGHT_BITS 16
#define TILE_X 3
#define DIRECT_ROWS 1

#include "compute/body/gemm.h"
#include "compute/body/rows.h"

LANE_FN struct pair pair_split(__m256i lo, __m256i hi)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    return (struct pair){
        { _mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16)) },
        { _mm256_castsi256_ps(_mm256_and_si256(lo, high)),
          _mm256_castsi256_ps(_mm256_and_si256(hi, high)) },
    };
}

LANE_FN struct pair pair_at(struct row row, size_t b)
{
    const __m256i *at = (const void *)(row.w + b * 2);
    return pair_split(_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1));
}

LANE_FN struct pair pair_tail(struct row row, size_t b, size_t cols)
{
    __m256i room[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
    memcpy(room, row.w + b * 2, (cols - b) * 2);
    return pair_split(room[0], room[1]);
}

#include "compute/body/bf16.h"

void bf16_fill_avx2(struct kern *k)
{
    bf16_fill(k);
}

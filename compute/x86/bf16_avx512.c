#include "compute/x86/lanes_avx512.h"

#define WEIGHT_BITS 16
#define TILE_X 6
#define DIRECT_ROWS 1

#include "compute/body/gemm.h"
#include "compute/body/rows.h"

LANE_FN struct pair pair_split(__m512i raw)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    return (struct pair){
        _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16)),
        _mm512_castsi512_ps(_mm512_and_si512(raw, high)),
    };
}

LANE_FN struct pair pair_at(struct row row, size_t b)
{
    return pair_split(_mm512_loadu_si512(row.w + b * 2));
}

LANE_FN struct pair pair_tail(struct row row, size_t b, size_t cols)
{
    __mmask32 mask = 0xffffffffu >> (PACK_BLOCK - (cols - b));
    return pair_split(_mm512_maskz_loadu_epi16(mask, row.w + b * 2));
}

#include "compute/body/bf16.h"

void bf16_fill_avx512(struct kern *k)
{
    bf16_fill(k);
}

/* u3_avx2.h - what body/u3.h needs, on 32-byte registers. bytes_of is missing:
 * u3_avx2.c and u3_gfni.c each have their own. */
#include "compute/x86/lanes_avx2.h"

#define WEIGHT_BITS 8
#define TILE_X 3
#define DIRECT_ROWS 4

#include "compute/body/gemm.h"

typedef struct {
    __m256i lo, hi; /* positions 0..31, 32..63 */
} bytes;

LANE_FN __m256i twice(const uint64_t table[2])
{
    __m128i t = _mm_set_epi64x((long long)table[1], (long long)table[0]);
    return _mm256_broadcastsi128_si256(t);
}

LANE_FN bytes bytes_set(bytes v, uint32_t p, uint8_t byte)
{
    uint8_t room[64];
    _mm256_storeu_si256((void *)room, v.lo);
    _mm256_storeu_si256((void *)(room + 32), v.hi);
    room[p] = byte;
    return (bytes){ _mm256_loadu_si256((const void *)room),
                    _mm256_loadu_si256((const void *)(room + 32)) };
}

struct halves {
    __m256i at[4]; /* sixteen columns each */
};

LANE_FN struct halves halves_of(bytes high, const uint8_t *low)
{
    __m256i l = _mm256_loadu_si256((const void *)low);
    __m256i h = _mm256_loadu_si256((const void *)(low + 32));
    return (struct halves){ { _mm256_unpacklo_epi8(l, high.lo),
                              _mm256_unpacklo_epi8(h, high.hi),
                              _mm256_unpackhi_epi8(l, high.lo),
                              _mm256_unpackhi_epi8(h, high.hi) } };
}

LANE_FN void halves_store(void *to, struct halves h)
{
    UNROLL for (size_t i = 0; i < 4; i++)
        _mm256_storeu_si256((__m256i *)to + i, h.at[i]);
}

LANE_FN struct pair halves_pair(struct halves h, size_t k)
{
    const __m256i top = _mm256_set1_epi32((int)0xffff0000u);
    __m256i lo = h.at[2 * k], hi = h.at[2 * k + 1];
    return (struct pair){
        { _mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16)) },
        { _mm256_castsi256_ps(_mm256_and_si256(lo, top)),
          _mm256_castsi256_ps(_mm256_and_si256(hi, top)) },
    };
}

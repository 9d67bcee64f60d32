#include "compute/x86/lanes_avx512.h"

#define WEIGHT_BITS 8
#define TILE_X 6
#define DIRECT_ROWS 2

#include "compute/body/gemm.h"

typedef __m512i bytes;

/* An index a position, built by masked adds, looks up its byte. Alone, the
 * integer side binds: the planes are added as they come. Beside fmas the moves
 * to mask registers do: fewer of them, of planes combined before. */
LANE_FN bytes bytes_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d0,
                       uint64_t d1, uint64_t sign, const uint64_t table[2],
                       bool alone)
{
    const __m512i one = _mm512_set1_epi8(1), two = _mm512_set1_epi8(2);
    __m512i v = _mm512_maskz_mov_epi8(sign, _mm512_set1_epi8(8));
    if (alone) {
        v = _mm512_mask_add_epi8(v, a, v, one);
        v = _mm512_mask_add_epi8(v, b, v, one);
        v = _mm512_mask_add_epi8(v, c, v, two);
        v = _mm512_mask_add_epi8(v, d0, v, one);
        v = _mm512_mask_add_epi8(v, d1, v, two);
    } else {
        v = _mm512_mask_add_epi8(v, (a ^ b) | d0, v, one);
        v = _mm512_mask_add_epi8(v, (b ^ c) | d1, v, two);
        v = _mm512_mask_add_epi8(v, c, v, _mm512_set1_epi8(4));
    }
    __m128i t = _mm_set_epi64x((long long)table[1], (long long)table[0]);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), v);
}

LANE_FN bytes bytes_set(bytes v, uint32_t p, uint8_t byte)
{
    return _mm512_mask_set1_epi8(v, 1ull << p, (char)byte);
}

struct halves {
    __m512i at[2];
};

LANE_FN struct halves halves_of(bytes high, const uint8_t *low)
{
    __m512i l = _mm512_loadu_si512(low);
    return (struct halves){ { _mm512_unpacklo_epi8(l, high),
                              _mm512_unpackhi_epi8(l, high) } };
}

LANE_FN void halves_store(void *to, struct halves h)
{
    _mm512_storeu_si512(to, h.at[0]);
    _mm512_storeu_si512((char *)to + 64, h.at[1]);
}

LANE_FN struct pair halves_pair(struct halves h, size_t k)
{
    const __m512i top = _mm512_set1_epi32((int)0xffff0000u);
    return (struct pair){
        _mm512_castsi512_ps(_mm512_slli_epi32(h.at[k], 16)),
        _mm512_castsi512_ps(_mm512_and_si512(h.at[k], top)),
    };
}

#include "compute/body/u3.h"

void u3_fill_avx512(struct kern *k)
{
    u3_fill(k);
}

/* u3_code_avx512.c - a byte is looked up by its two halves, one register a
 * group. */
#include <immintrin.h>

/* Bit i of a half's byte: entry i of the table has this half. Both have it only
 * where the value is entry i. */
struct lookup {
    __m512i low, high;
};

#include "compute/body/u3_code.h"
#include "compute/kern.h"

static inline struct lookup lookup_of(const uint8_t *table)
{
    uint8_t low[16] = { 0 }, high[16] = { 0 };
    for (unsigned i = 0; i < 8; i++) {
        unsigned first = 0;
        while (first == 3 || table[first] != table[i])
            first++;
        if (i == 3 || first != i)
            continue;
        low[table[i] & 15] |= (uint8_t)(1 << i);
        high[table[i] >> 4] |= (uint8_t)(1 << i);
    }
    return (struct lookup){
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)low)),
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)high)),
    };
}

/* Positions with one of these entries. */
static inline uint64_t any(__m512i entry, unsigned bits)
{
    return _mm512_test_epi8_mask(entry, _mm512_set1_epi8((char)bits));
}

static inline void split(struct masks *m, uint8_t *low, const uint8_t *from,
                         const struct lookup *l)
{
    const __m512i byte = _mm512_set1_epi16(255);
    __m512i r0 = _mm512_loadu_si512(from);
    __m512i r1 = _mm512_loadu_si512(from + 64);
    /* Packing within lanes gives the order of positions. */
    __m512i lows = _mm512_packus_epi16(_mm512_and_si512(r0, byte),
                                       _mm512_and_si512(r1, byte));
    __m512i h = _mm512_packus_epi16(_mm512_srli_epi16(r0, 8),
                                    _mm512_srli_epi16(r1, 8));
    _mm512_storeu_si512(low, lows);
    m->sign = _mm512_movepi8_mask(h);
    h = _mm512_and_si512(h, _mm512_set1_epi8(127));
    __m512i half = _mm512_and_si512(_mm512_srli_epi16(h, 4),
                                    _mm512_set1_epi8(7));
    __m512i entry = _mm512_and_si512(_mm512_shuffle_epi8(l->low, h),
                                     _mm512_shuffle_epi8(l->high, half));
    m->a = any(entry, 0xf6);
    m->b = any(entry, 0xf4);
    m->c = any(entry, 0xf0);
    m->d0 = any(entry, 0xa0);
    m->d1 = any(entry, 0xc0);
    m->none = _mm512_testn_epi8_mask(entry, entry);
}

void u3_code_fill_avx512(struct kern *k)
{
    k->u3_code_row = code_row;
}

/* u3_code_avx2.c - compare and movemask, two registers a group. */
#include <stdint.h>

struct lookup {
    uint8_t table[8];
};

#include "compute/body/u3_code.h"
#include "compute/kern.h"

static inline uint64_t mask(__m256i first, __m256i second)
{
    return (uint32_t)_mm256_movemask_epi8(first) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(second) << 32;
}

/* Positions with this value. */
static inline uint64_t same(__m256i first, __m256i second, uint8_t value)
{
    const __m256i all = _mm256_set1_epi8((char)value);
    return mask(_mm256_cmpeq_epi8(first, all), _mm256_cmpeq_epi8(second, all));
}

static inline struct lookup lookup_of(const uint8_t *table)
{
    struct lookup l;
    memcpy(l.table, table, sizeof l.table);
    return l;
}

static inline void split(struct masks *m, uint8_t *low, const uint8_t *from,
                         const struct lookup *l)
{
    const uint8_t *table = l->table;
    const __m256i byte = _mm256_set1_epi16(255);
    const __m256i no_sign = _mm256_set1_epi8(127);
    const __m256i *four = (const __m256i *)from;
    __m256i r0 = _mm256_loadu_si256(four);
    __m256i r1 = _mm256_loadu_si256(four + 1);
    __m256i r2 = _mm256_loadu_si256(four + 2);
    __m256i r3 = _mm256_loadu_si256(four + 3);
    /* Packing within lanes gives the order of positions. */
    __m256i l0 = _mm256_packus_epi16(_mm256_and_si256(r0, byte),
                                     _mm256_and_si256(r2, byte));
    __m256i l1 = _mm256_packus_epi16(_mm256_and_si256(r1, byte),
                                     _mm256_and_si256(r3, byte));
    __m256i h0 = _mm256_packus_epi16(_mm256_srli_epi16(r0, 8),
                                     _mm256_srli_epi16(r2, 8));
    __m256i h1 = _mm256_packus_epi16(_mm256_srli_epi16(r1, 8),
                                     _mm256_srli_epi16(r3, 8));
    _mm256_storeu_si256((__m256i *)low, l0);
    _mm256_storeu_si256((__m256i *)(low + 32), l1);
    m->sign = mask(h0, h1);
    h0 = _mm256_and_si256(h0, no_sign);
    h1 = _mm256_and_si256(h1, no_sign);
    uint64_t is0 = same(h0, h1, table[0]), is1 = same(h0, h1, table[1]);
    uint64_t is2 = same(h0, h1, table[2]), is4 = same(h0, h1, table[4]);
    uint64_t is5 = same(h0, h1, table[5]), is6 = same(h0, h1, table[6]);
    uint64_t is7 = same(h0, h1, table[7]);
    m->a = ~is0 & (is1 | is2 | is4 | is5 | is6 | is7);
    m->b = m->a & ~is1;
    m->c = m->b & ~is2;
    m->d0 = ~is4 & (is5 | (is7 & ~is6));
    m->d1 = ~is4 & ~is5 & (is6 | is7);
    m->none = ~(is0 | m->a);
}

void u3_code_fill_avx2(struct kern *k)
{
    k->u3_code_row = code_row;
}

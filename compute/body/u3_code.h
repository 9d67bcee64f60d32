/* u3_code.h - one row into planes and streams, around what an instruction set
 * brings: split(), which stores the low bytes of 64 columns and makes a mask a
 * bit of the code. pext closes the gaps. See u3.h for the layout. */
#ifndef COMPUTE_BODY_U3_CODE_H
#define COMPUTE_BODY_U3_CODE_H

#include <immintrin.h>
#include <string.h>

#include "compute/u3_encode.h"

/* Bit p of each, for position p of a group: the sign; has the table its value,
 * and not as entry 0; as entry 2 or above; as 4 or above; as one whose D0,
 * whose D1 is set. `none`: the table has it not. Of two equal entries (zeros,
 * where few values occur) the first counts. */
struct masks {
    uint64_t sign, a, b, c, d0, d1, none;
};

/* `struct lookup`, a table as split() wants it, is defined before. */
static inline struct lookup lookup_of(const uint8_t *table);
static inline void split(struct masks *m, uint8_t *low, const uint8_t *from,
                         const struct lookup *l);

static inline uint32_t ones(uint64_t v)
{
    return (uint32_t)__builtin_popcountll(v);
}

/* Bits on their way to a stream: fewer than 8 of them wait in `open`. */
struct pen {
    uint8_t *to;
    uint64_t open;
    uint32_t fill;
};

/* The low n bits of v behind those that wait, n <= 57 and none above them. What
 * is whole of the word is stored; a full word leaves nothing open, and a shift
 * by 64 is none. */
static inline uint64_t store_word(uint8_t *to, uint64_t open, uint64_t v,
                                  uint32_t fill, uint32_t n)
{
    uint64_t word = open | v << fill;
    fill += n;
    memcpy(to, &word, sizeof word);
    return (word >> (fill & 56)) & ((uint64_t)(fill >> 6) - 1);
}

static inline void push(struct pen *p, uint64_t v, uint32_t n)
{
    p->open = store_word(p->to, p->open, v, p->fill, n);
    p->to += (p->fill + n) / 8;
    p->fill = (p->fill + n) % 8;
}

/* Two streams of equal lengths: q has only its open bits and its beginning. */
static inline void push_two(struct pen *p, struct pen *q, ptrdiff_t apart,
                            uint64_t v, uint64_t w, uint32_t n)
{
    q->open = store_word(p->to + apart, q->open, w, p->fill, n);
    push(p, v, n);
}

static inline uint32_t bits_of(const struct pen *p, const uint8_t *from)
{
    return (uint32_t)(p->to - from) * 8 + p->fill;
}

/* Positions of a group as columns of it. */
static uint64_t to_columns(uint64_t at)
{
    uint64_t columns = 0;
    for (int i = 0; i < 4; i++) {
        columns |= (at >> 16 * i & 255) << 8 * i;
        columns |= (at >> (16 * i + 8) & 255) << (32 + 8 * i);
    }
    return columns;
}

static void patch(struct u3_streams *s, const uint8_t *from, uint32_t begin,
                  uint64_t columns)
{
    for (; columns; columns &= columns - 1) {
        uint32_t in = (uint32_t)__builtin_ctzll(columns);
        s->column[s->patches] = (uint16_t)(begin + in);
        s->high[s->patches++] = from[2 * in + 1];
    }
}

/* Positions of the columns below `used`. */
static uint64_t positions_below(uint32_t used)
{
    uint64_t in = 0;
    for (uint32_t p = 0; p < U3_GROUP; p++) {
        uint32_t j = p % 16;
        in |= (uint64_t)(8 * (p / 16) + (j < 8 ? j : 24 + j) < used) << p;
    }
    return in;
}

static void code_row(uint8_t *low, uint8_t *planes, struct u3_streams *s,
                     const void *src, uint32_t cols, const uint8_t *table)
{
    struct pen b = { .to = s->b }, c = { .to = s->c };
    struct pen d0 = { .to = s->d0 }, d1 = { .to = s->d1 };
    const struct lookup lookup = lookup_of(table);
    uint64_t used = ~UINT64_C(0);
    uint8_t last[2 * U3_GROUP];
    s->patches = 0;
    for (uint32_t begin = 0; begin < cols; begin += U3_GROUP) {
        const uint8_t *from = (const uint8_t *)src + 2 * (size_t)begin;
        if (cols - begin < U3_GROUP) {
            memset(last, 0, sizeof last);
            memcpy(last, from, 2 * (size_t)(cols - begin));
            used = positions_below(cols - begin);
            from = last;
        }
        struct masks m;
        split(&m, low + begin, from, &lookup);
        uint64_t a = m.a & used, odd = m.none & used;
        if (__builtin_expect(odd != 0 || ones(a) > U3_ONES_MAX, 0)) {
            while (ones(a) > U3_ONES_MAX) {
                uint64_t top = UINT64_C(1) << (63 - __builtin_clzll(a));
                a ^= top;
                odd |= top;
            }
            patch(s, from, begin, to_columns(odd));
        }
        uint64_t in_b = a & m.b, in_c = a & m.c;
        push(&b, _pext_u64(in_b, a), ones(a));
        push(&c, _pext_u64(in_c, in_b), ones(in_b));
        push_two(&d0, &d1, s->d1 - s->d0, _pext_u64(m.d0, in_c),
                 _pext_u64(m.d1, in_c), ones(in_c));
        memcpy(planes + begin / 4, &m.sign, sizeof m.sign);
        memcpy(planes + begin / 4 + 8, &a, sizeof a);
    }
    s->b_bits = bits_of(&b, s->b);
    s->c_bits = bits_of(&c, s->c);
    s->d_bits = bits_of(&d0, s->d0);
}

#endif

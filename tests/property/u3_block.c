#include "tests/property/u3_block.h"

#include <stdbool.h>
#include <stdlib.h>

#include <assert.h>

static uint32_t up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

static void put32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof value);
}

static void put16(uint8_t *to, uint32_t value)
{
    uint16_t half = (uint16_t)value;
    memcpy(to, &half, sizeof half);
}

/* Bits on their way into a stream. */
struct stream {
    uint8_t bytes[U3_COLS_MAX / 8 + 8];
    uint32_t bits;
};

static void push(struct stream *s, unsigned bit)
{
    if (s->bits % 8 == 0)
        s->bytes[s->bits / 8] = 0;
    s->bytes[s->bits / 8] |= (uint8_t)(bit << s->bits % 8);
    s->bits++;
}

static int index_of(const uint8_t *table, unsigned value)
{
    for (int i = 0; i < 8; i++)
        if (i != 3 && table[i] == value)
            return i;
    return -1;
}

/* One row: low bytes and planes to their places, the rest appended at `v`.
 * Returns the bytes appended, and the row's entry in the row table. */
static uint32_t row(uint8_t *entry, uint8_t *low, uint8_t *planes, uint8_t *v,
                    const uint8_t *src, uint32_t cols, const uint8_t *table)
{
    static struct stream b, c, d0, d1;
    static uint8_t patch[U3_COLS_MAX];
    b.bits = c.bits = d0.bits = d1.bits = 0;
    memset(patch, 0, cols);
    for (uint32_t g = 0; g < up(cols, 64) / 64; g++) {
        uint64_t sign = 0, a = 0;
        unsigned ones = 0;
        for (uint32_t p = 0; p < 64; p++) {
            uint32_t i = p / 16, j = p % 16;
            uint32_t at = 64 * g + (j < 8 ? 8 * i + j : 32 + 8 * i + j - 8);
            low[64 * g + p] = 0;
            if (at >= cols)
                continue;
            low[64 * g + p] = src[2 * at];
            unsigned high = src[2 * at + 1];
            sign |= (uint64_t)(high >> 7) << p;
            int index = index_of(table, high & 127);
            if (index < 0 || (index > 0 && ones == U3_ONES_MAX)) {
                patch[at] = 1;
                index = 0;
            }
            if (index == 0)
                continue;
            a |= 1ull << p;
            ones++;
            push(&b, index > 1);
            if (index > 1)
                push(&c, index > 2);
            if (index > 2) {
                push(&d0, (unsigned)index & 1);
                push(&d1, (unsigned)index >> 1 & 1);
            }
        }
        memcpy(planes + 16 * g, &sign, 8);
        memcpy(planes + 16 * g + 8, &a, 8);
    }
    struct stream *all[4] = { &b, &c, &d0, &d1 };
    uint32_t n = 0, bytes = 0;
    for (int s = 0; s < 4; s++) {
        memcpy(v + bytes, all[s]->bytes, (all[s]->bits + 7) / 8);
        bytes += (all[s]->bits + 7) / 8;
    }
    for (uint32_t at = 0; at < cols; at++)
        if (patch[at])
            put16(v + bytes + 2 * n++, at);
    for (uint32_t at = 0, i = 0; at < cols; at++)
        if (patch[at])
            v[bytes + 2 * n + i++] = src[2 * at + 1];
    put16(entry + 4, (b.bits + 7) / 8);
    put16(entry + 6, (c.bits + 7) / 8);
    put16(entry + 8, (d0.bits + 7) / 8);
    put16(entry + 10, n);
    return bytes + 3 * n;
}

void *u3_block(const void *src, uint32_t rows, uint32_t cols,
               const uint8_t (*table)[8], uint32_t tables)
{
    uint32_t w = up(cols, 64), s_at = up(64 + rows * 12, 64);
    uint32_t p_at = s_at + rows * w, v_at = up(p_at + rows * w / 4, 64);
    uint32_t end = 0, patches = 0;
    uint8_t *block = calloc(1, v_at + (size_t)rows * (cols * 4 + 16) + 128);
    assert(block && cols <= U3_COLS_MAX && rows <= U3_ROWS_MAX);
    block[0] = U3_CODED;
    block[1] = (uint8_t)tables;
    put16(block + 2, rows);
    put32(block + 4, cols);
    put32(block + 8, p_at);
    put32(block + 12, v_at);
    for (uint32_t t = 0; t < tables; t++) {
        memcpy(block + 32 + 8 * t, table[t], 8);
        block[32 + 8 * t + 3] = 0;
    }
    for (uint32_t r = 0; r < rows; r++) {
        uint8_t *entry = block + 64 + 12 * r;
        put32(entry, end | (r % tables) << 30);
        end += row(entry, block + s_at + r * w, block + p_at + r * w / 4,
                   block + v_at + end, (const uint8_t *)src + 2ull * r * cols,
                   cols, block + 32 + 8 * (r % tables));
        patches += u3_get16(entry + 10);
    }
    uint32_t bytes = up(v_at + end + 8, 64);
    put32(block + 16, bytes);
    put32(block + 20, patches);
    /* Nothing readable behind it, as far as a sanitizer can tell. */
    uint8_t *out = aligned_alloc(64, bytes);
    assert(out);
    memcpy(out, block, bytes);
    free(block);
    assert(!u3_check(out, bytes, rows, cols));
    return out;
}

void u3_block_table(uint8_t table[8], const void *src, uint32_t rows,
                    uint32_t cols, uint32_t first, uint32_t step)
{
    static const uint8_t place[7] = { 0, 1, 2, 4, 5, 6, 7 };
    uint32_t seen[128] = { 0 };
    for (uint32_t r = first; r < rows; r += step)
        for (uint32_t c = 0; c < cols; c++) {
            size_t at = (size_t)r * cols + c;
            seen[((const uint8_t *)src)[2 * at + 1] & 127]++;
        }
    memset(table, 0, 8);
    for (unsigned i = 0; i < 7; i++) {
        unsigned best = 0;
        for (unsigned v = 1; v < 128; v++)
            if (seen[v] > seen[best])
                best = v;
        table[place[i]] = (uint8_t)best;
        seen[best] = 0;
    }
}

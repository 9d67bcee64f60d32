#include "compute/s5.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum { FIVES = 243 };

size_t s5_row_bytes(unsigned mode, size_t n)
{
    switch (mode) {
    case 5:
        return (n + 4) / 5;
    case 2:
        return (n + 3) / 4;
    case 4:
        return (n + 1) / 2;
    case 8:
        return n;
    }
    return 0;
}

/* ---- coding ---- */

/* The `count` values that occur most, in falling order, the smaller first where
 * they tie; a value that does not occur is 0. Returns how many scales are none
 * of them. */
static size_t most_frequent(uint8_t *palette, unsigned count,
                            const uint32_t seen[256], size_t all)
{
    bool taken[256] = { false };
    size_t covered = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned best = 0;
        for (unsigned v = 1; v < 256; v++)
            if (!taken[v] && (taken[best] || seen[v] > seen[best]))
                best = v;
        taken[best] = true;
        palette[i] = seen[best] ? (uint8_t)best : 0;
        covered += seen[best];
    }
    return all - covered;
}

void s5_choose(struct s5 *out, const uint8_t *scale, size_t rows, size_t n)
{
    const size_t all = rows * n;
    uint32_t seen[256] = { 0 };
    assert(all && all <= S5_PLANE_MAX);
    for (size_t i = 0; i < all; i++)
        seen[scale[i]]++;
    *out = (struct s5){ .mode = 8 };
    size_t least = all;
    unsigned low = 0, high = 255;
    while (!seen[low])
        low++;
    while (!seen[high])
        high--;
    if (high - low < 16 && rows * s5_row_bytes(4, n) < least) {
        *out = (struct s5){ .mode = 4, .palette = { (uint8_t)low } };
        least = rows * s5_row_bytes(4, n);
    }
    for (unsigned values = 4; values >= 3; values--) {
        struct s5 s = { .mode = values == 3 ? 5 : 2 };
        size_t patches = most_frequent(s.palette, values, seen, all);
        size_t bytes = rows * s5_row_bytes(s.mode, n) + 4 * patches;
        s.patches = (uint32_t)patches;
        if (patches > S5_PATCHES_MAX || bytes > least)
            continue;
        *out = s;
        least = bytes;
    }
}

static unsigned values_of(const struct s5 *s)
{
    return s->mode == 5 ? 3 : s->mode == 2 ? 4 : 0;
}

/* Where a value is in the palette; 0 too for one that is not. */
static void index_of(uint8_t index[256], bool known[256], const struct s5 *s)
{
    memset(index, 0, 256);
    memset(known, 0, 256 * sizeof *known);
    for (unsigned i = values_of(s); i-- > 0;) {
        index[s->palette[i]] = (uint8_t)i;
        known[s->palette[i]] = true;
    }
}

static void code_row(uint8_t *to, const struct s5 *s, const uint8_t *index,
                     const uint8_t *scale, size_t n)
{
    const size_t bytes = s5_row_bytes(s->mode, n);
    const unsigned step = s->mode == 5 ? 5 : s->mode == 2 ? 4 : 2;
    if (s->mode == 8) {
        memcpy(to, scale, n);
        return;
    }
    for (size_t k = 0; k < bytes; k++) {
        unsigned byte = 0, place = 1;
        for (size_t i = step * k; i < step * (k + 1) && i < n; i++) {
            unsigned value = s->mode == 4 ? scale[i] - s->palette[0]
                                          : index[scale[i]];
            byte += value * place;
            place *= s->mode == 5 ? 3 : s->mode == 2 ? 4 : 16;
        }
        to[k] = (uint8_t)byte;
    }
}

void s5_code(uint8_t *packed, uint8_t *patch, const struct s5 *s,
             const uint8_t *scale, size_t rows, size_t n)
{
    uint8_t index[256];
    bool known[256];
    index_of(index, known, s);
    for (size_t r = 0; r < rows; r++)
        code_row(packed + r * s5_row_bytes(s->mode, n), s, index, scale + r * n,
                 n);
    uint32_t count = 0;
    for (size_t i = 0; i < rows * n && values_of(s); i++) {
        if (known[scale[i]])
            continue;
        uint32_t word = (uint32_t)i | (uint32_t)scale[i] << 24;
        memcpy(patch + 4 * (size_t)count++, &word, sizeof word);
    }
    assert(count == s->patches);
}

/* ---- decoding ---- */

const char *s5_check(const struct s5 *s, const uint8_t *packed,
                     const uint8_t *patch, size_t rows, size_t n)
{
    const size_t bytes = rows * s5_row_bytes(s->mode, n);
    if (!bytes || rows * n > S5_PLANE_MAX)
        return "a mode that is not known";
    if (s->patches && !values_of(s))
        return "patches in a mode without";
    if (s->mode == 5) {
        uint8_t max = 0;
        for (size_t i = 0; i < bytes; i++)
            max = packed[i] > max ? packed[i] : max;
        if (max >= FIVES)
            return "a byte above 242";
    }
    uint32_t before = 0;
    for (uint32_t i = 0; i < s->patches; i++) {
        uint32_t word;
        memcpy(&word, patch + 4 * (size_t)i, sizeof word);
        word &= 0xffffff;
        if (word >= rows * n || (i && word <= before))
            return "patches that are out of order";
        before = word;
    }
    return NULL;
}

/* What each byte stands for, in steps of 5 scales of a word of 8. */
static void five_words(uint64_t word[256], const uint8_t *palette)
{
    for (unsigned byte = 0; byte < FIVES; byte++) {
        unsigned rest = byte;
        word[byte] = 0;
        for (unsigned i = 0; i < 5; i++, rest /= 3)
            word[byte] |= (uint64_t)palette[rest % 3] << 8 * i;
    }
    for (unsigned byte = FIVES; byte < 256; byte++)
        word[byte] = 0;
}

/* Words of 8 bytes, each 5 after the last, as long as they stay in the plane;
 * what a word writes too much the next one, or the next row, mends. */
static void expand_fives(uint8_t *scale, const uint8_t *palette,
                         const uint8_t *packed, size_t rows, size_t n)
{
    uint64_t word[256];
    const size_t row_bytes = s5_row_bytes(5, n);
    const uint8_t *end = scale + rows * n;
    five_words(word, palette);
    for (size_t r = 0; r < rows; r++) {
        uint8_t *to = scale + r * n;
        const uint8_t *from = packed + r * row_bytes;
        size_t k = 0;
        size_t fit = (size_t)(end - to) / 5;
        size_t whole = row_bytes < fit ? row_bytes : fit;
        while (whole && to + 5 * (whole - 1) + 8 > end)
            whole--;
        for (; k < whole; k++)
            memcpy(to + 5 * k, &word[from[k]], 8);
        for (; k < row_bytes; k++)
            for (size_t i = 5 * k; i < 5 * k + 5 && i < n; i++)
                to[i] = (uint8_t)(word[from[k]] >> 8 * (i - 5 * k));
    }
}

static void expand_row(uint8_t *to, const struct s5 *s, const uint8_t *from,
                       size_t n)
{
    if (s->mode == 2)
        for (size_t i = 0; i < n; i++)
            to[i] = s->palette[from[i / 4] >> i % 4 * 2 & 3];
    else if (s->mode == 4)
        for (size_t i = 0; i < n; i++)
            to[i] = (uint8_t)(s->palette[0] + (from[i / 2] >> i % 2 * 4 & 15));
    else
        memcpy(to, from, n);
}

void s5_patch(uint8_t *scale, const uint8_t *patch, uint32_t patches)
{
    for (uint32_t i = 0; i < patches; i++) {
        uint32_t word;
        memcpy(&word, patch + 4 * (size_t)i, sizeof word);
        scale[word & 0xffffff] = (uint8_t)(word >> 24);
    }
}

void s5_expand(uint8_t *scale, const struct s5 *s, const uint8_t *packed,
               const uint8_t *patch, size_t rows, size_t n)
{
    if (s->mode == 5)
        expand_fives(scale, s->palette, packed, rows, n);
    else
        for (size_t r = 0; r < rows; r++)
            expand_row(scale + r * n, s,
                       packed + r * s5_row_bytes(s->mode, n), n);
    s5_patch(scale, patch, s->patches);
}

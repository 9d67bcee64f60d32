#include "compute/pack.h"

#include <assert.h>

enum {
    CROWD = 4096 / sizeof(float), /* bytes that one way of an L1 covers */
    SPREAD = 192, /* 12 lines: six rows of a tile fill the way evenly */
};

static size_t whole_blocks(size_t cols)
{
    return (cols + PACK_BLOCK - 1) / PACK_BLOCK * PACK_BLOCK;
}

size_t pack_cols(size_t cols)
{
    size_t floats = whole_blocks(cols);
    return floats % CROWD == 0 ? floats + SPREAD : floats;
}

static void pack_block(float *restrict to, const float *restrict from)
{
    for (size_t l = 0; l < PACK_BLOCK / 2; l++) {
        to[l] = from[2 * l];
        to[PACK_BLOCK / 2 + l] = from[2 * l + 1];
    }
}

void pack_rows(float *packed, const float *x, size_t rows, size_t cols,
               size_t ldx)
{
    assert(ldx >= cols);
    const size_t ld = pack_cols(cols), whole = cols / PACK_BLOCK * PACK_BLOCK;
    for (size_t r = 0; r < rows; r++) {
        float *to = packed + r * ld;
        const float *from = x + r * ldx;
        for (size_t c = 0; c < whole; c += PACK_BLOCK)
            pack_block(to + c, from + c);
        if (whole < cols) {
            float tail[PACK_BLOCK] = { 0 };
            for (size_t c = whole; c < cols; c++)
                tail[c - whole] = from[c];
            pack_block(to + whole, tail);
        }
    }
}

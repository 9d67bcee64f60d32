/* gemm_body.h - a matrix product in sixteen lanes, for any form of weights.
 *
 * Included after a lanes_*.h by the files that know a form, which define before
 * it
 *     WEIGHT_BITS          of one stored weight, without its scale
 *     TILE_X               activation rows of a register tile
 *     DIRECT_ROWS          see below
 * and after it
 *     pair_at(a, o, b)     columns b .. b+31 of weight row o
 *     pair_tail(a, o, b)   the same for a last, partial block
 *
 * Up to DIRECT_ROWS activation rows, memory is the limit: four weight rows at a
 * time, each unpacked in registers and multiplied on the spot.
 *
 * More rows: the multipliers are the limit, and unpacking competes with them.
 * PANEL weight rows by CHUNK columns are unpacked once into a buffer in L1 and
 * serve all activation rows. The sums of a chunk wait in memory for the next
 * one: a store keeps a float as it is, so the order of summation is the same.
 */
#include <string.h>

#include "compute/kern.h"
#include "compute/pack.h"

enum {
    TILE_W = 4, /* weight rows of a register tile */
    PANEL = 16,
    CHUNK = 512,
    STRIPE = 48, /* activation rows whose sums wait at a time */
    LINE = 64,
    BLOCK_BYTES = PACK_BLOCK * WEIGHT_BITS / 8,
    /* How far ahead of the loads few rows ask for weights: about what one core
     * has in flight, twice. */
    AHEAD_BYTES = 8192,
};

struct pair {
    vf even, odd;
};

struct product {
    float *y; /* of the first row and output */
    size_t ldy;
    const char *w;
    const uint8_t *scale;
    size_t stride;       /* bytes in a row of w */
    size_t scale_stride; /* bytes in a row of scale */
    size_t cols, ld;
    const float *xp;
};

struct panel {
    _Alignas(LINE) float w[PANEL][CHUNK];
    _Alignas(LINE) float sum[STRIPE][PANEL][LANES];
};

LANE_FN struct pair pair_at(const struct product *a, size_t o, size_t b);
LANE_FN struct pair pair_tail(const struct product *a, size_t o, size_t b);

static bool finite(const struct product *a, size_t rows, size_t outputs)
{
    float bad = 0.0f;
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < outputs; o++)
            bad += a->y[r * a->ldy + o] * 0.0f;
    return bad == 0.0f;
}

/* Ask for what wn rows from o will need AHEAD_BYTES from here: rows lie one
 * after the other, so the bytes do too. Beyond the matrix this does nothing. */
LANE_FN void fetch_ahead(const struct product *a, size_t o, size_t wn, size_t b)
{
    const char *at = a->w + o * a->stride + AHEAD_BYTES +
                     b / PACK_BLOCK * BLOCK_BYTES * wn;
    UNROLL for (size_t i = 0; i < wn * BLOCK_BYTES; i += LINE)
        __builtin_prefetch(at + i, 0, 2);
}

/* ---- few rows ---- */

LANE_FN void direct_block(vf (*sum)[DIRECT_ROWS], const struct pair *pair,
                          const float *x, size_t ld, size_t wn, size_t xn)
{
    UNROLL for (size_t j = 0; j < xn; j++) {
        vf even = vf_load(x + j * ld), odd = vf_load(x + j * ld + LANES);
        UNROLL for (size_t i = 0; i < wn; i++) {
            sum[i][j] = vf_fma(pair[i].even, even, sum[i][j]);
            sum[i][j] = vf_fma(pair[i].odd, odd, sum[i][j]);
        }
    }
}

/* Weight rows [o, o+wn) times all xn activation rows. */
LANE_FN void direct(const struct product *a, size_t o, size_t wn, size_t xn)
{
    const size_t whole = a->cols / PACK_BLOCK * PACK_BLOCK;
    struct pair pair[TILE_W];
    vf sum[TILE_W][DIRECT_ROWS];
    UNROLL for (size_t i = 0; i < wn; i++)
        UNROLL for (size_t j = 0; j < xn; j++)
            sum[i][j] = vf_set(0.0f);
    for (size_t b = 0; b < whole; b += PACK_BLOCK) {
        UNROLL for (size_t i = 0; i < wn; i++)
            pair[i] = pair_at(a, o + i, b);
        fetch_ahead(a, o, wn, b);
        direct_block(sum, pair, a->xp + b, a->ld, wn, xn);
    }
    if (whole < a->cols) {
        UNROLL for (size_t i = 0; i < wn; i++)
            pair[i] = pair_tail(a, o + i, whole);
        direct_block(sum, pair, a->xp + whole, a->ld, wn, xn);
    }
    UNROLL for (size_t j = 0; j < xn; j++) {
        float *y = a->y + j * a->ldy + o;
        if (wn == TILE_W) {
            vf_fold4(y, sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
        } else {
            UNROLL for (size_t i = 0; i < wn; i++)
                y[i] = vf_fold(sum[i][j]);
        }
    }
}

LANE_FN void direct_rows(const struct product *a, size_t outputs, size_t xn)
{
    size_t o = 0;
    for (; o + TILE_W <= outputs; o += TILE_W)
        direct(a, o, TILE_W, xn);
    for (; o < outputs; o++)
        direct(a, o, 1, xn);
}

/* ---- more rows ---- */

/* Weight rows [o, o+count), columns [b, b+n), to the panel; rows up to the next
 * multiple of TILE_W are zero. */
static void unpack(const struct product *a, struct panel *p, size_t o,
                   size_t count, size_t b, size_t n)
{
    for (size_t i = 0; i < (count + TILE_W - 1) / TILE_W * TILE_W; i++)
        for (size_t c = 0; c < n; c += PACK_BLOCK) {
            struct pair pair = { vf_set(0.0f), vf_set(0.0f) };
            if (i < count)
                pair = n - c >= PACK_BLOCK ? pair_at(a, o + i, b + c)
                                           : pair_tail(a, o + i, b + c);
            vf_store(p->w[i] + c, pair.even);
            vf_store(p->w[i] + c + LANES, pair.odd);
        }
}

/* What comes after the chunk at hand: `rows` of every TILE_W weight rows from
 * `at`. The groups of activation rows share the asking between them. */
struct next {
    const char *at;
    size_t rows;
};

/* TILE_W panel rows from i times xn activation rows, n packed columns at x. The
 * sums are read from `sum`, or start at zero, and go back there. */
LANE_FN void tile(const struct product *a, const struct panel *p, size_t i,
                  const float *x, float (*sum)[PANEL][LANES], size_t n,
                  bool first, size_t xn, struct next next)
{
    const char *at = next.at + i * a->stride;
    for (size_t h = 0; h < LANES; h += REG) {
        reg s[TILE_W][TILE_X];
        UNROLL for (size_t j = 0; j < xn; j++)
            UNROLL for (size_t k = 0; k < TILE_W; k++)
                s[k][j] = first ? (reg){ 0 } : reg_load(&sum[j][i + k][h]);
        for (size_t c = h; c < n; c += LANES) {
            reg w[TILE_W];
            UNROLL for (size_t k = 0; k < TILE_W; k++)
                w[k] = reg_load(p->w[i + k] + c);
            UNROLL for (size_t j = 0; j < xn; j++) {
                reg xj = reg_load(x + j * a->ld + c);
                UNROLL for (size_t k = 0; k < TILE_W; k++)
                    s[k][j] = reg_fma(w[k], xj, s[k][j]);
            }
            if (h == 0 && c * WEIGHT_BITS / 8 % LINE == 0)
                for (size_t k = 0; k < next.rows; k++)
                    __builtin_prefetch(at + k * a->stride + c * WEIGHT_BITS / 8,
                                       0, 2);
        }
        UNROLL for (size_t j = 0; j < xn; j++)
            UNROLL for (size_t k = 0; k < TILE_W; k++)
                reg_store(&sum[j][i + k][h], s[k][j]);
    }
}

#define TILE_CASE(m)                                                         \
    case m:                                                                  \
        for (size_t i = 0; i < count; i += TILE_W)                           \
            tile(a, p, i, x, sum, n, first, m, next);                        \
        break

/* The unpacked chunk times xn <= TILE_X activation rows. */
static void tiles(const struct product *a, const struct panel *p, size_t count,
                  const float *x, float (*sum)[PANEL][LANES], size_t n,
                  bool first, size_t xn, struct next next)
{
    switch (xn) {
        TILE_CASE(1);
        TILE_CASE(2);
        TILE_CASE(3);
#if TILE_X >= 6
        TILE_CASE(4);
        TILE_CASE(5);
        TILE_CASE(6);
#endif
    }
}

/* Weight rows [o, o+count) times activation rows [r, r+rows), rows <= STRIPE.
 * Groups of activation rows differ by one at most: six rows and one would leave
 * the second group bound by loads. */
static void stripe(const struct product *a, struct panel *p, size_t o,
                   size_t count, size_t r, size_t rows)
{
    const size_t groups = (rows + TILE_X - 1) / TILE_X;
    for (size_t b = 0; b < a->cols; b += CHUNK) {
        size_t n = a->cols - b < CHUNK ? a->cols - b : CHUNK;
        size_t packed = (n + PACK_BLOCK - 1) / PACK_BLOCK * PACK_BLOCK;
        const char *at = a->w + o * a->stride;
        at += b + CHUNK < a->cols ? (b + CHUNK) * WEIGHT_BITS / 8
                                  : PANEL * a->stride;
        unpack(a, p, o, count, b, n);
        for (size_t g = 0; g < groups; g++) {
            size_t from = rows * g / groups, to = rows * (g + 1) / groups;
            size_t share = TILE_W * (g + 1) / groups - TILE_W * g / groups;
            struct next next = { at + TILE_W * g / groups * a->stride, share };
            tiles(a, p, count, a->xp + (r + from) * a->ld + b, p->sum + from,
                  packed, b == 0, to - from, next);
        }
    }
    for (size_t j = 0; j < rows; j++)
        for (size_t i = 0; i < count; i++)
            a->y[(r + j) * a->ldy + o + i] = vf_fold(vf_load(p->sum[j][i]));
}

static bool product(const struct product *a, size_t rows, size_t outputs)
{
    if (rows == 1) {
        direct_rows(a, outputs, 1);
        return finite(a, rows, outputs);
    }
#if DIRECT_ROWS >= 2
    if (rows == 2) {
        direct_rows(a, outputs, 2);
        return finite(a, rows, outputs);
    }
#endif
    struct panel p;
    for (size_t o = 0; o < outputs; o += PANEL) {
        size_t count = outputs - o < PANEL ? outputs - o : PANEL;
        for (size_t r = 0; r < rows; r += STRIPE)
            stripe(a, &p, o, count, r, rows - r < STRIPE ? rows - r : STRIPE);
    }
    return finite(a, rows, outputs);
}

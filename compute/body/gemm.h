/* gemm.h - a matrix product in sixteen lanes, for any form of weights.
 *
 * Included after a lanes_*.h by the files that know a form, which define before
 * it
 *     WEIGHT_BITS          of one stored weight, without its scale
 *     TILE_X               activation rows of a register tile
 *     DIRECT_ROWS          see below
 * and after it, themselves or by rows.h,
 *     direct(a, o, wn, xn)     few activation rows
 *     unpack(a, p, o, count, b, n)   a panel for more of them
 *
 * Up to DIRECT_ROWS activation rows, memory is the limit: four weight rows at a
 * time, each unpacked in registers and multiplied on the spot.
 *
 * More rows: the multipliers are the limit, and unpacking competes with them.
 * CHUNK columns of four weight rows are unpacked once into a panel in L1 and
 * serve all activation rows. The sums of a chunk wait in memory for the next
 * one: a store keeps a float as it is, so the order of summation is the same.
 *
 * What binds, on a Sapphire Rapids core, AVX-512: a tile with all in L1 runs at
 * 95 % of the fma peak, with sums and x from L2 at 80 to 85; the unpacking adds
 * a fifth to 16 rows and a twentieth to 64. Weights already in L2 or still in
 * memory give the same figure, so memory does not bind from 16 rows on. A
 * neighbour on the core's other thread costs 10 to 15 points more, most where x
 * and the weights of a band want a megabyte of L2 (16 rows of 7168 columns).
 */
#include <string.h>

#include "compute/kern.h"
#include "compute/pack.h"

enum {
    TILE_W = 4, /* weight rows of a register tile */
    CHUNK = 768, /* of four rows: a quarter of L1, which x and sums share */
    BAND = 32, /* weight rows whose sums wait at a time */
    STRIPE = 64, /* and activation rows */
    LINE = 64,
    LINE_COLS = LINE * 8 / WEIGHT_BITS, /* weights in a cache line */
    BLOCK_BYTES = PACK_BLOCK * WEIGHT_BITS / 8,
    /* How far ahead of the loads few rows ask for weights: a good deal more
     * than one core has in flight, so that a pause is caught up with; little of
     * what a thread takes at a time, whose end it runs past. */
    AHEAD_BYTES = 24576 * WEIGHT_BITS / 8,
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
    struct coded *coded; /* body/u3.h; else NULL */
};

/* The sums of a register tile lie together: apart by a power of two they would
 * fight for the same lines of L1. */
struct panel {
    _Alignas(LINE) float w[TILE_W][CHUNK];
    _Alignas(LINE) float sum[BAND / TILE_W][STRIPE][TILE_W][LANES];
};

/* Weight rows [o, o+wn) times all xn activation rows, to y. */
LANE_FN void direct(const struct product *a, size_t o, size_t wn, size_t xn);
/* Weight rows [o, o+count), columns [b, b+n), to the panel; count may be more
 * than its TILE_W. Columns are padded to whole blocks with any finite weight;
 * of the rows past `count` anything will do. A row of a band is unpacked from
 * b = 0 up. */
static void unpack(const struct product *a, struct panel *p, size_t o,
                   size_t count, size_t b, size_t n);

static bool all_finite(const struct product *a, size_t rows, size_t outputs)
{
    float bad = 0.0f;
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < outputs; o++)
            bad += a->y[r * a->ldy + o] * 0.0f;
    return bad == 0.0f;
}

/* Ask for what wn rows from w will need AHEAD_BYTES from here: rows lie one
 * after the other, so the bytes do too. Beyond the matrix this does nothing. */
LANE_FN void fetch_ahead(const void *w, size_t wn, size_t b)
{
    const char *at = w;
    at += AHEAD_BYTES + b / PACK_BLOCK * BLOCK_BYTES * wn;
    UNROLL for (size_t i = 0; i < wn * BLOCK_BYTES; i += LINE)
        __builtin_prefetch(at + i, 0, 2);
}

/* ---- few rows ---- */

/* One block of one weight row times xn activation rows. */
LANE_FN void direct_block(vf *sum, struct pair pair, const float *x, size_t ld,
                          size_t xn)
{
    UNROLL for (size_t j = 0; j < xn; j++) {
        sum[j] = vf_fma(pair.even, vf_load(x + j * ld), sum[j]);
        sum[j] = vf_fma(pair.odd, vf_load(x + j * ld + LANES), sum[j]);
    }
    /* Load x again for the next weight row: twelve registers of it would not
     * fit beside the sums. */
    if (xn > 1)
        __asm__ volatile("" : : : "memory");
}

/* The sums of direct(): folded, to y. */
LANE_FN void direct_end(const struct product *a, size_t o,
                        vf (*sum)[DIRECT_ROWS], size_t wn, size_t xn)
{
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

#define DIRECT_CASE(m)                                                       \
    case m:                                                                  \
        for (; o + TILE_W <= outputs; o += TILE_W)                           \
            direct(a, o, TILE_W, m);                                         \
        for (; o < outputs; o++)                                             \
            direct(a, o, 1, m);                                              \
        break

static void direct_rows(const struct product *a, size_t outputs, size_t rows)
{
    size_t o = 0;
    switch (rows) {
        DIRECT_CASE(1);
#if DIRECT_ROWS >= 2
        DIRECT_CASE(2);
#endif
#if DIRECT_ROWS >= 4
        DIRECT_CASE(3);
        DIRECT_CASE(4);
#endif
#if DIRECT_ROWS >= 6
        DIRECT_CASE(5);
        DIRECT_CASE(6);
#endif
    }
}

/* ---- more rows ---- */

/* One register tile's work: the panel at w times activation rows at x, `cols`
 * packed columns of each. The sums are read from `sum`, or start at zero, and
 * go back there. While at it, ask for `fetch` rows of the weights that come
 * after this panel. */
struct job {
    const float *w, *x;
    size_t ld, cols;
    float (*sum)[TILE_W][LANES];
    bool first;
    const char *next;
    size_t stride, fetch;
};

LANE_FN void tile(const struct job *t, size_t xn)
{
    const float *w = t->w, *x = t->x;
    const size_t ld = t->ld, cols = t->cols, fetch = t->fetch;
    const size_t stride = t->stride;
    const char *next = t->next;
    float (*sum)[TILE_W][LANES] = t->sum;
    for (size_t h = 0; h < LANES; h += REG) {
        reg s[TILE_W][TILE_X];
        UNROLL for (size_t j = 0; j < xn; j++)
            UNROLL for (size_t k = 0; k < TILE_W; k++)
                s[k][j] = t->first ? (reg){ 0 } : reg_load(&sum[j][k][h]);
        for (size_t c = 0; c < cols; c += PACK_BLOCK) {
            if (h == 0 && c % LINE_COLS == 0) {
                for (size_t k = 0; k < fetch; k++)
                    __builtin_prefetch(next + k * stride, 0, 2);
                next += LINE;
            }
            UNROLL for (size_t half = 0; half < PACK_BLOCK; half += LANES) {
                reg wk[TILE_W];
                UNROLL for (size_t k = 0; k < TILE_W; k++)
                    wk[k] = reg_load(w + k * CHUNK + c + half + h);
                UNROLL for (size_t j = 0; j < xn; j++) {
                    reg xj = reg_load(x + j * ld + c + half + h);
                    UNROLL for (size_t k = 0; k < TILE_W; k++)
                        s[k][j] = reg_fma(wk[k], xj, s[k][j]);
                }
            }
        }
        UNROLL for (size_t j = 0; j < xn; j++)
            UNROLL for (size_t k = 0; k < TILE_W; k++)
                reg_store(&sum[j][k][h], s[k][j]);
    }
}

/* A function each: their loops need all the registers there are. */
#define TILE(n)                                                              \
    static __attribute__((noinline)) void tile_##n(const struct job *t)      \
    {                                                                        \
        tile(t, n);                                                          \
    }
TILE(1)
TILE(2)
TILE(3)
#if TILE_X == 6
TILE(4)
TILE(5)
TILE(6)
#endif

static void (*const tile_of[TILE_X + 1])(const struct job *t) = {
    NULL,   tile_1, tile_2, tile_3,
#if TILE_X == 6
    tile_4, tile_5, tile_6,
#endif
};

/* Where the weights lie that follow row i of a band, column b, in the order in
 * which band() takes them. */
static const char *after(const struct product *a, size_t o, size_t count,
                         size_t i, size_t b)
{
    i += TILE_W;
    if (i >= count) {
        i = 0;
        b += CHUNK;
    }
    if (b >= a->cols) {
        i = count;
        b = 0;
    }
    return a->w + (o + i) * a->stride + b / PACK_BLOCK * BLOCK_BYTES;
}

/* The panel, which is of row i of the band, column b, times all rows of the
 * stripe. Groups of activation rows differ by one at most: six rows and one
 * would leave the second group bound by loads. */
static void multiply(const struct product *a, struct panel *p, size_t i,
                     size_t r, size_t rows, size_t b, size_t n,
                     const char *next)
{
    const size_t groups = (rows + TILE_X - 1) / TILE_X;
    for (size_t g = 0; g < groups; g++) {
        size_t from = rows * g / groups, to = rows * (g + 1) / groups;
        size_t skip = TILE_W * g / groups; /* the groups share the asking */
        const struct job t = {
            .w = p->w[0],
            .x = a->xp + (r + from) * a->ld + b,
            .ld = a->ld,
            .cols = (n + PACK_BLOCK - 1) / PACK_BLOCK * PACK_BLOCK,
            .sum = &p->sum[i / TILE_W][from],
            .first = b == 0,
            .next = next + skip * a->stride,
            .stride = a->stride,
            .fetch = TILE_W * (g + 1) / groups - skip,
        };
        tile_of[to - from](&t);
    }
}

/* Weight rows [o, o+count), count <= BAND, times activation rows [r, r+rows),
 * rows <= STRIPE. */
static void band(const struct product *a, struct panel *p, size_t o,
                 size_t count, size_t r, size_t rows)
{
    for (size_t b = 0; b < a->cols; b += CHUNK)
        for (size_t i = 0; i < count; i += TILE_W) {
            size_t n = a->cols - b < CHUNK ? a->cols - b : CHUNK;
            unpack(a, p, o + i, count - i, b, n);
            multiply(a, p, i, r, rows, b, n, after(a, o, count, i, b));
        }
    for (size_t j = 0; j < rows; j++)
        for (size_t i = 0; i < count; i += TILE_W) {
            float *y = a->y + (r + j) * a->ldy + o + i;
            float (*sum)[LANES] = p->sum[i / TILE_W][j];
            if (i + TILE_W <= count)
                vf_fold4(y, vf_load(sum[0]), vf_load(sum[1]), vf_load(sum[2]),
                         vf_load(sum[3]));
            else
                for (size_t k = 0; i + k < count; k++)
                    y[k] = vf_fold(vf_load(sum[k]));
        }
}

static bool product(const struct product *a, size_t rows, size_t outputs)
{
    if (rows <= DIRECT_ROWS) {
        direct_rows(a, outputs, rows);
        return all_finite(a, rows, outputs);
    }
    const size_t stripes = (rows + STRIPE - 1) / STRIPE;
    struct panel p;
    for (size_t o = 0; o < outputs; o += BAND) {
        size_t count = outputs - o < BAND ? outputs - o : BAND;
        for (size_t s = 0; s < stripes; s++) {
            size_t r = rows * s / stripes;
            band(a, &p, o, count, r, rows * (s + 1) / stripes - r);
        }
    }
    return all_finite(a, rows, outputs);
}

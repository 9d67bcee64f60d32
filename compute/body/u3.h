/* u3.h - decoding U3 blocks, and products with them, in sixteen lanes.
 *
 * Included by u3_*.c of an instruction set after gemm.h, with WEIGHT_BITS 8:
 * what gemm.h asks for ahead are the low bytes. Those files define before it
 *     bytes                        64 high bytes or indices, in positions
 *     bytes_of(a, b, c, d0, d1, sign, table, alone)
 *                                  the planes' indices, looked up; `alone`: no
 *                                  product goes on beside it
 *     bytes_set(v, p, byte)        v with one byte replaced
 *     struct halves, halves_of(v, low)    64 bf16 in the order of columns
 *     halves_store(to, h)          128 bytes
 *     halves_pair(h, k)            columns 32k .. 32k+31 as floats
 *
 * A group of 64 weights is some thirty integer operations, most of them on
 * positions in three bit streams; only pdep depends on the one before. Its
 * bits go to the vector side as four words.
 */
#include "compute/u3.h"

/* How far ahead one row after the other asks for low bytes, and for planes and
 * streams, of which there are a quarter. Measured: half and three times as far
 * cost a twentieth. */
enum { LOW_AHEAD = 8192, PLANES_AHEAD = LOW_AHEAD / 4 };

/* Where decoding stands in one row of a block. Kept in locals: vector stores
 * may alias anything else. */
struct cursor {
    const uint8_t *low, *planes;  /* of the row's first group */
    uint64_t b, c, d;             /* addresses in bits: next of B, C, D0 */
    uint64_t d1;                  /* bytes from D0 to D1 */
    uint64_t patched;             /* the next group with a patch */
    const uint8_t *column, *high; /* of that patch */
    const uint8_t *end;           /* of the columns */
    uint64_t table[2];            /* the second with the sign */
};

LANE_FN uint64_t word_at(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

LANE_FN uint64_t bits_of(const uint8_t *at)
{
    return (uint64_t)(uintptr_t)at * 8;
}

/* The bits at an address in bits, `skip` bytes further: 57 at least. */
LANE_FN uint64_t bits_at(uint64_t address, uint64_t skip)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)(address >> 3);
    return word_at(at + skip) >> (address & 7);
}

LANE_FN uint64_t patched_group(const uint8_t *column, const uint8_t *end)
{
    return column == end ? UINT64_MAX : u3_get16(column) / U3_GROUP;
}

LANE_FN struct cursor cursor_of(const struct u3 *u, uint32_t r)
{
    struct u3_row row;
    u3_row_at(&row, u, r);
    const uint8_t *end = row.column + (size_t)2 * row.patches;
    uint64_t table = word_at(row.table);
    return (struct cursor){
        .low = row.low,
        .planes = row.planes,
        .b = bits_of(row.b),
        .c = bits_of(row.c),
        .d = bits_of(row.d0),
        .d1 = (uint64_t)(row.d1 - row.d0),
        .patched = patched_group(row.column, end),
        .column = row.column,
        .high = row.high,
        .end = end,
        .table = { table, table | 0x8080808080808080u },
    };
}

/* The high bytes of group g; groups come in order. */
LANE_FN bytes cursor_bytes(struct cursor *s, size_t g, bool alone)
{
    const uint8_t *planes = s->planes + 16 * g;
    uint64_t sign = word_at(planes), a = word_at(planes + 8);
    uint64_t b = _pdep_u64(bits_at(s->b, 0), a);
    uint64_t c = _pdep_u64(bits_at(s->c, 0), b);
    uint64_t d0 = _pdep_u64(bits_at(s->d, 0), c);
    uint64_t d1 = _pdep_u64(bits_at(s->d, s->d1), c);
    s->b += (uint64_t)_mm_popcnt_u64(a);
    s->c += (uint64_t)_mm_popcnt_u64(b);
    s->d += (uint64_t)_mm_popcnt_u64(c);
    bytes v = bytes_of(a, b, c, d0, d1, sign, s->table, alone);
    while (__builtin_expect(s->patched == g, 0)) {
        uint32_t column = u3_get16(s->column) % U3_GROUP;
        uint32_t p = (column & 24) << 1 | (column & 7) | (column & 32) >> 2;
        v = bytes_set(v, p, *s->high++);
        s->column += 2;
        s->patched = patched_group(s->column, s->end);
    }
    return v;
}

LANE_FN struct halves cursor_group(struct cursor *s, size_t g, bool alone)
{
    return halves_of(cursor_bytes(s, g, alone), s->low + U3_GROUP * g);
}

/* Ask for what comes a while after group g. */
LANE_FN void cursor_ahead(const struct cursor *s, size_t g)
{
    __builtin_prefetch(s->low + LOW_AHEAD + U3_GROUP * g, 0, 2);
    __builtin_prefetch(s->planes + PLANES_AHEAD + 16 * g, 0, 2);
    __builtin_prefetch((const char *)(s->b / 8) + PLANES_AHEAD, 0, 2);
}

/* ---- to bf16 ---- */

static void block_rows(void *dst, const struct u3 *u, uint32_t begin,
                       uint32_t end)
{
    const size_t cols = u->cols, whole = cols / U3_GROUP;
    char *to = dst;
    for (uint32_t r = begin; r < end; r++, to += cols * 2) {
        struct cursor s = cursor_of(u, r);
        for (size_t g = 0; g < whole; g++) {
            cursor_ahead(&s, g);
            halves_store(to + 2 * U3_GROUP * g, cursor_group(&s, g, true));
        }
        if (whole * U3_GROUP < cols) {
            char room[2 * U3_GROUP];
            halves_store(room, cursor_group(&s, whole, true));
            memcpy(to + 2 * U3_GROUP * whole, room,
                   2 * (cols - whole * U3_GROUP));
        }
    }
}

/* ---- products ---- */

/* What product.coded points to. */
struct coded {
    const struct u3 *u;
    uint32_t row;           /* of the product's first output */
    struct cursor at[BAND]; /* of a band, between two panels */
};

LANE_FN void direct_half(vf *sum, struct pair pair, const float *x, size_t ld,
                         size_t xn)
{
    UNROLL for (size_t j = 0; j < xn; j++) {
        sum[j] = vf_fma(pair.even, vf_load(x + j * ld), sum[j]);
        sum[j] = vf_fma(pair.odd, vf_load(x + j * ld + LANES), sum[j]);
    }
}

/* One weight row at a time: its fmas wait for each other, and the decoding of
 * the groups to come fills the gaps. Several rows at a time want more integer
 * registers than there are. */
LANE_FN void direct_row(const struct product *a, size_t o, size_t xn)
{
    const struct coded *w = a->coded;
    const size_t cols = a->cols, ld = a->ld;
    const float *x = a->xp;
    struct cursor s = cursor_of(w->u, w->row + (uint32_t)o);
    vf sum[1][DIRECT_ROWS];
    UNROLL for (size_t j = 0; j < xn; j++)
        sum[0][j] = vf_set(0.0f);
    size_t g = 0, b = 0;
    for (; b + U3_GROUP <= cols; b += U3_GROUP, g++) {
        cursor_ahead(&s, g);
        struct halves h = cursor_group(&s, g, false);
        direct_half(sum[0], halves_pair(h, 0), x + b, ld, xn);
        direct_half(sum[0], halves_pair(h, 1), x + b + PACK_BLOCK, ld, xn);
    }
    if (b < cols) {
        struct halves h = cursor_group(&s, g, false);
        direct_half(sum[0], halves_pair(h, 0), x + b, ld, xn);
        if (b + PACK_BLOCK < cols)
            direct_half(sum[0], halves_pair(h, 1), x + b + PACK_BLOCK, ld, xn);
    }
    direct_end(a, o, sum, 1, xn);
}

LANE_FN void direct(const struct product *a, size_t o, size_t wn, size_t xn)
{
    for (size_t i = 0; i < wn; i++)
        direct_row(a, o + i, xn);
}

/* Ask for the planes and streams of CHUNK columns from b of a row. */
LANE_FN void chunk_ahead(const struct cursor *s, size_t b)
{
    const char *planes = (const char *)s->planes + b / 4;
    const char *stream = (const char *)(s->b / 8);
    for (size_t i = 0; i <= CHUNK / 4; i += LINE)
        __builtin_prefetch(planes + i, 0, 2);
    __builtin_prefetch(stream, 0, 2);
    __builtin_prefetch(stream + LINE, 0, 2);
    __builtin_prefetch((const char *)(s->c / 8), 0, 2);
    __builtin_prefetch((const char *)(s->d / 8), 0, 2);
    __builtin_prefetch((const char *)(s->d / 8 + s->d1), 0, 2);
}

/* A function by itself: the cursor needs all the registers there are. */
static __attribute__((noinline)) void unpack_row(float *to, struct cursor *at,
                                                 size_t b, size_t n)
{
    struct cursor s = *at;
    for (size_t c = 0; c < n; c += U3_GROUP) {
        struct halves h = cursor_group(&s, (b + c) / U3_GROUP, false);
        for (size_t k = 0; k < 2; k++) {
            struct pair pair = halves_pair(h, k);
            vf_store(to + c + k * PACK_BLOCK, pair.even);
            vf_store(to + c + k * PACK_BLOCK + LANES, pair.odd);
        }
    }
    *at = s;
}

/* Decodes from where the rows' cursors stand, and asks for what the next panel
 * will need; tile() asks for its low bytes. */
static void unpack(const struct product *a, struct panel *p, size_t o,
                   size_t count, size_t b, size_t n)
{
    struct coded *w = a->coded;
    const size_t i = o % BAND, last = i + (count < BAND ? count : BAND);
    size_t next = i + TILE_W, next_b = b;
    if (i == 0 && b == 0)
        for (size_t k = 0; k < last; k++)
            w->at[k] = cursor_of(w->u, w->row + (uint32_t)(o + k));
    if (next >= last) {
        next = 0;
        next_b = b + CHUNK;
    }
    for (size_t k = 0; k < TILE_W; k++) {
        if (next + k < last && next_b < a->cols)
            chunk_ahead(&w->at[next + k], next_b);
        if (k < count)
            unpack_row(p->w[k], &w->at[i + k], b, n);
        else
            memset(p->w[k], 0, sizeof p->w[k]);
    }
}

static bool block_gemm(float *y, size_t ldy, const struct u3 *u, uint32_t row,
                       const float *xp, size_t rows, size_t begin, size_t end)
{
    struct coded w; /* 4 KB: not zeroed first */
    w.u = u;
    w.row = row;
    const struct product a = {
        .y = y + begin, .ldy = ldy,
        .w = (const char *)u->low + (size_t)row * u->width,
        .stride = u->width, .cols = u->cols, .ld = pack_cols(u->cols),
        .xp = xp, .coded = &w,
    };
    return product(&a, rows, end - begin);
}

static void u3_fill(struct kern *k)
{
    k->u3_rows = block_rows;
    k->u3_gemm = block_gemm;
}

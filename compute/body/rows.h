/* rows.h - weights that lie in rows of one stride, for gemm.h.
 *
 * Included after it by the files that know such a form, which then define
 *     pair_at(row, b)          columns b .. b+31 of a weight row
 *     pair_tail(row, b, cols)  the same for a last, partial block
 */

/* One weight row. Kept in locals: vector stores may alias anything, and fields
 * would be loaded again after each. */
struct row {
    const char *w;
    const uint8_t *scale;
};

LANE_FN struct pair pair_at(struct row row, size_t b);
LANE_FN struct pair pair_tail(struct row row, size_t b, size_t cols);

LANE_FN struct row row_of(const struct product *a, size_t o)
{
    return (struct row){ a->w + o * a->stride, a->scale + o * a->scale_stride };
}

/* Weight rows [o, o+wn) times all xn activation rows. */
LANE_FN void direct(const struct product *a, size_t o, size_t wn, size_t xn)
{
    const size_t cols = a->cols, whole = cols / PACK_BLOCK * PACK_BLOCK;
    const size_t ld = a->ld;
    const float *x = a->xp;
    struct row row[TILE_W];
    UNROLL for (size_t i = 0; i < wn; i++)
        row[i] = row_of(a, o + i);
    vf sum[TILE_W][DIRECT_ROWS];
    UNROLL for (size_t i = 0; i < wn; i++)
        UNROLL for (size_t j = 0; j < xn; j++)
            sum[i][j] = vf_set(0.0f);
    UNROLL_2 for (size_t b = 0; b < whole; b += PACK_BLOCK) {
        fetch_ahead(row[0].w, wn, b);
        UNROLL for (size_t i = 0; i < wn; i++)
            direct_block(sum[i], pair_at(row[i], b), x + b, ld, xn);
    }
    if (whole < cols) {
        UNROLL for (size_t i = 0; i < wn; i++)
            direct_block(sum[i], pair_tail(row[i], whole, cols), x + whole, ld,
                         xn);
    }
    direct_end(a, o, sum, wn, xn);
}

/* Columns [b, b+n) of one weight row, to a row of the panel. */
LANE_FN void unpack_row(float *to, struct row row, size_t b, size_t n)
{
    size_t c = 0;
    for (; c + PACK_BLOCK <= n; c += PACK_BLOCK) {
        struct pair pair = pair_at(row, b + c);
        vf_store(to + c, pair.even);
        vf_store(to + c + LANES, pair.odd);
    }
    if (c < n) {
        struct pair pair = pair_tail(row, b + c, b + n);
        vf_store(to + c, pair.even);
        vf_store(to + c + LANES, pair.odd);
    }
}

/* Weight rows [o, o+count), columns [b, b+n), to the panel. With less than
 * TILE_W of them the last is repeated: what that gives is not used. */
static void unpack(const struct product *a, struct panel *p, size_t o,
                   size_t count, size_t b, size_t n)
{
    for (size_t k = 0; k < TILE_W; k++)
        unpack_row(p->w[k], row_of(a, o + (k < count ? k : count - 1)), b, n);
}

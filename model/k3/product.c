/* product.c - matrix products of the trunk, a piece at a time, and the
 * sentences for what can go wrong with weights. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/glu.h"
#include "compute/pack.h"
#include "compute/u3.h"
#include "model/pack/box.h"
#include "model/k3/k3_internal.h"

/* What was waited for, in words. */
static void name_awaited(char out[TENSOR_NAME_BYTES], const struct step *s,
                         const struct tile_piece *piece)
{
    if (piece)
        tensor_name(out, (enum tensor_role)piece->role, piece->layer);
    else if (!s)
        snprintf(out, TENSOR_NAME_BYTES, "the resident trunk");
    else if (s->op == STEP_EMBED)
        snprintf(out, TENSOR_NAME_BYTES, "an embedding row");
    else
        snprintf(out, TENSOR_NAME_BYTES, "an expert of layer %" PRId32,
                 s->layer);
}

int k3_read_failed(void *arg, int err, const struct step *s,
                   const struct tile_piece *piece)
{
    struct k3 *k = arg;
    char what[TENSOR_NAME_BYTES];
    if (err == -ECANCELED)
        return error_set(k->error, err, "stopped");
    name_awaited(what, s, piece);
    struct stream_failure f = stream_failure(k->flow.stream);
    if (!f.error)
        return error_set(k->error, err, "%s: reading failed: %s", what,
                         strerror(-err));
    if (f.file == UINT32_MAX)
        return error_set(k->error, f.error, "the reader failed: %s (while "
                         "waiting for %s)", strerror(-f.error), what);
    return error_set(k->error, f.error,
                     "%s: read at byte %" PRIu64 " failed: %s "
                     "(while waiting for %s)",
                     k3_file_path(k, f.file),
                     f.offset_bytes, strerror(-f.error), what);
}

int k3_tensor_failed(struct k3 *k, int layer, enum tensor_role role)
{
    char name[TENSOR_NAME_BYTES];
    tensor_name(name, role, layer);
    return error_set(k->error, -EBADMSG,
                     "%s: %s: values or products are not "
                     "finite (NaN or infinity in the weights)",
                     weights_path_of(&k->weights, layer, role), name);
}

/* ---- products ---- */

struct product {
    const struct kern *kern;
    float *y;
    size_t ldy, cols;
    const struct tile_piece *piece;
    const uint8_t *w; /* the piece's first byte */
    const float *xp;
    uint32_t rows;
    _Atomic bool bad;
};

static void product_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct product *j = arg;
    size_t row = j->piece->row;
    if (!bf16_gemm(j->kern, j->y, j->ldy, j->w + begin * j->piece->row_bytes,
                   j->cols, j->xp, j->rows, row + begin, row + end))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* The same from blocks. */
static void product_coded(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct product *j = arg;
    const struct tile_piece *p = j->piece;
    while (begin < end) {
        size_t b = begin / p->block_rows, first = b * p->block_rows;
        size_t stop = first + p->block_rows < end ? first + p->block_rows : end;
        struct u3 u;
        u3_open(&u, j->w + (p->block[b].at - p->block[0].at));
        if (!u3_gemm(j->kern, j->y, j->ldy, &u, (uint32_t)(begin - first),
                     j->xp, j->rows, p->row + begin, p->row + stop))
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
        begin = stop;
    }
}

int k3_product_of(struct k3 *k, const struct tile_piece *piece,
                  const uint8_t *frame, float *y, size_t ldy, const float *xp,
                  uint32_t rows)
{
    struct product j = {
        .kern = &k->kern, .y = y, .ldy = ldy, .cols = piece->row_bytes / 2,
        .w = frame + piece->at, .xp = xp, .piece = piece, .rows = rows,
    };
    if (!rows)
        return 0;
    team_for(k->team, piece->rows, bf16_grain(j.cols, rows),
             piece->block ? product_coded : product_rows, &j);
    return j.bad ? k3_tensor_failed(k, piece->layer,
                                    (enum tensor_role)piece->role)
                 : 0;
}

int k3_product(struct k3 *k, const struct step *s,
               const struct tile_piece *piece, const uint8_t *frame)
{
    bool some = s->flags & STEP_LOGIT_ROWS;
    return k3_product_of(k, piece, frame, k->s.buffer[s->out], s->width,
                         k->s.buffer[s->in],
                         some ? k->logit_rows : k->flow.rows);
}

struct packing {
    float *packed;
    const float *x;
    size_t cols, padded;
};

static void pack_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct packing *j = arg;
    pack_rows(j->packed + begin * j->padded, j->x + begin * j->cols,
              end - begin, j->cols, j->cols);
}

void k3_pack(struct k3 *k, float *packed, const float *x, uint32_t rows,
             size_t cols)
{
    struct packing j = { packed, x, cols, pack_cols(cols) };
    team_for(k->team, rows, 1, pack_some, &j);
}

/* ---- SiTU, the activation of every gated MLP (compute/glu.h) ---- */

enum { SITU_BLOCK = 1024 }; /* columns; a multiple of PACK_BLOCK */

struct situ_job {
    struct k3 *k;
    float *packed, *g;
    const float *u;
    size_t n, blocks, first, end; /* columns [first, end) of n */
};

static void situ_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct situ_job *j = arg;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / j->blocks, at = j->first + i % j->blocks * SITU_BLOCK;
        size_t n = j->end - at < SITU_BLOCK ? j->end - at : SITU_BLOCK;
        float *g = j->g + row * j->n + at;
        situ(&j->k->kern, g, g, j->u + row * j->n + at, n, j->k->c.situ_b1,
             j->k->c.situ_b2);
        if (j->packed)
            pack_rows(j->packed + row * pack_cols(j->n) + at, g, 1, n, n);
    }
}

void k3_situ(struct k3 *k, float *packed, float *g, const float *u,
             uint32_t rows, size_t n)
{
    struct situ_job j = { k, packed, g, u, n,
                          (n + SITU_BLOCK - 1) / SITU_BLOCK, 0, n };
    team_for(k->team, rows * j.blocks, 1, situ_some, &j);
}

void k3_situ_own(struct k3 *k, float *g, const float *u, uint32_t rows,
                 size_t n, struct row_range own)
{
    size_t columns = own.end - own.begin;
    struct situ_job j = { k, NULL, g, u, n,
                          (columns + SITU_BLOCK - 1) / SITU_BLOCK, own.begin,
                          own.end };
    team_for(k->team, rows * j.blocks, 1, situ_some, &j);
}

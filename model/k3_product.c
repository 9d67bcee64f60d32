/* k3_product.c - matrix products of the trunk, tile after tile, and the
 * sentences for what can go wrong with a tile. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/pack.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"

int k3_read_failed(struct pass *p, int err, const char *what)
{
    struct k3 *k = p->k;
    if (err == -ECANCELED)
        return why_set(p->why, err, "stopped");
    struct stream_failure f = stream_failure(k->stream);
    if (!f.error || f.file >= ckpt_files(k->ckpt))
        return why_set(p->why, err, "%s: reading failed: %s", what,
                       strerror(-err));
    return why_set(p->why, f.error, "%s: read at byte %" PRIu64 " failed: %s "
                   "(while waiting for %s)", ckpt_path(k->ckpt, f.file),
                   f.offset_bytes, strerror(-f.error), what);
}

int k3_tensor_failed(struct pass *p, int layer, enum tensor_role role)
{
    char name[TENSOR_NAME_BYTES];
    struct extent e;
    const char *file = "checkpoint";
    tensor_name(name, role, layer);
    if (!ckpt_tensor(p->k->ckpt, layer, role, &e))
        file = ckpt_path(p->k->ckpt, e.file);
    return why_set(p->why, -EBADMSG, "%s: %s: values or products are not "
                   "finite (NaN or infinity in the weights)", file, name);
}

int k3_hold(struct pass *p, uint32_t tile, const uint8_t **frame)
{
    struct k3 *k = p->k;
    if (k->o.look_ahead == K3_LOOK_NONE)
        stream_allow(k->stream, k->passes * k->tiles->count + tile + 1);
    int err = stream_hold(k->stream, tile, frame);
    if (!err) {
        if (!k->resident[tile])
            k->trunk_bytes += k->tiles->tile[tile].payload_bytes;
        return 0;
    }
    char name[TENSOR_NAME_BYTES];
    const struct tile_piece *piece =
        &k->tiles->piece[k->tiles->first_piece[tile]];
    tensor_name(name, piece->role, piece->layer);
    return k3_read_failed(p, err, name);
}

void k3_release(struct pass *p, uint32_t tile)
{
    stream_release(p->k->stream, tile);
}

/* ---- products ---- */

struct product {
    float *y;
    size_t ldy, cols;
    const uint8_t *w;
    const float *xp;
    uint32_t rows, row;
    uint64_t row_bytes;
    _Atomic bool bad;
};

static void product_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct product *j = arg;
    if (!bf16_gemm(j->y, j->ldy, j->w + begin * j->row_bytes, j->cols, j->xp,
                   j->rows, j->row + begin, j->row + end))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

int k3_product_piece(struct pass *p, const struct tile_piece *piece,
                     const uint8_t *frame, const float *xp, uint32_t rows,
                     float *y, size_t ldy)
{
    struct product j = {
        .y = y, .ldy = ldy, .cols = piece->row_bytes / 2,
        .w = frame + piece->at, .xp = xp, .rows = rows, .row = piece->row,
        .row_bytes = piece->row_bytes,
    };
    for (uint32_t i = 0; i < p->k->o.kernel_repeat; i++)
        team_for(p->k->team, piece->rows, bf16_grain(j.cols, rows),
                 product_rows, &j);
    return j.bad ? k3_tensor_failed(p, piece->layer, piece->role) : 0;
}

int k3_product(struct pass *p, int layer, enum tensor_role role,
               const float *xp, uint32_t rows, float *y, size_t ldy)
{
    uint32_t count, first = tiles_of(p->k->tiles, layer, role, &count);
    for (uint32_t t = first; t < first + count; t++) {
        const uint8_t *frame;
        int err = k3_hold(p, t, &frame);
        if (err)
            return err;
        int64_t begin = stream_clock_ns();
        if (rows)
            err = k3_product_piece(p, tiles_piece(p->k->tiles, t, layer, role),
                                   frame, xp, rows, y, ldy);
        k3_release(p, t);
        k3_note(p->k, (uint8_t)role, (uint32_t)layer, begin);
        if (err)
            return err;
    }
    return 0;
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

/* attend.c - keys and values of positions, and attention over them.
 *
 *     GQA  q, k = rotate(rms per head); head h uses keys and values h / group
 *     MLA  latent = rms(kv_a[0..rank)), key = rotate(the rest), shared by all
 *          heads; k = Bk latent and v = Bv latent are never made: the query
 *          goes through Bk', what is mixed through Bv
 *
 * All rows of a block see the same positions: the context and the whole block.
 * So a call of mla_attend (compute/mla.h) takes the rows of a block and the
 * heads that share keys as its "heads". For GQA its latent is the value, and
 * its rope values are the key: a query of zeros beside the true one.
 *
 * A block is written behind the context and is overwritten by the context that
 * follows. The cache is a circle with room for the window and a block: as long
 * as it is not full, its entries from 0 on are what the block sees, and then
 * all of them.
 */
#include <errno.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/mla.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "model/dspark/dspark_internal.h"

static uint32_t entry_of(const struct dspark *d, const struct context *c,
                         uint32_t position)
{
    return (position - c->first) % d->room;
}

/* ---- keys and values ---- */

static bool store_gqa(struct dspark *d, uint32_t layer, uint32_t sequence,
                      uint32_t entry, float *k, const float *v,
                      const float *turn)
{
    size_t dim = d->c.head_dim;
    const uint8_t *gain = dspark_vector(d, D_K_NORM, layer);
    float *cache = dspark_layer(d, sequence, layer);
    bool good = true;
    for (uint32_t h = 0; h < d->c.kv_heads; h++) {
        float *to = cache + ((size_t)h * d->room + entry) * 2 * dim;
        memcpy(to, v + h * dim, dim * sizeof *to);
        good &= rms_norm(d->lent.kern, to + dim, k + h * dim, gain, dim,
                         d->c.eps);
        rope_halves(&d->rope, to + dim, turn);
    }
    return good;
}

static bool store_mla(struct dspark *d, uint32_t layer, uint32_t sequence,
                      uint32_t entry, const float *kv, const float *turn)
{
    size_t rank = d->c.kv_rank, width = rank + d->c.rope;
    float *to = dspark_layer(d, sequence, layer) + entry * width;
    bool good = rms_norm(d->lent.kern, to, kv,
                         dspark_vector(d, D_KVA_NORM, layer), rank, d->c.eps);
    memcpy(to + rank, kv + rank, d->c.rope * sizeof *to);
    rope_neighbours(&d->rope, to + rank, turn);
    return good;
}

static bool store(struct dspark *d, uint32_t layer, uint32_t sequence,
                  uint32_t position, float *k, const float *v,
                  const float *turn)
{
    const struct context *c = &d->context[sequence];
    uint32_t entry = entry_of(d, c, position);
    return dspark_is_mla(d)
               ? store_mla(d, layer, sequence, entry, k, turn)
               : store_gqa(d, layer, sequence, entry, k, v, turn);
}

int dspark_store(struct dspark *d, uint32_t layer)
{
    const struct buffers *b = &d->b;
    size_t turn = dspark_rotated(&d->c), width = dspark_kept(&d->c);
    width = dspark_is_mla(d) ? width : width / 2;
    bool good = true;
    for (uint32_t i = 0; i < d->pendings; i++)
        good &= store(d, layer, d->pending[i].sequence,
                      d->pending[i].position, b->kept + i * width,
                      b->kept_v + i * width, b->turn + i * turn);
    for (uint32_t i = 0; i < d->asks * d->rows; i++) {
        uint32_t sequence = d->ask[i / d->rows].sequence;
        good &= store(d, layer, sequence,
                      d->context[sequence].known + i % d->rows,
                      b->block_kept + i * width, b->block_v + i * width,
                      b->block_turn + i * turn);
    }
    return good ? 0 : dspark_fail(d, -EBADMSG,
                                  dspark_is_mla(d) ? D_KVA_NORM : D_K_NORM,
                                  layer, "values are not finite");
}

/* ---- attention ---- */

struct attending {
    struct dspark *d;
    uint32_t layer;
    const uint8_t *w;       /* MLA: kv_b from head `first` */
    uint32_t first, heads;  /* heads of this tile; GQA: of keys */
    _Atomic bool bad;
};

static uint32_t entries(const struct dspark *d, uint32_t ask)
{
    const struct context *c = &d->context[d->ask[ask].sequence];
    uint32_t n = c->known - c->first + d->rows;
    return n < d->room ? n : d->room;
}

static bool attend_gqa(struct attending *j, uint32_t ask, uint32_t kv,
                       float *scratch)
{
    struct dspark *d = j->d;
    size_t dim = d->c.head_dim, group = d->c.heads / d->c.kv_heads;
    size_t n = group * d->rows, stride = d->c.heads * dim;
    float *zero = scratch, *query = zero + n * dim, *mix = query + n * dim;
    float *rest = mix + n * dim;
    const uint8_t *gain = dspark_vector(d, D_Q_NORM, j->layer);
    bool good = true;
    memset(zero, 0, n * dim * sizeof *zero);
    for (size_t i = 0; i < n; i++) {
        size_t row = ask * d->rows + i / group;
        float *q = query + i * dim;
        good &= rms_norm(d->lent.kern, q, d->b.query + row * stride +
                             (kv * group + i % group) * dim, gain, dim,
                         d->c.eps);
        rope_halves(&d->rope, q, d->b.block_turn + row * dim);
    }
    mla_attend(d->lent.kern, mix, zero, query, n,
               dspark_layer(d, d->ask[ask].sequence, j->layer) +
                   (size_t)kv * d->room * 2 * dim,
               entries(d, ask), dim, dim, d->rope.score_scale, rest);
    for (size_t i = 0; i < n; i++)
        memcpy(d->b.attended + (ask * d->rows + i / group) * stride +
                   (kv * group + i % group) * dim,
               mix + i * dim, dim * sizeof *mix);
    return good;
}

static bool attend_mla(struct attending *j, uint32_t ask, uint32_t head,
                       float *scratch)
{
    struct dspark *d = j->d;
    const struct dspark_config *c = &d->c;
    size_t rank = c->kv_rank, query = c->nope + c->rope, n = d->rows;
    size_t stride = (size_t)c->heads * c->v_dim, row = ask * n;
    float *qa = scratch, *mix = qa + n * rank, *qr = mix + n * rank;
    float *packed = qr + n * c->rope, *rest = packed + n * pack_cols(rank);
    const uint8_t *w = j->w + (size_t)(head - j->first) *
                                  (c->nope + c->v_dim) * rank * 2;
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        const float *q = d->b.query + ((row + i) * c->heads + head) * query;
        good &= bf16_gemv_t(d->lent.kern, qa + i * rank, w, c->nope, rank, q);
        memcpy(qr + i * c->rope, q + c->nope, c->rope * sizeof *qr);
        rope_neighbours(&d->rope, qr + i * c->rope,
                        d->b.block_turn + (row + i) * c->rope);
    }
    mla_attend(d->lent.kern, mix, qa, qr, n,
               dspark_layer(d, d->ask[ask].sequence, j->layer),
               entries(d, ask), rank, c->rope, d->rope.score_scale, rest);
    pack_rows(packed, mix, n, rank, rank);
    good &= bf16_gemm(d->lent.kern, d->b.attended + row * stride +
                                        (size_t)head * c->v_dim,
                      stride, w + (size_t)c->nope * rank * 2, rank, packed, n,
                      0, c->v_dim);
    return good;
}

static void attend_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct attending *j = arg;
    float *scratch = j->d->b.worker + worker * j->d->worker_floats;
    for (size_t i = begin; i < end; i++) {
        uint32_t ask = (uint32_t)(i / j->heads);
        uint32_t head = j->first + (uint32_t)(i % j->heads);
        bool good = dspark_is_mla(j->d) ? attend_mla(j, ask, head, scratch)
                                        : attend_gqa(j, ask, head, scratch);
        if (!good)
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    }
}

int dspark_attend(struct dspark *d, uint32_t layer)
{
    const struct dspark_config *c = &d->c;
    struct attending j = { .d = d, .layer = layer, .heads = c->kv_heads };
    size_t value = (size_t)c->heads * (dspark_is_mla(d) ? c->v_dim
                                                        : c->head_dim);
    uint32_t per_head = c->nope + c->v_dim;
    if (!dspark_is_mla(d))
        team_for(d->lent.team, d->asks * j.heads, 1, attend_some, &j);
    while (dspark_is_mla(d) && j.first < c->heads) {
        const struct sweep_tile *t;
        int err = dspark_sweep_hold(d, &t, &j.w);
        if (err)
            return err;
        j.heads = t->own->rows / per_head;
        team_for(d->lent.team, d->asks * j.heads, 1, attend_some, &j);
        j.first += j.heads;
        dspark_sweep_release(d);
    }
    pack_rows(d->b.attended_packed, d->b.attended, d->asks * d->rows, value,
              value);
    return j.bad ? dspark_fail(d, -EBADMSG, dspark_is_mla(d) ? D_KVB : D_Q_NORM,
                               layer, "values or products are not finite")
                 : 0;
}

/* memory.c - what a drafter takes of the engine's memory. */
#include "compute/mla.h"
#include "compute/pack.h"
#include "model/dspark/dspark_internal.h"
#include "model/k3/threads.h"

enum { ALIGN = 64 };

struct cutter {
    uint8_t *base; /* NULL: only measuring */
    uint64_t at;
};

static void *take(struct cutter *c, uint64_t bytes, uint64_t align)
{
    c->at = (c->at + align - 1) / align * align;
    uint8_t *p = c->base ? c->base + c->at : NULL;
    c->at += bytes;
    return p;
}

static float *floats(struct cutter *c, uint64_t rows, uint64_t cols)
{
    return take(c, rows * cols * sizeof(float), ALIGN);
}

static uint64_t worker_floats(const struct dspark *d)
{
    const struct dspark_config *c = &d->c;
    uint64_t heads = d->rows, latent = c->kv_rank, rope = c->rope;
    if (c->kind == DSPARK_GQA) {
        heads *= c->heads / c->kv_heads;
        latent = rope = c->head_dim;
    }
    uint64_t all = heads * (2 * latent + rope) +
                   heads * pack_cols(latent) + ALIGN +
                   mla_scratch(heads, latent, rope);
    return (all + ALIGN - 1) / ALIGN * ALIGN;
}

static void cut_rows(struct dspark *d, struct cutter *t)
{
    const struct dspark_config *c = &d->c;
    struct buffers *b = &d->b;
    bool mla = dspark_is_mla(d);
    uint64_t many = DSPARK_PENDING, rows = (uint64_t)d->batch * d->rows;
    uint64_t taps = (uint64_t)c->taps * c->hidden, turn = dspark_rotated(c);
    uint64_t kept = mla ? c->kv_rank + c->rope : c->kv_heads * c->head_dim;
    uint64_t query = c->heads * (mla ? c->nope + c->rope : c->head_dim);
    uint64_t value = c->heads * (mla ? c->v_dim : c->head_dim);
    b->pending = floats(t, many, pack_cols(taps));
    b->tap = floats(t, 1, taps);
    b->fused = floats(t, many, c->hidden);
    b->fused_packed = floats(t, many, pack_cols(c->hidden));
    b->turn = floats(t, many, turn);
    b->block_turn = floats(t, rows, turn);
    b->kept = floats(t, many, kept);
    b->kept_v = floats(t, mla ? 0 : many, kept);
    b->block_kept = floats(t, rows, kept);
    b->block_v = floats(t, mla ? 0 : rows, kept);
    b->x = floats(t, rows, c->hidden);
    b->h_packed = floats(t, rows, pack_cols(c->hidden));
    b->out = floats(t, rows, c->hidden);
    b->query = floats(t, rows, query);
    b->query_latent = floats(t, mla ? rows : 0, c->q_rank);
    b->query_latent_packed = floats(t, mla ? rows : 0, pack_cols(c->q_rank));
    b->attended = floats(t, rows, value);
    b->attended_packed = floats(t, rows, pack_cols(value));
    b->gate = floats(t, rows, c->inter);
    b->up = floats(t, rows, c->inter);
    b->active_packed = floats(t, rows, pack_cols(c->inter));
    b->hidden = floats(t, rows, c->hidden);
    b->logits = floats(t, rows, c->vocab);
    b->markov = floats(t, d->batch, c->vocab);
    b->u = floats(t, d->batch, c->rank);
    b->u_packed = floats(t, d->batch, pack_cols(c->rank));
    b->mask = floats(t, 1, c->hidden);
}

uint64_t dspark_cut(struct dspark *d, uint8_t *base, bool resident)
{
    struct cutter t = { .base = base };
    struct buffers *b = &d->b;
    uint64_t threads = k3_threads_or_default(d->o.threads);
    d->worker_floats = worker_floats(d);
    cut_rows(d, &t);
    b->worker = floats(&t, threads, d->worker_floats);
    b->best = take(&t, threads * d->batch * sizeof *b->best, ALIGN);
    b->cache = take(&t, (uint64_t)d->o.sequences * d->c.layers * d->room *
                            dspark_kept(&d->c) * sizeof(float), ALIGN);
    b->embed = take(&t, (d->batch + 1) * d->embed_frame_bytes, BLOCK_PAGE);
    b->frames = take(&t, d->slots * d->frame_bytes, BLOCK_PAGE);
    for (uint32_t i = 0; i < d->tiles; i++)
        if (d->tile[i].always || resident)
            d->tile[i].home = take(&t, d->tile[i].frame_bytes, BLOCK_PAGE);
    return (t.at + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
}

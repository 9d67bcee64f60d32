/* k3_mla.c - gated latent attention without rotation (k3-spec 3.6), absorbed.
 *
 * The cache keeps the normed latent and the 64 shared values of each position.
 * A tile of kv_b_proj holds whole heads, so while it is here its heads are done
 * completely: the query goes through the key part, over the cache, and the
 * mixed latent through the value part. Nothing is expanded per position.
 */
#include <math.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/glu.h"
#include "compute/mla.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"

struct attend_job {
    struct k3 *k;
    const struct k3_row *row;
    const uint8_t *w;  /* kv_b_proj from head `first` */
    uint32_t rows, first, heads, group, groups;
    uint32_t index;    /* among MLA layers */
    _Atomic bool bad;
};

/* `group` heads from `head` on, for one row. */
static bool attend(struct attend_job *j, uint32_t row, uint32_t head,
                   uint32_t group, float *scratch)
{
    struct k3 *k = j->k;
    const struct config *c = &k->c;
    size_t rank = c->kv_rank, query = c->nope + c->rope;
    size_t head_bytes = (size_t)(c->nope + c->v_dim) * rank * 2;
    float *qa = scratch, *mix = qa + K3_HEAD_GROUP * rank;
    float *packed = mix + K3_HEAD_GROUP * rank;
    float *qr = packed + pack_cols(rank);
    float *rest = qr + K3_HEAD_GROUP * c->rope;
    const float *q = k->s.q + ((size_t)row * c->heads + head) * query;
    const float *cache = state_mla(
        k->state + j->row[row].sequence * k->shape.bytes, &k->shape,
        j->index);
    const uint8_t *w = j->w + (head - j->first) * head_bytes;
    bool good = true;
    for (uint32_t h = 0; h < group; h++) {
        good &= bf16_gemv_t(qa + h * rank, w + h * head_bytes, c->nope, rank,
                            q + h * query);
        memcpy(qr + h * c->rope, q + h * query + c->nope,
               c->rope * sizeof *qr);
    }
    mla_attend(mix, qa, qr, group, cache, j->row[row].position + 1, rank,
               c->rope, 1.0f / sqrtf((float)query), rest);
    for (uint32_t h = 0; h < group; h++) {
        float *o = k->s.o + ((size_t)row * c->heads + head + h) * c->v_dim;
        pack_rows(packed, mix + h * rank, 1, rank, rank);
        good &= bf16_gemm(o, c->v_dim,
                          w + h * head_bytes + (size_t)c->nope * rank * 2,
                          rank, packed, 1, 0, c->v_dim);
    }
    return good;
}

static void attend_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct attend_job *j = arg;
    float *scratch =
        (void *)(j->k->s.worker + worker * j->k->s.worker_bytes);
    bool good = true;
    for (size_t i = begin; i < end; i++) {
        uint32_t row = (uint32_t)(i % j->rows);
        uint32_t at = (uint32_t)(i / j->rows) * j->group;
        uint32_t group = j->heads - at < j->group ? j->heads - at : j->group;
        good &= attend(j, row, j->first + at, group, scratch);
    }
    if (!good)
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* Heads that share a walk over the cache: as many as leave work for every
 * thread. */
static uint32_t group_size(const struct k3 *k, uint32_t heads, uint32_t rows)
{
    uint32_t threads = team_threads(k->team);
    uint32_t group = heads * rows / (threads ? threads : 1);
    group = group < K3_HEAD_GROUP ? group : K3_HEAD_GROUP;
    return group ? group : 1;
}

static int attend_tiles(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    uint32_t per_head = k->c.nope + k->c.v_dim;
    uint32_t count, first = tiles_of(k->tiles, (int)layer, T_KVB, &count);
    for (uint32_t t = first; t < first + count; t++) {
        const uint8_t *frame;
        int err = k3_hold(p, t, &frame);
        if (err)
            return err;
        const struct tile_piece *piece =
            tiles_piece(k->tiles, t, (int)layer, T_KVB);
        struct attend_job j = {
            .k = k, .row = p->row, .rows = p->rows, .w = frame + piece->at,
            .first = piece->row / per_head, .heads = piece->rows / per_head,
            .index = k->index_in_kind[layer],
        };
        int64_t begin = stream_clock_ns();
        j.group = group_size(k, j.heads, p->rows);
        j.groups = (j.heads + j.group - 1) / j.group;
        team_for(k->team, (size_t)j.groups * p->rows, 1, attend_some, &j);
        k3_release(p, t);
        k3_note(k, K3_ATTEND, layer, begin);
        if (j.bad)
            return k3_tensor_failed(p, (int)layer, T_KVB);
    }
    return 0;
}

/* The latent of each row, normed, and its raw 64 values go into the cache. */
static int store_latents(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    uint32_t rank = k->c.kv_rank, width = rank + k->c.rope;
    for (uint32_t r = 0; r < p->rows; r++) {
        uint8_t *block = k->state + p->row[r].sequence * k->shape.bytes;
        float *to = state_mla(block, &k->shape, k->index_in_kind[layer]) +
                    (size_t)p->row[r].position * width;
        const float *c = k->s.c + (size_t)r * width;
        if (!rms_norm(to, c, k->small.at[T_KVA_NORM], rank,
                      k->c.mla_latent_eps))
            return k3_tensor_failed(p, (int)layer, T_KVA_NORM);
        memcpy(to + rank, c + rank, k->c.rope * sizeof *to);
    }
    return 0;
}

int k3_mla(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    const struct config *c = &k->c;
    size_t v = (size_t)c->heads * c->v_dim;
    int err = k3_product(p, (int)layer, T_QA, s->xp, p->rows, s->ql,
                         c->q_rank);
    for (uint32_t r = 0; r < p->rows && !err; r++) {
        float *ql = s->ql + (size_t)r * c->q_rank;
        if (!rms_norm(ql, ql, k->small.at[T_QA_NORM], c->q_rank,
                      c->mla_latent_eps))
            err = k3_tensor_failed(p, (int)layer, T_QA_NORM);
    }
    if (!err) {
        k3_pack(k, s->qlp, s->ql, p->rows, c->q_rank);
        err = k3_product(p, (int)layer, T_QB, s->qlp, p->rows, s->q,
                         (size_t)c->heads * (c->nope + c->rope));
    }
    if (!err)
        err = k3_product(p, (int)layer, T_KVA, s->xp, p->rows, s->c,
                         c->kv_rank + c->rope);
    if (!err)
        err = store_latents(p, layer);
    if (!err)
        err = attend_tiles(p, layer);
    if (!err)
        err = k3_product(p, (int)layer, T_G, s->xp, p->rows, s->mla_gate, v);
    if (err)
        return err;
    sigmoid_gate(s->o, s->o, s->mla_gate, p->rows * v);
    k3_pack(k, s->op, s->o, p->rows, v);
    return k3_product(p, (int)layer, T_O, s->op, p->rows, s->out, c->hidden);
}

/* mla.c - gated latent attention without rotation, absorbed.
 *
 *     query = Wqb rms(Wqa x); head h has q_n [nope] and q_r [rope]
 *     c = Wkva x; lat = rms(c[0..rank)), r = the last rope values of c
 *     k_n, v of head h = Wkvb lat
 *     score of position s = (q_n . k_n(s) + q_r . r(s)) / sqrt(nope + rope)
 *     out = Wo (concat over heads (softmax(score) v) * sigmoid(Wg x))
 *
 * Absorbed: q_n . (Wk lat) = (Wk' q_n) . lat, and the mix of v is Wv times the
 * mix of lat.
 *
 * The cache keeps the normed latent and the rope values, which the heads share,
 * of each position. A tile of kv_b_proj holds whole heads and they are finished
 * while it is held: the query goes through the key part and over the cache, the
 * mixed latent through the value part. No keys or values of positions are made.
 */
#include <math.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/glu.h"
#include "compute/mla.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "model/k3/k3_internal.h"

struct attend_job {
    struct k3 *k;
    const struct k3_row *row;
    const struct tile_piece *piece; /* kv_b_proj from head `first` */
    const uint8_t *frame;
    uint32_t rows, first, heads, group, groups;
    uint32_t index;    /* among MLA layers */
    _Atomic bool bad;
};

/* `group` heads from `head` on, for one row. */
static bool attend(struct attend_job *j, uint32_t row, uint32_t head,
                   uint32_t group, unsigned worker)
{
    float *scratch =
        (void *)(j->k->s.worker + worker * j->k->s.worker_bytes);
    struct k3 *k = j->k;
    const struct config *c = &k->c;
    size_t rank = c->kv_rank, query = c->nope + c->rope;
    uint32_t head_rows = c->nope + c->v_dim;
    uint8_t *decoded = k3_decoded(k, worker);
    float *qa = scratch, *mix = qa + K3_HEAD_GROUP * rank;
    float *packed = mix + K3_HEAD_GROUP * rank;
    float *qr = packed + pack_cols(rank);
    float *rest = qr + K3_HEAD_GROUP * c->rope;
    const float *q = k->s.query + ((size_t)row * c->heads + head) * query;
    const float *cache = state_mla(
        k->state + j->row[row].sequence * k->shape.bytes, &k->shape,
        j->index);
    uint32_t w = (head - j->first) * head_rows;
    bool good = true;
    for (uint32_t h = 0; h < group; h++, w += head_rows) {
        good &= bf16_gemv_t(&k->kern, qa + h * rank,
                            coded_rows(k, j->piece, j->frame, w, w + c->nope,
                                       decoded),
                            c->nope, rank, q + h * query);
        memcpy(qr + h * c->rope, q + h * query + c->nope,
               c->rope * sizeof *qr);
    }
    mla_attend(&k->kern, mix, qa, qr, group, cache, j->row[row].position + 1,
               rank, c->rope, 1.0f / sqrtf((float)query), rest);
    w = (head - j->first) * head_rows;
    for (uint32_t h = 0; h < group; h++, w += head_rows) {
        float *o =
            k->s.attended + ((size_t)row * c->heads + head + h) * c->v_dim;
        pack_rows(packed, mix + h * rank, 1, rank, rank);
        good &= bf16_gemm(&k->kern, o, c->v_dim,
                          coded_rows(k, j->piece, j->frame, w + c->nope,
                                     w + head_rows, decoded),
                          rank, packed, 1, 0, c->v_dim);
    }
    return good;
}

static void attend_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct attend_job *j = arg;
    bool good = true;
    for (size_t i = begin; i < end; i++) {
        uint32_t row = (uint32_t)(i % j->rows);
        uint32_t at = (uint32_t)(i / j->rows) * j->group;
        uint32_t group = j->heads - at < j->group ? j->heads - at : j->group;
        good &= attend(j, row, j->first + at, group, worker);
    }
    if (!good)
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* Heads that share a walk over the cache: the most that still gives every
 * thread some. */
static uint32_t group_size(const struct k3 *k, uint32_t heads, uint32_t rows)
{
    uint32_t threads = team_threads(k->team);
    uint32_t group = heads * rows / (threads ? threads : 1);
    group = group < K3_HEAD_GROUP ? group : K3_HEAD_GROUP;
    return group ? group : 1;
}

int k3_attend(struct k3 *k, const struct tile_piece *piece,
              const uint8_t *frame)
{
    uint32_t per_head = k->c.nope + k->c.v_dim, rows = k->flow.rows;
    struct attend_job j = {
        .k = k, .row = k->flow.row, .rows = rows, .piece = piece,
        .frame = frame,
        .first = piece->row / per_head, .heads = piece->rows / per_head,
        .index = k->index_in_kind[piece->layer],
    };
    j.group = group_size(k, j.heads, rows);
    j.groups = (j.heads + j.group - 1) / j.group;
    team_for(k->team, (size_t)j.groups * rows, 1, attend_some, &j);
    return j.bad ? k3_tensor_failed(k, piece->layer, T_KVB) : 0;
}

/* The normed latent of each row and its rope values go into the cache. */
int k3_store(struct k3 *k, uint32_t layer)
{
    uint32_t rank = k->c.kv_rank, width = rank + k->c.rope;
    for (uint32_t r = 0; r < k->flow.rows; r++) {
        uint8_t *block = k->state + k->flow.row[r].sequence * k->shape.bytes;
        float *to = state_mla(block, &k->shape, k->index_in_kind[layer]) +
                    (size_t)k->flow.row[r].position * width;
        const float *c = k->s.key_latent + (size_t)r * width;
        if (!rms_norm(&k->kern, to, c, k->vectors.at[T_KVA_NORM], rank,
                      k->c.mla_latent_eps))
            return k3_tensor_failed(k, (int)layer, T_KVA_NORM);
        memcpy(to + rank, c + rank, k->c.rope * sizeof *to);
    }
    return 0;
}

int k3_norm_query(struct k3 *k, uint32_t layer)
{
    size_t rank = k->c.q_rank;
    for (uint32_t r = 0; r < k->flow.rows; r++) {
        float *ql = k->s.query_latent + r * rank;
        if (!rms_norm(&k->kern, ql, ql, k->vectors.at[T_QA_NORM], rank,
                      k->c.mla_latent_eps))
            return k3_tensor_failed(k, (int)layer, T_QA_NORM);
    }
    k3_pack(k, k->s.query_latent_packed, k->s.query_latent, k->flow.rows, rank);
    return 0;
}

void k3_gate_attention(struct k3 *k)
{
    struct scratch *s = &k->s;
    size_t v = (size_t)k->c.heads * k->c.v_dim;
    struct row_range own = owned_mla_heads(k->o.owned, &k->c);
    size_t first = own.begin * k->c.v_dim;
    size_t n = (own.end - own.begin) * k->c.v_dim;
    for (size_t r = 0; r < k->flow.rows; r++) {
        float *y = s->attended + r * v + first;
        sigmoid_gate(&k->kern, y, y, s->mla_gate + r * v + first, n);
    }
    if (!k->o.owned) /* else a gather packs */
        k3_pack(k, s->attended_packed, s->attended, k->flow.rows, v);
}

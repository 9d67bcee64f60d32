/* scratch.c - the float buffers of a pass, cut from one block. */
#include <stddef.h>
#include <string.h>

#include "compute/mla.h"
#include "compute/pack.h"
#include "model/k3/k3_internal.h"
#include "model/k3/limits.h"

enum { ALIGN = 64, ROUNDING = 64 << 10 }; /* bytes */

struct cutter {
    uint8_t *base; /* NULL: only measuring */
    uint64_t at;
};

static void *take(struct cutter *c, uint64_t count, uint64_t size)
{
    uint8_t *p = c->base ? c->base + c->at : NULL;
    c->at += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static float *floats(struct cutter *c, uint64_t rows, uint64_t cols)
{
    return take(c, rows * cols, sizeof(float));
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void cut_attention(struct cutter *t, struct scratch *s,
                          const struct config *c, uint64_t rows)
{
    uint64_t width = config_kda_width(c), v = (uint64_t)c->heads * c->v_dim;
    struct cutter kda = *t, mla = *t;
    for (int i = 0; i < 3; i++) {
        s->raw[i] = floats(&kda, rows, width);
        s->conv[i] = floats(&kda, rows, width);
    }
    s->decay = floats(&kda, rows, width);
    s->kda_gate = floats(&kda, rows, width);
    s->beta = floats(&kda, rows, c->kda_heads);
    s->fa = floats(&kda, rows, c->kda_dim);
    s->fa_packed = floats(&kda, rows, pack_cols(c->kda_dim));
    s->query_latent = floats(&mla, rows, c->q_rank);
    s->query_latent_packed = floats(&mla, rows, pack_cols(c->q_rank));
    s->query = floats(&mla, rows, (uint64_t)c->heads * (c->nope + c->rope));
    s->key_latent = floats(&mla, rows, c->kv_rank + c->rope);
    s->attended = floats(&mla, rows, v);
    s->mla_gate = floats(&mla, rows, v);
    t->at = max(kda.at, mla.at);
    s->attended_packed = floats(t, rows, max(pack_cols(width), pack_cols(v)));
}

static void cut_mlp(struct cutter *t, struct scratch *s,
                    const struct config *c, uint64_t rows)
{
    uint64_t inter = config_shared_inter(c), batch = K3_EXPERT_ROWS;
    if (c->first_dense)
        inter = max(inter, c->dense_inter);
    s->mlp_gate = floats(t, rows, inter);
    s->mlp_up = floats(t, rows, inter);
    s->activated = floats(t, rows, pack_cols(inter));
    s->shared = floats(t, rows, c->hidden);
    s->latent = floats(t, rows, c->latent);
    s->latent_packed = floats(t, rows, pack_cols(c->latent));
    s->scores = floats(t, rows, c->experts);
    s->partial = floats(t, rows * c->top_k, c->latent);
    s->reduced = floats(t, rows, c->latent);
    s->reduced_packed = floats(t, rows, pack_cols(c->latent));
    s->ids = take(t, rows * c->top_k, sizeof *s->ids);
    s->weights = floats(t, rows, c->top_k);
    s->row_of = take(t, rows * c->top_k, sizeof *s->row_of);
    s->rank_of = take(t, rows * c->top_k, sizeof *s->rank_of);
    s->first_of = take(t, c->experts + 1, sizeof *s->first_of);
    s->item_of = take(t, c->experts, sizeof *s->item_of);
    s->expert_x = floats(t, batch, pack_cols(c->latent));
    s->expert_g = floats(t, batch, c->moe_inter);
    s->expert_u = floats(t, batch, c->moe_inter);
    s->expert_a = floats(t, batch, pack_cols(c->moe_inter));
    s->expert_y = floats(t, batch, c->latent);
}

static uint64_t worker_bytes(const struct config *c)
{
    uint64_t heads = K3_HEAD_GROUP, cache = c->kv_rank;
    uint64_t mla = 2 * heads * cache + pack_cols(c->kv_rank) +
                   heads * c->rope +
                   mla_scratch(heads, c->kv_rank, c->rope);
    uint64_t kda = (uint64_t)c->kda_dim * c->kda_dim;
    return (max(mla, kda) * sizeof(float) + 4095) / 4096 * 4096;
}

/* Bytes of the rows that a thread decodes at once: of a router, or a head of
 * kv_b. */
static uint64_t decoded_bytes(const struct config *c)
{
    uint64_t router = (uint64_t)K3_ROUTER_GRAIN * c->hidden;
    uint64_t head = (uint64_t)(c->nope + c->v_dim) * c->kv_rank;
    return (2 * max(router, head) + 4095) / 4096 * 4096;
}

/* Floats of a row of what processes exchange at one time: the widest that there
 * is, and no less than makes messages long. */
static uint64_t gather_floats(const struct config *c)
{
    enum { MIN = 1 << 18 };
    uint64_t most = max(c->vocab, max(c->hidden, c->latent));
    most = max(most, max(config_kda_width(c), (uint64_t)c->heads * c->v_dim));
    most = max(most, max(config_shared_inter(c), c->moe_inter));
    most = max(most, max(c->q_rank, c->kv_rank + c->rope));
    most = max(most, max(c->experts, c->first_dense ? c->dense_inter : 0));
    return max(most, MIN);
}

static uint64_t cut(struct scratch *s, uint8_t *base, const struct config *c,
                    const struct k3_options *o, uint32_t threads,
                    uint64_t rows)
{
    struct cutter t = { .base = base };
    uint64_t snapshots =
        (c->layers + c->attn_res_block - 1) / c->attn_res_block;
    uint64_t logits = o->logits ? (uint64_t)o->logits + o->drafts : rows;
    uint64_t kda_layers = 0;
    for (uint32_t l = 0; l < c->layers; l++)
        kda_layers += !config_is_mla(c, l);
    s->worker_bytes = worker_bytes(c);
    s->worker = take(&t, threads, s->worker_bytes);
    s->decoded_bytes = o->parts || coded_files(o->sidecars) ? decoded_bytes(c)
                                                            : 0;
    s->decoded = take(&t, threads, s->decoded_bytes);
    s->gather_floats = o->owned ? gather_floats(c) : 0;
    s->gather = floats(&t, 1, s->gather_floats);
    /* A row of bf16, with the pages around it. */
    s->embed_frame_bytes =
        (2ull * c->hidden + 2 * BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
    s->embed = take(&t, rows * s->embed_frame_bytes + BLOCK_PAGE, 1);
    if (s->embed)
        s->embed += (BLOCK_PAGE - (uintptr_t)s->embed % BLOCK_PAGE) %
                    BLOCK_PAGE;
    s->snapshots = floats(&t, snapshots * rows, c->hidden);
    s->sum = floats(&t, rows, c->hidden);
    s->mix = floats(&t, rows, c->hidden);
    s->x = floats(&t, rows, c->hidden);
    s->x_packed = floats(&t, rows, pack_cols(c->hidden));
    s->out = floats(&t, rows, c->hidden);
    s->logits = floats(&t, logits, c->vocab);
    s->taps = floats(&t, rows, k3_tap_floats(o, c->hidden));
    s->drafts = floats(&t, kda_layers * o->drafts,
                       6ull * config_kda_width(c) + c->kda_heads);
    struct cutter attention = t, mlp = t;
    cut_attention(&attention, s, c, rows);
    cut_mlp(&mlp, s, c, rows);
    return max(attention.at, mlp.at);
}

void k3_scratch_size(const struct config *c, const struct k3_options *o,
                     uint32_t threads, struct scratch_size *out)
{
    struct scratch unused;
    uint64_t none = cut(&unused, NULL, c, o, threads, 0);
    uint64_t many = cut(&unused, NULL, c, o, threads, K3_ROWS_MAX);
    /* Both in pages, so that whatever is planned stays aligned. */
    out->fixed_bytes = (none + ROUNDING) / BLOCK_PAGE * BLOCK_PAGE;
    out->row_bytes = (many - none) / K3_ROWS_MAX + 1;
    out->row_bytes = (out->row_bytes + BLOCK_PAGE - 1) / BLOCK_PAGE *
                     BLOCK_PAGE;
}

void k3_scratch_cut(struct scratch *s, uint8_t *base, const struct config *c,
                    const struct k3_options *o, uint32_t threads,
                    uint32_t rows)
{
    cut(s, base, c, o, threads, rows);
    float *const buffer[BUFFERS] = {
        [BUFFER_SUM] = s->sum, [BUFFER_X] = s->x_packed,
        [BUFFER_Q] = s->raw[0], [BUFFER_K] = s->raw[1],
        [BUFFER_V] = s->raw[2], [BUFFER_DECAY] = s->decay,
        [BUFFER_BETA] = s->beta, [BUFFER_KDA_GATE] = s->kda_gate,
        [BUFFER_FA] = s->fa, [BUFFER_FA_PACKED] = s->fa_packed,
        [BUFFER_QUERY_LATENT] = s->query_latent,
        [BUFFER_QUERY_LATENT_PACKED] = s->query_latent_packed,
        [BUFFER_QUERY] = s->query, [BUFFER_KEY_LATENT] = s->key_latent,
        [BUFFER_KDA_HEADS] = s->conv[0], [BUFFER_MLA_HEADS] = s->attended,
        [BUFFER_SCORES] = s->scores,
        [BUFFER_MLA_GATE] = s->mla_gate, [BUFFER_ATTENDED] = s->attended_packed,
        [BUFFER_GATE] = s->mlp_gate, [BUFFER_UP] = s->mlp_up,
        [BUFFER_ACTIVATED] = s->activated,
        [BUFFER_SHARED] = s->shared, [BUFFER_LATENT] = s->latent,
        [BUFFER_LATENT_PACKED] = s->latent_packed,
        [BUFFER_REDUCED] = s->reduced,
        [BUFFER_REDUCED_PACKED] = s->reduced_packed,
        [BUFFER_OUT] = s->out, [BUFFER_LOGITS] = s->logits,
    };
    memcpy(s->buffer, buffer, sizeof buffer);
}

/* moe.c - router, latent experts, shared expert.
 *
 *     s = sigmoid(Wr x); the top k of s + bias; weight s / (sum of these k)
 *     z = Wdown x; y = sum over the k of weight * (w2 situ(w1 z, w3 z))
 *     out = Wup rms(y) + shared MLP of x
 *
 * Products of experts are float32 over MXFP4 (compute/mxfp4.h).
 *
 * Every expert writes one partial a row. The partials are added in rank order,
 * so the order in which experts arrive (flow.c) does not change a bit.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "compute/mxfp4.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/router.h"
#include "model/k3/k3_internal.h"

enum { EXPERT_GRAIN = 32, REDUCE_BLOCK = 1024 }; /* rows; columns */

_Static_assert((int)EXPERT_TENSORS < (int)BLOCK_PARTS_MAX &&
                   (int)EXPERT_TENSORS <= (int)BLOCK_SEGMENTS_MAX,
               "an expert is one load");

/* ---- router ---- */

struct route_job {
    struct k3 *k;
    const uint8_t *frame;
    const struct tile_piece *piece;
    uint32_t rows;
    _Atomic bool bad;
};

static void route_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct route_job *j = arg;
    const struct config *c = &j->k->c;
    size_t first = j->piece->row;
    const uint8_t *w = coded_rows(j->k, j->piece, j->frame, (uint32_t)begin,
                                  (uint32_t)end, k3_decoded(j->k, worker));
    for (uint32_t r = 0; r < j->rows; r++)
        if (!router_scores(&j->k->kern, j->k->s.scores + (size_t)r * c->experts,
                           w, j->k->s.x + (size_t)r * c->hidden, c->hidden,
                           first + begin, first + end))
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

int k3_route(struct k3 *k, const struct tile_piece *piece,
             const uint8_t *frame)
{
    struct route_job j = { .k = k, .frame = frame, .piece = piece,
                           .rows = k->flow.rows };
    team_for(k->team, piece->rows, K3_ROUTER_GRAIN, route_some, &j);
    return j.bad ? k3_tensor_failed(k, piece->layer, T_ROUTER) : 0;
}

void k3_choose(struct k3 *k, uint32_t layer)
{
    struct flow *f = &k->flow;
    struct scratch *s = &k->s;
    const struct config *c = &k->c;
    k3_gate_keep(k, layer);
    for (uint32_t i = 0; i < f->runs; i++)
        for (uint32_t j = 0; j < f->run[i].count; j++) {
            uint32_t r = f->run[i].first + j;
            uint32_t *ids = f->ids + (size_t)r * c->top_k;
            router_select(ids, s->weights + (size_t)r * c->top_k,
                          s->scores + (size_t)r * c->experts,
                          k->vectors.at[T_ROUTER_BIAS], c->experts, c->top_k,
                          c->renormalize, c->routed_scaling);
            cache_row(f->cache, ids, c->top_k, true, f->run[i].count - 1 - j);
        }
}

/* Sort the choices by expert: entries [first_of[i], first_of[i + 1]) of row_of
 * and rank_of are the rows that chose item i (flow.uses), ascending, and the
 * rank it has there. */
static void sort_rows(struct k3 *k)
{
    struct flow *f = &k->flow;
    struct scratch *s = &k->s;
    size_t top_k = k->c.top_k, n = f->rows * top_k;
    uint32_t items = 0;
    s->first_of[0] = 0;
    for (size_t found = 0; found < n; items++) {
        s->item_of[f->uses[items].expert] = items;
        found += f->uses[items].uses;
        s->first_of[items + 1] = (uint32_t)found;
    }
    for (uint32_t r = f->rows; r-- > 0;)
        for (uint32_t q = k->c.top_k; q-- > 0;) {
            uint32_t item = s->item_of[f->ids[r * top_k + q]];
            uint32_t at = --s->first_of[item + 1];
            s->row_of[at] = r;
            s->rank_of[at] = q;
        }
    /* Each bound has moved down to its own beginning. */
    memmove(s->first_of, s->first_of + 1, items * sizeof *s->first_of);
    s->first_of[items] = (uint32_t)n;
}

void k3_requested(void *arg, const struct step *step)
{
    struct k3 *k = arg;
    struct flow *f = &k->flow;
    struct scratch *s = &k->s;
    uint8_t source[K3_TOP_K_MAX];
    sort_rows(k);
    if (!k->o.routed)
        return;
    for (uint32_t r = 0; r < f->rows; r++) {
        const uint32_t *ids = f->ids + (size_t)r * k->c.top_k;
        for (uint32_t q = 0; q < k->c.top_k; q++) {
            uint32_t item = s->item_of[ids[q]];
            bool first = s->row_of[s->first_of[item]] == r;
            enum fetch_source from = fetch_source(f->fetch, item);
            source[q] = first || from == FETCH_RESIDENT ? (uint8_t)from
                                                       : K3_SOURCE_SHARED;
        }
        k->o.routed(k->o.routed_arg, (uint32_t)step->layer, r, ids,
                    s->weights + (size_t)r * k->c.top_k, source);
    }
}

/* ---- experts ---- */

struct experts_job {
    struct k3 *k;
    const struct expert_batch *batch;
    struct row_range up, down; /* rows of w1 and w3, and of w2, that are ours */
    _Atomic uint32_t bad; /* 1 + which tensor of which part: see mark_bad */
};

/* Where row `row` of matrix m (w1, w2, w3) and its scales are, of rows of
 * weight_bytes and scale_bytes. Lowers *stop to the end of the rows that follow
 * there. */
static const uint8_t *rows_of(const struct k3 *k, const struct expert_part *t,
                              int m, size_t row, size_t weight_bytes,
                              size_t scale_bytes, size_t *stop,
                              const uint8_t **scale)
{
    const struct expert_form *f = &k->form;
    const struct load *load = t->load;
    uint32_t i = 0;
    if (!f->slices) {
        *scale = load->frame + load->part_at[2 * m + 1] + row * scale_bytes;
        return load->frame + load->part_at[2 * m] + row * weight_bytes;
    }
    while (row >= f->row[m][i].end)
        i++;
    *stop = f->row[m][i].end < *stop ? f->row[m][i].end : *stop;
    *scale = load->frame + f->plane_at[m] + row * scale_bytes;
    return load->frame + f->at[m][i] +
           (row - f->row[m][i].begin) * weight_bytes;
}

/* Entry in row_of and rank_of of the r-th row of a part. */
static uint32_t entry_of(const struct experts_job *b,
                         const struct expert_part *t, uint32_t r)
{
    return b->k->s.first_of[t->item] + t->from + r;
}

static void mark_bad(struct experts_job *b, uint32_t part, uint32_t tensor)
{
    atomic_store_explicit(&b->bad, 1 + part * EXPERT_TENSORS + tensor,
                          memory_order_relaxed);
}

/* g and u of every part: our outputs of w1 and w3 in one row space. */
static void gate_up(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct experts_job *b = arg;
    struct scratch *s = &b->k->s;
    size_t inter = b->k->c.moe_inter, cols = b->k->c.latent;
    size_t first = b->up.begin, own = b->up.end - b->up.begin;
    while (begin < end) {
        size_t matrix = begin / own, row = begin % own;
        size_t stop = row + (end - begin) < own ? row + (end - begin) : own;
        const struct expert_part *t = &b->batch->part[matrix / 2];
        bool up = matrix % 2;
        const uint8_t *scale;
        const uint8_t *w = rows_of(b->k, t, up ? 2 : 0, row, cols / 2,
                                   cols / MXFP4_BLOCK, &stop, &scale);
        float *y = (up ? s->expert_u : s->expert_g) + t->row * inter;
        if (!mxfp4_gemm(&b->k->kern, y, inter, w, scale, cols,
                        s->expert_x + t->row * pack_cols(cols), t->rows,
                        first + row, first + stop))
            mark_bad(b, (uint32_t)(matrix / 2), up ? 4 : 0);
        begin += stop - row;
    }
}

/* Our w2 of every part; its results go to the partials of the rows. */
static void down(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct experts_job *b = arg;
    struct scratch *s = &b->k->s;
    size_t cols = b->k->c.moe_inter, latent = b->k->c.latent;
    size_t first = b->down.begin, own = b->down.end - b->down.begin;
    while (begin < end) {
        size_t part = begin / own, row = begin % own;
        size_t stop = row + (end - begin) < own ? row + (end - begin) : own;
        const struct expert_part *t = &b->batch->part[part];
        float *y = s->expert_y + t->row * latent;
        const uint8_t *scale;
        const uint8_t *w = rows_of(b->k, t, 1, row, cols / 2,
                                   cols / MXFP4_BLOCK, &stop, &scale);
        if (!mxfp4_gemm(&b->k->kern, y, latent, w, scale, cols,
                        s->expert_a + t->row * pack_cols(cols), t->rows,
                        first + row, first + stop))
            mark_bad(b, (uint32_t)part, 2);
        for (uint32_t r = 0; r < t->rows; r++) {
            uint32_t entry = entry_of(b, t, r);
            size_t to = (size_t)s->row_of[entry] * b->k->c.top_k +
                        s->rank_of[entry];
            memcpy(s->partial + to * latent + first + row,
                   y + r * latent + first + row, (stop - row) * sizeof *y);
        }
        begin += stop - row;
    }
}

static void gather(struct experts_job *b, const struct expert_part *t)
{
    struct scratch *s = &b->k->s;
    size_t packed = pack_cols(b->k->c.latent);
    for (uint32_t r = 0; r < t->rows; r++)
        memcpy(s->expert_x + (t->row + r) * packed,
               s->latent_packed + s->row_of[entry_of(b, t, r)] * packed,
               packed * sizeof(float));
}

static int expert_failed(struct k3 *k, uint32_t layer, uint32_t expert,
                         uint32_t which)
{
    char name[TENSOR_NAME_BYTES];
    struct load load;
    expert_name(name, layer, expert, which);
    weights_place_expert(&k->weights, &k->form, layer, expert, &load);
    return error_set(k->error, -EBADMSG,
                     "%s: %s: products are not finite (a scale "
                     "byte of 255, or NaN or infinity in the activations)",
                     weights_path(&k->weights, load.segment[0].file), name);
}

static struct experts_job job_of(struct k3 *k,
                                 const struct expert_batch *batch)
{
    return (struct experts_job){
        .k = k, .batch = batch,
        .up = owned_expert_rows(k->o.owned, 0, &k->c),
        .down = owned_expert_rows(k->o.owned, 2, &k->c) };
}

static int check_bad(struct experts_job *b, const struct step *step)
{
    uint32_t bad = b->bad;
    if (!bad)
        return 0;
    uint32_t item = b->batch->part[(bad - 1) / EXPERT_TENSORS].item;
    return expert_failed(b->k, (uint32_t)step->layer,
                         b->k->flow.uses[item].expert,
                         (bad - 1) % EXPERT_TENSORS);
}

int k3_experts(void *arg, const struct step *step,
               const struct expert_batch *batch)
{
    struct k3 *k = arg;
    struct scratch *s = &k->s;
    struct experts_job b = job_of(k, batch);
    size_t parts = batch->parts, inter = k->c.moe_inter;
    for (uint32_t i = 0; i < parts; i++)
        gather(&b, &batch->part[i]);
    team_for(k->team, 2 * parts * (b.up.end - b.up.begin), EXPERT_GRAIN,
             gate_up, &b);
    int err = check_bad(&b, step);
    for (uint32_t i = 0; i < parts && k->o.owned && !err; i++) {
        size_t at = batch->part[i].row * inter;
        k3_situ_own(k, s->expert_g + at, s->expert_u + at,
                    batch->part[i].rows, inter, b.up);
    }
    if (err || k->o.owned) /* the rest is k3_experts_down's */
        return err;
    k3_situ(k, s->expert_a, s->expert_g, s->expert_u, batch->rows, inter);
    team_for(k->team, parts * k->c.latent, EXPERT_GRAIN, down, &b);
    return check_bad(&b, step);
}

int k3_experts_down(void *arg, const struct step *step,
                    const struct expert_batch *batch)
{
    struct k3 *k = arg;
    struct experts_job b = job_of(k, batch);
    int err = k3_gather_experts(k, batch->rows);
    if (err)
        return err;
    team_for(k->team, batch->parts * (size_t)(b.down.end - b.down.begin),
             EXPERT_GRAIN, down, &b);
    return check_bad(&b, step);
}

struct reduce_job {
    struct k3 *k;
    struct row_range own; /* columns */
    size_t blocks;
};

/* The partials of a row, weighted, in rank order. */
static void reduce_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct reduce_job *j = arg;
    struct scratch *s = &j->k->s;
    size_t latent = j->k->c.latent, top_k = j->k->c.top_k;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / j->blocks;
        size_t from = j->own.begin + i % j->blocks * REDUCE_BLOCK;
        size_t to = from + REDUCE_BLOCK < j->own.end ? from + REDUCE_BLOCK
                                                     : j->own.end;
        float *sum = s->reduced + row * latent;
        memset(sum + from, 0, (to - from) * sizeof *sum);
        for (size_t q = 0; q < top_k; q++) {
            float w = s->weights[row * top_k + q];
            const float *part = s->partial + (row * top_k + q) * latent;
            for (size_t c = from; c < to; c++)
                sum[c] += w * part[c];
        }
    }
}

void k3_reduce(struct k3 *k)
{
    struct row_range own = owned_expert_rows(k->o.owned, 2, &k->c);
    struct reduce_job j = {
        k, own, (own.end - own.begin + REDUCE_BLOCK - 1) / REDUCE_BLOCK };
    team_for(k->team, k->flow.rows * j.blocks, 1, reduce_some, &j);
}

int k3_norm_experts(struct k3 *k, uint32_t layer)
{
    struct scratch *s = &k->s;
    size_t latent = k->c.latent;
    uint32_t rows = k->flow.rows;
    for (uint32_t r = 0; r < rows && k->c.latent_norm; r++) {
        float *y = s->reduced + r * latent;
        if (!rms_norm(&k->kern, y, y, k->vectors.at[T_LATENT_NORM], latent,
                      k->c.rms_eps))
            return k3_tensor_failed(k, (int)layer, T_LATENT_NORM);
    }
    k3_pack(k, s->reduced_packed, s->reduced, rows, latent);
    return 0;
}

void k3_add_shared(struct k3 *k)
{
    size_t cells = (size_t)k->flow.rows * k->c.hidden;
    for (size_t i = 0; i < cells; i++)
        k->s.out[i] += k->s.shared[i];
}

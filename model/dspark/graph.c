/* graph.c - a sweep: context rows and blocks through all layers at once.
 *
 *     context   c = rms(W_fuse taps); keys and values of every layer from c
 *     block     x = embedding of [id, mask, ..]; each layer, as in any
 *               transformer: x += attention(rms(x)); x += mlp(rms(x))
 *
 * A tensor that both need is used for both while its tile is there.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/glu.h"
#include "compute/kern.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "model/dspark/dspark_internal.h"
#include "model/k3/k3.h"
#include "sched/event_ring.h"

static const char not_finite[] = "values or products are not finite";

/* ---- products ---- */

struct product {
    const struct kern *kern;
    const struct dspark_rows *set; /* [2] */
    const uint8_t *w;
    size_t cols, row;
    _Atomic bool bad;
};

static void product_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct product *j = arg;
    for (int i = 0; i < 2; i++) {
        const struct dspark_rows *r = &j->set[i];
        if (r->rows &&
            !bf16_gemm(j->kern, r->y, r->ldy, j->w + begin * j->cols * 2,
                       j->cols, r->xp, r->rows, j->row + begin, j->row + end))
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    }
}

int dspark_product(struct dspark *d, enum dspark_role role, uint32_t index,
                   struct dspark_rows a, struct dspark_rows b)
{
    const struct dspark_rows set[2] = { a, b };
    uint32_t rows, cols, done = 0;
    dspark_shape(&d->c, role, &rows, &cols);
    while (done < rows) {
        const struct sweep_tile *t;
        struct product j = { .kern = d->lent.kern, .set = set, .cols = cols,
                             .row = done };
        int err = dspark_sweep_hold(d, &t, &j.w);
        if (err)
            return err;
        assert(t->own && t->own->role == role && t->own->index == index &&
               t->own->row == done);
        team_for(d->lent.team, t->own->rows,
                 bf16_grain(cols, a.rows > b.rows ? a.rows : b.rows),
                 product_rows, &j);
        done += t->own->rows;
        dspark_sweep_release(d);
        if (j.bad)
            return dspark_fail(d, -EBADMSG, role, index, not_finite);
    }
    return 0;
}

/* ---- rows ---- */

struct norming {
    const struct dspark *d;
    float *packed, *y;
    const float *x;
    const uint8_t *gain;
    size_t n;
    _Atomic bool bad;
};

static void norm_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct norming *j = arg;
    for (size_t r = begin; r < end; r++) {
        float *y = j->y + r * j->n;
        if (!rms_norm(j->d->lent.kern, y, j->x + r * j->n, j->gain, j->n,
                      j->d->c.eps))
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
        pack_rows(j->packed + r * pack_cols(j->n), y, 1, j->n, j->n);
    }
}

int dspark_norm(struct dspark *d, float *packed, float *y, const float *x,
                uint32_t rows, enum dspark_role role, uint32_t index)
{
    uint32_t one, cols;
    dspark_shape(&d->c, role, &one, &cols);
    struct norming j = { .d = d, .packed = packed, .y = y, .x = x,
                         .gain = dspark_vector(d, role, index), .n = cols };
    team_for(d->lent.team, rows, 1, norm_rows, &j);
    return j.bad ? dspark_fail(d, -EBADMSG, role, index, not_finite) : 0;
}

static void add(struct dspark *d, uint32_t rows)
{
    size_t n = (size_t)rows * d->c.hidden;
    for (size_t i = 0; i < n; i++)
        d->b.x[i] += d->b.out[i];
}

static void activate_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct dspark *d = arg;
    size_t n = d->c.inter;
    for (size_t r = begin; r < end; r++) {
        float *g = d->b.gate + r * n;
        const float *u = d->b.up + r * n;
        sigmoid_gate(d->lent.kern, g, g, g, n);
        for (size_t i = 0; i < n; i++)
            g[i] *= u[i];
        pack_rows(d->b.active_packed + r * pack_cols(n), g, 1, n, n);
    }
}

/* ---- the layers ---- */

static struct dspark_rows rows_of(float *y, size_t ldy, const float *xp,
                                  uint32_t rows)
{
    return (struct dspark_rows){ y, ldy, xp, rows };
}

static const struct dspark_rows none;

static int project_gqa(struct dspark *d, uint32_t l, uint32_t rows)
{
    struct buffers *b = &d->b;
    size_t kv = (size_t)d->c.kv_heads * d->c.head_dim;
    int err = 0;
    if (rows)
        err = dspark_product(d, D_Q, l,
                             rows_of(b->query,
                                     (size_t)d->c.heads * d->c.head_dim,
                                     b->h_packed, rows), none);
    if (!err)
        err = dspark_product(d, D_K, l, rows_of(b->kept, kv, b->fused_packed,
                                                d->pendings),
                             rows_of(b->block_kept, kv, b->h_packed, rows));
    if (!err)
        err = dspark_product(d, D_V, l, rows_of(b->kept_v, kv, b->fused_packed,
                                                d->pendings),
                             rows_of(b->block_v, kv, b->h_packed, rows));
    return err;
}

static int project_mla(struct dspark *d, uint32_t l, uint32_t rows)
{
    struct buffers *b = &d->b;
    size_t kept = d->c.kv_rank + d->c.rope;
    int err = 0;
    if (rows)
        err = dspark_product(d, D_QA, l, rows_of(b->query_latent, d->c.q_rank,
                                                 b->h_packed, rows), none);
    if (!err && rows)
        err = dspark_norm(d, b->query_latent_packed, b->query_latent,
                          b->query_latent, rows, D_QA_NORM, l);
    if (!err && rows)
        err = dspark_product(d, D_QB, l,
                             rows_of(b->query, (size_t)d->c.heads *
                                                   (d->c.nope + d->c.rope),
                                     b->query_latent_packed, rows), none);
    if (!err)
        err = dspark_product(d, D_KVA, l, rows_of(b->kept, kept,
                                                  b->fused_packed,
                                                  d->pendings),
                             rows_of(b->block_kept, kept, b->h_packed, rows));
    return err;
}

static int mlp(struct dspark *d, uint32_t l, uint32_t rows)
{
    struct buffers *b = &d->b;
    size_t inter = d->c.inter;
    int err = dspark_norm(d, b->h_packed, b->out, b->x, rows, D_POST_NORM, l);
    if (!err)
        err = dspark_product(d, D_GATE, l,
                             rows_of(b->gate, inter, b->h_packed, rows), none);
    if (!err)
        err = dspark_product(d, D_UP, l,
                             rows_of(b->up, inter, b->h_packed, rows), none);
    if (err)
        return err;
    team_for(d->lent.team, rows, 1, activate_rows, d);
    err = dspark_product(d, D_DOWN, l, rows_of(b->out, d->c.hidden,
                                               b->active_packed, rows), none);
    if (!err)
        add(d, rows);
    return err;
}

static int layer(struct dspark *d, uint32_t l)
{
    struct buffers *b = &d->b;
    uint32_t rows = d->asks * d->rows;
    int err = rows ? dspark_norm(d, b->h_packed, b->out, b->x, rows,
                                 D_INPUT_NORM, l)
                   : 0;
    if (!err)
        err = dspark_is_mla(d) ? project_mla(d, l, rows)
                               : project_gqa(d, l, rows);
    if (!err)
        err = dspark_store(d, l);
    if (err || !rows)
        return err;
    err = dspark_attend(d, l);
    if (!err)
        err = dspark_product(d, D_O, l, rows_of(b->out, d->c.hidden,
                                                b->attended_packed, rows),
                             none);
    if (!err)
        add(d, rows);
    return err ? err : mlp(d, l, rows);
}

/* ---- before and after them ---- */

static int fuse(struct dspark *d)
{
    struct buffers *b = &d->b;
    int err = dspark_product(d, D_FUSE, 0, rows_of(b->fused, d->c.hidden,
                                                   b->pending, d->pendings),
                             none);
    return err ? err : dspark_norm(d, b->fused_packed, b->fused, b->fused,
                                   d->pendings, D_CONTEXT_NORM, 0);
}

static void post_embeddings(struct dspark *d)
{
    for (uint32_t i = 0; i < d->asks; i++) {
        struct load *load = &d->embed_load[i];
        load->segment[0] = flow_embedding_row(d->lent.flow, d->ask[i].id);
        block_place(&load->segment[0], 0);
        load->segment_count = 1;
        load->object = EVENT_GUEST;
        load->frame = d->b.embed + i * d->embed_frame_bytes;
        load->alone = true;
        atomic_store(&load->urgency, READ_DEMAND);
        d->facts.read_bytes += load->segment[0].length_bytes;
        stream_post(d->lent.stream, load);
    }
}

static int embed(struct dspark *d)
{
    size_t n = d->c.hidden;
    for (uint32_t i = 0; i < d->asks; i++) {
        const struct load *load = &d->embed_load[i];
        int err = dspark_wait(d, load);
        if (err)
            return dspark_fail(d, err, D_EMBED, 0, strerror(-err));
        float *x = d->b.x + (size_t)i * d->rows * n;
        bf16_widen(d->lent.kern, x, load->frame + load->segment[0].at, n);
        for (uint32_t r = 1; r < d->rows; r++)
            memcpy(x + r * n, d->b.mask, n * sizeof *x);
    }
    return 0;
}

/* Positions of all rows, as cos and sin. */
static void turn(struct dspark *d)
{
    uint32_t width = dspark_rotated(&d->c);
    for (uint32_t i = 0; i < d->pendings; i++)
        rope_at(&d->rope, d->pending[i].position, d->b.turn + i * width);
    for (uint32_t i = 0; i < d->asks * d->rows; i++) {
        const struct context *c =
            &d->context[d->ask[i / d->rows].sequence];
        rope_at(&d->rope, c->known + i % d->rows, d->b.block_turn + i * width);
    }
}

static int head(struct dspark *d)
{
    uint32_t rows = d->asks * d->rows;
    int err = dspark_norm(d, d->b.h_packed, d->b.hidden, d->b.x, rows, D_NORM,
                          0);
    while (!err && d->sweep.at < d->sweep.count) {
        const struct sweep_tile *t;
        const uint8_t *frame;
        err = dspark_sweep_hold(d, &t, &frame);
        if (err)
            return err;
        assert(!t->own);
        err = k3_head(d->k, t->head, frame, d->b.logits, d->b.h_packed, rows,
                      &d->error);
        dspark_sweep_release(d);
    }
    return err;
}

int dspark_run(struct dspark *d)
{
    post_embeddings(d);
    dspark_sweep_begin(d, d->asks > 0);
    turn(d);
    int err = embed(d);
    if (!err && d->pendings)
        err = fuse(d);
    for (uint32_t l = 0; l < d->c.layers && !err; l++)
        err = layer(d, l);
    if (!err && d->asks)
        err = head(d);
    for (uint32_t i = 0; i < d->pendings && !err; i++) {
        struct context *c = &d->context[d->pending[i].sequence];
        c->end = c->known;
    }
    if (err)
        dspark_sweep_drop(d);
    else
        d->pendings = 0;
    return err;
}

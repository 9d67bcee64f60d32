/* k3_moe.c - router, latent experts, shared expert (k3-spec 3.7, 3.8).
 *
 * The experts are asked for as soon as the router has spoken. Those that are
 * there are computed first, several at once; while none is, the shared expert
 * goes on tile by tile; only when neither can, compute waits. Every expert
 * writes one partial a row, and the partials are added in rank order, so the
 * order of arrival leaves no trace.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compute/mxfp4.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/router.h"
#include "model/k3_guess.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"

enum { EXPERT_GRAIN = 32, REDUCE_BLOCK = 1024 };

uint64_t k3_place_expert(const struct ckpt *ckpt, uint32_t layer,
                         uint32_t expert, struct load *load,
                         uint32_t at[EXPERT_TENSORS])
{
    struct extent e[EXPERT_TENSORS];
    uint64_t used = 0, base = 0;
    struct segment *last = NULL;
    ckpt_expert(ckpt, layer, expert, e);
    load->segment_count = 0;
    for (int i = 0; i < EXPERT_TENSORS; i++) {
        if (last && last->file == e[i].file &&
            last->offset_bytes + last->length_bytes == e[i].offset_bytes) {
            at[i] = last->at + (uint32_t)last->length_bytes;
            last->length_bytes += e[i].length_bytes;
        } else {
            base = used;
            last = &load->segment[load->segment_count++];
            *last = (struct segment){ .file = e[i].file,
                                      .offset_bytes = e[i].offset_bytes,
                                      .length_bytes = e[i].length_bytes };
            block_place(last, base);
            at[i] = last->at;
        }
        used = block_place(last, base);
    }
    return used;
}

/* ---- router ---- */

struct route_job {
    struct k3 *k;
    const uint8_t *w;
    const struct tile_piece *piece;
    uint32_t rows;
    _Atomic bool bad;
};

static void route_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct route_job *j = arg;
    const struct config *c = &j->k->c;
    size_t first = j->piece->row;
    for (uint32_t r = 0; r < j->rows; r++)
        if (!router_scores(j->k->s.scores + (size_t)r * c->experts,
                           j->w + begin * j->piece->row_bytes,
                           j->k->s.x + (size_t)r * c->hidden, c->hidden,
                           first + begin, first + end))
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

static int score(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    uint32_t count, first = tiles_of(k->tiles, (int)layer, T_ROUTER, &count);
    for (uint32_t t = first; t < first + count; t++) {
        const uint8_t *frame;
        int err = k3_hold(p, t, &frame);
        if (err)
            return err;
        const struct tile_piece *piece =
            tiles_piece(k->tiles, t, (int)layer, T_ROUTER);
        struct route_job j = { .k = k, .w = frame + piece->at, .piece = piece,
                               .rows = p->rows };
        int64_t begin = stream_clock_ns();
        team_for(k->team, piece->rows, 8, route_some, &j);
        k3_release(p, t);
        k3_note(k, K3_ROUTE, layer, begin);
        if (j.bad)
            return k3_tensor_failed(p, (int)layer, T_ROUTER);
    }
    return 0;
}

/* The rows' choices, the distinct experts among them, and for each of those the
 * rows that chose it. */
static const struct cache_use *choose(struct pass *p, uint32_t *n)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    const struct config *c = &k->c;
    for (uint32_t i = 0; i < k->runs; i++)
        for (uint32_t j = 0; j < k->run[i].count; j++) {
            uint32_t r = k->run[i].first + j;
            uint32_t *ids = s->ids + (size_t)r * c->top_k;
            router_select(ids, s->weights + (size_t)r * c->top_k,
                          s->scores + (size_t)r * c->experts,
                          k->small.at[T_ROUTER_BIAS], c->experts, c->top_k,
                          c->renormalize, c->routed_scaling);
            cache_row(k->cache, ids, c->top_k, true,
                      k->run[i].count - 1 - j);
        }
    const struct cache_use *uses = cache_uses(k->cache, n);
    s->first_of[0] = 0;
    for (uint32_t i = 0; i < *n; i++) {
        s->use_of[uses[i].expert] = i;
        s->first_of[i + 1] = s->first_of[i] + uses[i].uses;
    }
    for (uint32_t r = p->rows; r-- > 0;)
        for (uint32_t q = c->top_k; q-- > 0;) {
            uint32_t use = s->use_of[s->ids[(size_t)r * c->top_k + q]];
            uint32_t at = --s->first_of[use + 1];
            s->row_of[at] = r;
            s->rank_of[at] = q;
        }
    /* Each bound has moved down to its own beginning. */
    memmove(s->first_of, s->first_of + 1, *n * sizeof *s->first_of);
    s->first_of[*n] = p->rows * c->top_k;
    return uses;
}

static void tell(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    uint8_t how[K3_TOP_K_MAX];
    if (!k->o.routed)
        return;
    for (uint32_t r = 0; r < p->rows; r++) {
        const uint32_t *ids = s->ids + (size_t)r * k->c.top_k;
        for (uint32_t q = 0; q < k->c.top_k; q++) {
            uint32_t use = s->use_of[ids[q]];
            bool first = s->row_of[s->first_of[use]] == r;
            how[q] = first || fetch_how(k->fetch, use) == FETCH_RESIDENT
                         ? (uint8_t)fetch_how(k->fetch, use)
                         : K3_HOW_SHARED;
        }
        k->o.routed(k->o.routed_arg, layer, r, ids,
                    s->weights + (size_t)r * k->c.top_k, how);
    }
}

/* ---- experts ---- */

/* Some rows of one expert that is there. */
struct part {
    uint32_t item, row, rows; /* rows at row..row+rows-1 of the batch */
    uint32_t from;            /* first entry in row_of, rank_of */
    const uint8_t *tensor[EXPERT_TENSORS];
};

struct batch {
    struct k3 *k;
    struct part part[K3_EXPERT_ROWS];
    uint32_t parts, rows;
    _Atomic uint32_t bad; /* 1 + which tensor of which part: see mark_bad */
};

static void mark_bad(struct batch *b, uint32_t part, uint32_t tensor)
{
    atomic_store_explicit(&b->bad, 1 + part * EXPERT_TENSORS + tensor,
                          memory_order_relaxed);
}

/* g and u of every part: the outputs of w1 and w3 in one row space. */
static void gate_up(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct batch *b = arg;
    struct scratch *s = &b->k->s;
    size_t inter = b->k->c.moe_inter, cols = b->k->c.latent;
    while (begin < end) {
        size_t matrix = begin / inter, row = begin % inter;
        size_t stop = row + (end - begin) < inter ? row + (end - begin)
                                                  : inter;
        const struct part *t = &b->part[matrix / 2];
        bool up = matrix % 2;
        const uint8_t *w = t->tensor[up ? 4 : 0];
        const uint8_t *scale = t->tensor[up ? 5 : 1];
        float *y = (up ? s->expert_u : s->expert_g) + t->row * inter;
        if (!mxfp4_gemm(y, inter, w + row * (cols / 2),
                        scale + row * (cols / MXFP4_BLOCK), cols,
                        s->expert_x + t->row * pack_cols(cols), t->rows, row,
                        stop))
            mark_bad(b, (uint32_t)(matrix / 2), up ? 4 : 0);
        begin += stop - row;
    }
}

/* The w2 of every part, and its results to the rows' partials. */
static void down(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct batch *b = arg;
    struct scratch *s = &b->k->s;
    size_t cols = b->k->c.moe_inter, latent = b->k->c.latent;
    while (begin < end) {
        size_t part = begin / latent, row = begin % latent;
        size_t stop = row + (end - begin) < latent ? row + (end - begin)
                                                   : latent;
        const struct part *t = &b->part[part];
        float *y = s->expert_y + t->row * latent;
        if (!mxfp4_gemm(y, latent, t->tensor[2] + row * (cols / 2),
                        t->tensor[3] + row * (cols / MXFP4_BLOCK), cols,
                        s->expert_a + t->row * pack_cols(cols), t->rows, row,
                        stop))
            mark_bad(b, (uint32_t)part, 2);
        for (uint32_t r = 0; r < t->rows; r++) {
            size_t to = (size_t)s->row_of[t->from + r] * b->k->c.top_k +
                        s->rank_of[t->from + r];
            memcpy(s->partial + to * latent + row, y + r * latent + row,
                   (stop - row) * sizeof *y);
        }
        begin += stop - row;
    }
}

static void gather(struct batch *b, const struct part *t)
{
    struct scratch *s = &b->k->s;
    size_t packed = pack_cols(b->k->c.latent);
    for (uint32_t r = 0; r < t->rows; r++)
        memcpy(s->expert_x + (t->row + r) * packed,
               s->zp + s->row_of[t->from + r] * packed,
               packed * sizeof(float));
}

static int expert_failed(struct pass *p, uint32_t layer, uint32_t expert,
                         uint32_t which)
{
    char name[TENSOR_NAME_BYTES];
    struct extent e[EXPERT_TENSORS];
    expert_name(name, layer, expert, which);
    ckpt_expert(p->k->ckpt, layer, expert, e);
    return why_set(p->why, -EBADMSG, "%s: %s: products are not finite (a scale "
                   "byte of 255, or NaN or infinity in the activations)",
                   ckpt_path(p->k->ckpt, e[which].file), name);
}

static int compute(struct pass *p, uint32_t layer, struct batch *b,
                   const struct cache_use *uses)
{
    struct k3 *k = p->k;
    int64_t begin = stream_clock_ns();
    b->bad = 0;
    for (uint32_t i = 0; i < b->parts; i++)
        gather(b, &b->part[i]);
    for (uint32_t i = 0; i < k->o.kernel_repeat; i++) {
        team_for(k->team, 2ull * b->parts * k->c.moe_inter, EXPERT_GRAIN,
                 gate_up, b);
        if (!b->bad)
            k3_situ(k, k->s.expert_a, k->s.expert_g, k->s.expert_u, b->rows,
                    k->c.moe_inter);
        if (!b->bad)
            team_for(k->team, (size_t)b->parts * k->c.latent, EXPERT_GRAIN,
                     down, b);
    }
    k3_note(k, K3_EXPERTS, layer, begin);
    uint32_t bad = b->bad;
    if (!bad)
        return 0;
    uint32_t item = b->part[(bad - 1) / EXPERT_TENSORS].item;
    return expert_failed(p, layer, uses[item].expert,
                         (bad - 1) % EXPERT_TENSORS);
}

/* ---- the shared expert, a tile at a time ---- */

struct shared {
    uint32_t next, end;
    bool     acted; /* the activation is done */
};

static struct shared shared_begin(const struct k3 *k, uint32_t layer)
{
    uint32_t count;
    struct shared w = { 0 };
    w.next = tiles_of(k->tiles, (int)layer, T_SHARED_GATE, &count);
    w.end = tiles_of(k->tiles, (int)layer, T_SHARED_DOWN, &count) + count;
    return w;
}

static int shared_step(struct pass *p, uint32_t layer, struct shared *w)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    const struct tile_piece *piece =
        &k->tiles->piece[k->tiles->first_piece[w->next]];
    const uint8_t *frame;
    size_t inter = config_shared_inter(&k->c);
    int err = k3_hold(p, w->next, &frame);
    if (err)
        return err;
    int64_t begin = stream_clock_ns();
    bool is_down = piece->role == T_SHARED_DOWN;
    if (is_down && !w->acted) {
        k3_situ(k, s->up, s->g, s->u, p->rows, inter);
        w->acted = true;
    }
    float *y = is_down ? s->shared
               : piece->role == T_SHARED_UP ? s->u
                                            : s->g;
    err = k3_product_piece(p, piece, frame, is_down ? s->up : s->xp, p->rows,
                           y, is_down ? k->c.hidden : inter);
    k3_release(p, w->next);
    k3_note(k, (uint8_t)piece->role, layer, begin);
    w->next++;
    return err;
}

/* ---- the layer ---- */

/* The expert whose rows did not all fit in the last batch. */
struct rest {
    uint32_t item, from, end;
    const uint8_t *frame;
};

/* Take rows of ready experts until the batch is full or none is ready.
 * Returns 0, -ENOENT when the layer's experts are all taken, or an error. */
static int fill_batch(struct pass *p, uint32_t layer, struct batch *b,
                      const struct cache_use *uses, struct rest *rest)
{
    struct k3 *k = p->k;
    b->parts = b->rows = 0;
    while (b->rows < K3_EXPERT_ROWS) {
        if (rest->from == rest->end) {
            int got = fetch_next(k->fetch, &rest->item, &rest->frame);
            if (got == 0 || (got == -ENOENT && b->rows))
                return 0;
            if (got < 0)
                return got;
            rest->from = k->s.first_of[rest->item];
            rest->end = k->s.first_of[rest->item + 1];
        }
        struct part *t = &b->part[b->parts++];
        uint32_t room = K3_EXPERT_ROWS - b->rows;
        uint32_t rows = rest->end - rest->from;
        *t = (struct part){ .item = rest->item, .row = b->rows,
                            .rows = rows < room ? rows : room,
                            .from = rest->from };
        struct load place;
        uint32_t at[EXPERT_TENSORS];
        k3_place_expert(k->ckpt, layer, uses[rest->item].expert, &place, at);
        for (int i = 0; i < EXPERT_TENSORS; i++)
            t->tensor[i] = rest->frame + at[i];
        rest->from += t->rows;
        b->rows += t->rows;
    }
    return 0;
}

static void give_back(struct k3 *k, const struct batch *b,
                      const struct rest *rest)
{
    for (uint32_t i = 0; i < b->parts; i++)
        if (b->part[i].item != rest->item || rest->from == rest->end) {
            fetch_done(k->fetch, b->part[i].item);
            k->expert_items++;
        }
}

static int wait_for_any(struct pass *p, uint32_t seen, uint32_t layer)
{
    struct k3 *k = p->k;
    if (atomic_load(&k->cancel))
        return k3_read_failed(p, -ECANCELED, "");
    int64_t begin = stream_clock_ns();
    stream_await(k->stream, seen);
    k3_waited_expert(k, layer, begin);
    return 0;
}

static int experts(struct pass *p, uint32_t layer,
                   const struct cache_use *uses)
{
    struct k3 *k = p->k;
    struct batch b = { .k = k };
    struct rest rest = { 0 };
    struct shared shared = shared_begin(k, layer);
    char what[64];
    snprintf(what, sizeof what, "an expert of layer %" PRIu32, layer);
    for (;;) {
        uint32_t seen = stream_events(k->stream);
        bool joins = k->o.look_ahead != K3_LOOK_RING;
        if (joins && fetch_waiting(k->fetch)) {
            int stopped = wait_for_any(p, seen, layer);
            if (stopped)
                return stopped;
            if (!stream_failure(k->stream).error)
                continue;
        }
        int err = fill_batch(p, layer, &b, uses, &rest);
        if (err == -ENOENT)
            break;
        if (err)
            return k3_read_failed(p, err, what);
        if (b.rows) {
            err = compute(p, layer, &b, uses);
            give_back(k, &b, &rest);
        } else if (shared.next < shared.end &&
                   stream_ready(k->stream, shared.next)) {
            err = shared_step(p, layer, &shared);
        } else {
            err = wait_for_any(p, seen, layer);
        }
        if (err)
            return err;
    }
    fetch_end(k->fetch);
    while (shared.next < shared.end) {
        int err = shared_step(p, layer, &shared);
        if (err)
            return err;
    }
    return 0;
}

struct reduce_job {
    struct k3 *k;
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
        size_t row = i / j->blocks, from = i % j->blocks * REDUCE_BLOCK;
        size_t to = from + REDUCE_BLOCK < latent ? from + REDUCE_BLOCK
                                                 : latent;
        float *sum = s->latent + row * latent;
        memset(sum + from, 0, (to - from) * sizeof *sum);
        for (size_t q = 0; q < top_k; q++) {
            float w = s->weights[row * top_k + q];
            const float *part = s->partial + (row * top_k + q) * latent;
            for (size_t c = from; c < to; c++)
                sum[c] += w * part[c];
        }
    }
}

static int reduce(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    size_t latent = k->c.latent;
    struct reduce_job j = { k, (latent + REDUCE_BLOCK - 1) / REDUCE_BLOCK };
    int64_t begin = stream_clock_ns();
    team_for(k->team, p->rows * j.blocks, 1, reduce_some, &j);
    for (uint32_t r = 0; r < p->rows && k->c.latent_norm; r++) {
        float *y = s->latent + r * latent;
        if (!rms_norm(y, y, k->small.at[T_LATENT_NORM], latent, k->c.rms_eps))
            return k3_tensor_failed(p, (int)layer, T_LATENT_NORM);
    }
    k3_pack(k, s->latentp, s->latent, p->rows, latent);
    k3_note(k, K3_REDUCE, layer, begin);
    return 0;
}

int k3_moe(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    uint32_t n;
    int err = score(p, layer);
    if (err)
        return err;
    const struct cache_use *uses = choose(p, &n);
    k3_guess_judge(p, layer);
    fetch_begin(k->fetch, (uint32_t)k->passes, layer - k->c.first_dense, uses,
                n);
    tell(p, layer);
    k3_watch_mark(k, layer, false);
    err = k3_product(p, (int)layer, T_LATENT_DOWN, s->xp, p->rows, s->z,
                     k->c.latent);
    if (!err) {
        k3_pack(k, s->zp, s->z, p->rows, k->c.latent);
        k3_guess_ahead(p, layer);
        err = experts(p, layer, uses);
    }
    if (!err)
        err = reduce(p, layer);
    if (!err)
        err = k3_product(p, (int)layer, T_LATENT_UP, s->latentp, p->rows,
                         s->out, k->c.hidden);
    if (err)
        return err;
    size_t cells = (size_t)p->rows * k->c.hidden;
    for (size_t i = 0; i < cells; i++)
        s->out[i] += s->shared[i];
    return 0;
}

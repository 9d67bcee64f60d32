/* pass.c - a pass: what the engine computes at each step.
 *
 * The residual is not one sum. Every attn_res_block layers the running sum is
 * saved as a snapshot and starts again at zero. The input of each half of a
 * layer is a weighted mean of the snapshots and the running sum, with weights
 * from a learned vector (compute/attnres.h), then normed.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/bf16.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "model/k3/k3_internal.h"

/* ---- the vectors of a layer ---- */

static bool finite_vector(const uint8_t *at, uint64_t bytes, bool f32)
{
    uint32_t worst = 0;
    if (f32) {
        for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
            uint32_t v;
            memcpy(&v, at + i, 4);
            v &= 0x7f800000;
            worst = v > worst ? v : worst;
        }
        return worst != 0x7f800000;
    }
    for (uint64_t i = 0; i + 2 <= bytes; i += 2) {
        uint16_t v;
        memcpy(&v, at + i, 2);
        v &= 0x7f80;
        worst = v > worst ? v : worst;
    }
    return worst != 0x7f80;
}

static int copy_vector(struct k3 *k, const struct step *s,
                       const struct tile_piece *piece, const uint8_t *frame)
{
    const struct tiles *t = k->flow.tiles;
    struct layer_vectors *v = s->layer < 0 ? &k->model_vectors : &k->vectors;
    uint64_t bytes = piece->rows * piece->row_bytes;
    if (piece == tiles_use(t, t->first_use[piece->step])) {
        v->used = 0;
        memset(v->at, 0, sizeof v->at);
    }
    uint8_t *to = v->buffer + v->used;
    memcpy(to, frame + piece->at, bytes);
    v->at[piece->role] = to;
    v->bytes[piece->role] = bytes;
    v->used += (bytes + 63) / 64 * 64;
    bool f32 = tensor_dtype((enum tensor_role)piece->role) == DTYPE_F32;
    return finite_vector(to, bytes, f32)
               ? 0
               : k3_tensor_failed(k, piece->layer,
                                  (enum tensor_role)piece->role);
}

/* ---- the residual ---- */

struct mixing {
    struct k3 *k;
    const uint8_t *norm, *proj, *gain;
    const uint32_t *rows; /* NULL: row i is i */
    int tap; /* keep what is mixed, see guest.h; -1: no */
    _Atomic bool bad;
};

/* x = rms(mix over the snapshots and the sum), and packed, for rows [begin,
 * end). */
static void mix_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct mixing *m = arg;
    struct k3 *k = m->k;
    struct scratch *s = &k->s;
    size_t width = k->c.hidden;
    bool good = true;
    for (size_t i = begin; i < end; i++) {
        size_t r = m->rows ? m->rows[i] : i;
        const float *source[ATTN_SOURCES_MAX];
        unsigned n = 0;
        for (uint32_t d = 0; d < k->depth; d++)
            source[n++] = s->snapshots + ((size_t)d * k->flow.rows + r) * width;
        if (!k->fresh)
            source[n++] = s->sum + r * width;
        const float *h = s->sum + r * width;
        if (k->depth) { /* in layer 0: the sum itself */
            good &= attn_mix(&k->kern, s->mix + r * width, source, n, m->norm,
                             m->proj, width, k->c.rms_eps);
            h = s->mix + r * width;
        }
        if (m->tap >= 0)
            memcpy(k3_tap_row(k, (uint32_t)r, m->tap), h, width * sizeof *h);
        good &= rms_norm(&k->kern, s->x + i * width, h, m->gain, width,
                         k->c.rms_eps);
        pack_rows(s->x_packed + i * pack_cols(width), s->x + i * width, 1,
                  width, width);
    }
    if (!good)
        atomic_store_explicit(&m->bad, true, memory_order_relaxed);
}

/* The step reads three vectors: those of the scores, and the norm's gain. */
static int mix(struct k3 *k, const struct step *s)
{
    const struct layer_vectors *v =
        s->layer < 0 ? &k->model_vectors : &k->vectors;
    bool some = s->flags & STEP_LOGIT_ROWS;
    struct mixing m = { .k = k, .norm = v->at[s->vector[0]],
                        .proj = v->at[s->vector[1]],
                        .gain = v->at[s->vector[2]], .tap = -1 };
    if (some)
        m.tap = k3_tap_of(k, (int32_t)k->c.layers - 1, true);
    else if (s->vector[2] == T_INPUT_NORM)
        m.tap = k3_tap_of(k, s->layer - 1, true);
    if (!some || m.tap >= 0) /* a tap is of all rows */
        team_for(k->team, k->flow.rows, 1, mix_rows, &m);
    m.tap = -1;
    m.rows = k->logit_row;
    if (some)
        team_for(k->team, k->logit_rows, 1, mix_rows, &m);
    return m.bad ? k3_tensor_failed(k, s->layer,
                                    (enum tensor_role)s->vector[2])
                 : 0;
}

static void add(struct k3 *k)
{
    float *sum = k->s.sum;
    const float *out = k->s.out;
    size_t n = (size_t)k->flow.rows * k->c.hidden;
    if (k->fresh)
        memcpy(sum, out, n * sizeof *sum);
    else
        for (size_t i = 0; i < n; i++)
            sum[i] += out[i];
    k->fresh = false;
}

static void snapshot(struct k3 *k)
{
    struct scratch *s = &k->s;
    size_t n = (size_t)k->flow.rows * k->c.hidden;
    memcpy(s->snapshots + k->depth * n, s->sum, n * sizeof *s->sum);
    k->depth++;
    k->fresh = true;
}

static int embedded(void *arg, uint32_t row, const uint8_t *bytes)
{
    struct k3 *k = arg;
    if (!finite_vector(bytes, 2ull * k->c.hidden, false))
        return k3_tensor_failed(k, TENSOR_MODEL_LEVEL, T_EMBED);
    bf16_widen(&k->kern, k->s.sum + (size_t)row * k->c.hidden, bytes,
               k->c.hidden);
    return 0;
}

/* ---- the steps ---- */

static int do_piece(void *arg, const struct step *s,
                    const struct tile_piece *piece, const uint8_t *frame)
{
    int err = piece->block ? coded_check(arg, piece, frame) : 0;
    if (err)
        return err;
    switch (s->op) {
    case STEP_VECTORS:
        return copy_vector(arg, s, piece, frame);
    case STEP_ROUTE:
        return k3_route(arg, piece, frame);
    case STEP_ATTEND:
        return k3_attend(arg, piece, frame);
    default:
        return k3_product(arg, s, piece, frame);
    }
}

static int do_step(void *arg, const struct step *s)
{
    struct k3 *k = arg;
    struct scratch *b = &k->s;
    switch (s->op) {
    case STEP_MIX:
        return mix(k, s);
    case STEP_SNAPSHOT:
        snapshot(k);
        return 0;
    case STEP_PACK:
        k3_pack(k, b->buffer[s->out], b->buffer[s->in], k->flow.rows,
                s->width);
        return 0;
    case STEP_RECUR:
        k3_recur(k, (uint32_t)s->layer);
        return 0;
    case STEP_NORM_QUERY:
        return k3_norm_query(k, (uint32_t)s->layer);
    case STEP_STORE:
        return k3_store(k, (uint32_t)s->layer);
    case STEP_GATE_ATTENTION:
        k3_gate_attention(k);
        return 0;
    case STEP_ADD:
        add(k);
        if (s->flags & STEP_ENDS_LAYER)
            k3_tap_sum(k, s->layer);
        return 0;
    case STEP_ACTIVATE:
        if (k->o.owned)
            k3_situ_own(k, b->mlp_gate, b->mlp_up, k->flow.rows, s->width,
                        s->own);
        else
            k3_situ(k, b->activated, b->mlp_gate, b->mlp_up, k->flow.rows,
                    s->width);
        return 0;
    case STEP_CHOOSE:
        k3_choose(k, (uint32_t)s->layer);
        return 0;
    case STEP_PREFETCH:
        return 0; /* the flow's */
    case STEP_REDUCE:
        k3_reduce(k);
        return 0;
    case STEP_NORM_EXPERTS:
        return k3_norm_experts(k, (uint32_t)s->layer);
    case STEP_GATHER:
        return k3_gather(k, s);
    case STEP_ADD_SHARED:
        k3_add_shared(k);
        return 0;
    }
    assert(0 && "a step of the table");
    return 0;
}

const struct flow_ops k3_ops = {
    .piece = do_piece, .step = do_step, .embedded = embedded,
    .requested = k3_requested, .experts = k3_experts,
    .experts_down = k3_experts_down, .failed = k3_read_failed,
    .hold = flow_hold, .next = flow_next,
};

/* ---- a pass ---- */

static uint32_t positions_of(struct k3 *k, uint32_t sequence)
{
    return state_header(k->state + sequence * k->shape.bytes)->positions;
}

/* The rules of k3_pass for its rows. */
static void check_runs(struct k3 *k)
{
    const struct flow *f = &k->flow;
    for (uint32_t i = 0; i < f->runs; i++) {
        const struct flow_run *run = &f->run[i];
        uint32_t position = positions_of(k, run->sequence);
        for (uint32_t j = 0; j < i; j++) /* one run a sequence */
            assert(f->run[j].sequence != run->sequence);
        /* Rows follow what the state holds, and drafts are the last of them. */
        for (uint32_t r = 0; r < run->count; r++) {
            const struct k3_row *row = &f->row[run->first + r];
            assert(row->position == position + r);
            assert(row->draft == (r >= run->kept));
        }
    }
    assert(f->drafts <= k->o.drafts);
    assert(!k->o.logits || k->logit_rows <= k->o.logits + k->o.drafts);
}

static int check_row(struct k3 *k, const struct k3_row *row)
{
    assert(row->sequence < k->o.sequences);
    if (row->id >= k->c.vocab)
        return error_set(k->error, -EINVAL,
                         "token id %" PRIu32 " is out of range"
                         ", the vocabulary has %" PRIu32,
                         row->id, k->c.vocab);
    if (row->position >= k->shape.context)
        return error_set(k->error, -EINVAL,
                         "position %" PRIu32 " is past the "
                         "context of %" PRIu32,
                         row->position, k->shape.context);
    return 0;
}

struct walk {
    struct flow *flow;
    int err;
};

static void walk(void *arg)
{
    struct walk *w = arg;
    w->err = flow_walk(w->flow);
}

int k3_pass(struct k3 *k, const struct k3_row *rows, uint32_t n,
            struct error *error)
{
    struct flow *f = &k->flow;
    struct walk w = { .flow = f };
    enum k3_phase phase = K3_PREFILL;
    assert(n >= 1 && n <= f->plan.rows);
    k->error = error;
    k->depth = 0;
    k->fresh = false;
    k->logit_rows = 0;
    for (uint32_t r = 0; r < n; r++) {
        int err = check_row(k, &rows[r]);
        if (err)
            return err;
        if (rows[r].logits)
            k->logit_row[k->logit_rows++] = r;
        if (rows[r].phase == K3_DECODE)
            phase = K3_DECODE;
    }
    if (f->readahead_end < (f->passes + 1) * f->tiles->count)
        k3_set_readahead(k, 1);
    int err = k3_say(k, SAID_PASS, n, (uintptr_t)rows, error);
    if (err)
        return err;
    if (k->o.began)
        k->o.began(k->o.routed_arg, rows, n);
    flow_begin(f, rows, n, phase);
    check_runs(k);
    team_run(k->team, walk, &w);
    flow_end(f);
    err = w.err ? w.err : weights_changed(&k->weights, error);
    err = k3_meet(k, err, err ? 0 : k3_hash(k), "result of a pass", error);
    if (err)
        return err;
    for (uint32_t i = 0; i < f->runs; i++)
        state_header(k->state + f->run[i].sequence * k->shape.bytes)
            ->positions += f->run[i].kept;
    if (k->o.passed)
        k->o.passed(k->o.routed_arg, f->watch.times);
    return 0;
}

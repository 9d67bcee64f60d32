/* simulate.c - the walk: the engine's graph, with time instead of numbers. */
#include <assert.h>
#include <errno.h>

#include "model/k3_guess.h"
#include "model/k3_limits.h"
#include "model/simulate_internal.h"

/* ---- compute ---- */

static void spend(struct sim *s, double ns)
{
    s->owed_ns += ns;
    int64_t whole = (int64_t)s->owed_ns;
    s->owed_ns -= (double)whole;
    s->compute_ns += whole;
    stream_spend(s->k.stream, whole);
}

static void spend_kernel(struct sim *s, uint32_t kernel, double share)
{
    spend(s, share * simulate_ns(s->cost, COST_KERNEL, kernel, s->pass->rows));
}

static int broken(struct sim *s)
{
    struct stream_failure f = stream_failure(s->k.stream);
    return why_set(s->why, f.error ? f.error : -EIO,
                   "%s: the simulation cannot go on (%s)", s->o->trace,
                   f.error == -EDEADLK ? "compute waits and nothing is read"
                                       : "a read failed");
}

/* ---- the trunk ---- */

static const struct tile_piece *piece_of(const struct sim *s, uint32_t tile)
{
    return &s->k.tiles->piece[s->k.tiles->first_piece[tile]];
}

static bool next_is(const struct sim *s, int32_t layer,
                    enum tensor_role role)
{
    const struct tile_piece *p =
        s->tile < s->k.tiles->count ? piece_of(s, s->tile) : NULL;
    return p && p->layer == layer && p->role == (uint32_t)role;
}

/* Hold the next tile, work on it, give it back. */
static int work_tile(struct sim *s, uint32_t kernel, double share)
{
    const uint8_t *frame;
    uint32_t tile = s->tile++;
    if (stream_hold(s->k.stream, tile, &frame))
        return broken(s);
    if (!s->k.resident[tile])
        s->k.trunk_bytes += s->k.tiles->tile[tile].payload_bytes;
    spend_kernel(s, kernel, share);
    stream_release(s->k.stream, tile);
    return 0;
}

static uint32_t kernel_of(uint32_t role)
{
    return role == T_ROUTER ? K3_ROUTE : role == T_KVB ? K3_ATTEND : role;
}

static int work_piece(struct sim *s)
{
    const struct tile_piece *p = piece_of(s, s->tile);
    double all = (double)s->cost->role_bytes[p->role];
    return work_tile(s, kernel_of(p->role),
                     (double)p->rows * (double)p->row_bytes / all);
}

/* All tiles of one matrix. */
static int work_matrix(struct sim *s, int32_t layer, enum tensor_role role)
{
    int err = 0;
    while (!err && next_is(s, layer, role))
        err = work_piece(s);
    return err;
}

static double mix_share(const struct sim *s)
{
    return 1.0 / (2.0 * s->k.c.layers + 1);
}

static int work_smalls(struct sim *s, int32_t layer)
{
    bool first = true;
    int err = 0;
    while (!err && s->tile < s->k.tiles->count &&
           piece_of(s, s->tile)->layer == layer &&
           tiles_small((enum tensor_role)piece_of(s, s->tile)->role)) {
        err = work_tile(s, K3_MIX, first ? mix_share(s) : 0);
        first = false;
    }
    return err;
}

static int work_attention(struct sim *s, int32_t layer)
{
    static const enum tensor_role before[] = { T_Q, T_K, T_V, T_QA, T_QB,
                                               T_KVA, T_KVB, T_G };
    int err = work_smalls(s, layer);
    for (size_t i = 0; i < sizeof before / sizeof *before && !err; i++)
        err = work_matrix(s, layer, before[i]);
    if (!err && !config_is_mla(&s->k.c, (uint32_t)layer))
        spend_kernel(s, K3_RECURRENCE, 1.0 / s->cost->kda_layers);
    return err ? err : work_matrix(s, layer, T_O);
}

/* ---- experts, as in k3_moe.c ---- */

static const struct cache_use *choose(struct sim *s, uint32_t moe,
                                      uint32_t *n)
{
    struct k3 *k = &s->k;
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        const uint16_t *from = passes_ids(s->passes, r, moe);
        uint32_t *ids = k->s.ids + (size_t)r * k->c.top_k;
        for (uint32_t q = 0; q < k->c.top_k; q++)
            ids[q] = from[q];
        cache_row(k->cache, ids, k->c.top_k,
                  passes_facts(s->passes)->info.flags & TRACE_RANKED,
                  s->pass->row[r].age);
    }
    return cache_uses(k->cache, n);
}

struct part {
    uint32_t item, rows;
    bool     last; /* of its expert */
};

struct batch {
    struct part part[K3_EXPERT_ROWS];
    uint32_t parts, rows;
};

struct rest {
    uint32_t item, rows; /* rows that did not fit in the last batch */
};

static int fill_batch(struct sim *s, struct batch *b,
                      const struct cache_use *uses, struct rest *rest)
{
    const uint8_t *frame;
    b->parts = b->rows = 0;
    while (b->rows < K3_EXPERT_ROWS) {
        if (!rest->rows) {
            int got = fetch_next(s->k.fetch, &rest->item, &frame);
            if (got == 0 || (got == -ENOENT && b->rows))
                return 0;
            if (got < 0)
                return got;
            rest->rows = uses[rest->item].uses;
        }
        uint32_t room = K3_EXPERT_ROWS - b->rows;
        uint32_t rows = rest->rows < room ? rest->rows : room;
        rest->rows -= rows;
        b->part[b->parts++] = (struct part){ rest->item, rows, !rest->rows };
        b->rows += rows;
    }
    return 0;
}

static void compute(struct sim *s, const struct batch *b)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < b->parts; i++)
        done += b->part[i].last;
    spend(s, done * simulate_ns(s->cost, COST_ITEM, 0, s->pass->rows));
    s->k.expert_items += done;
    for (uint32_t i = 0; i < b->parts; i++)
        if (b->part[i].last)
            fetch_done(s->k.fetch, b->part[i].item);
}

static bool next_is_shared(const struct sim *s, int32_t layer)
{
    return next_is(s, layer, T_SHARED_GATE) || next_is(s, layer, T_SHARED_UP) ||
           next_is(s, layer, T_SHARED_DOWN);
}

static int work_experts(struct sim *s, int32_t layer,
                        const struct cache_use *uses)
{
    struct batch b;
    struct rest rest = { 0 };
    struct stream *stream = s->k.stream;
    for (;;) {
        uint32_t seen = stream_events(stream);
        int err = fill_batch(s, &b, uses, &rest);
        if (err == -ENOENT)
            break;
        if (err)
            return broken(s);
        if (b.rows) {
            compute(s, &b);
        } else if (next_is_shared(s, layer) && stream_ready(stream, s->tile)) {
            err = work_piece(s);
        } else {
            int64_t begin = stream_now_ns(stream);
            stream_await(stream, seen);
            s->k.wait_expert_ns += stream_now_ns(stream) - begin;
        }
        if (err)
            return err;
    }
    fetch_end(s->k.fetch);
    int err = 0;
    while (!err && next_is_shared(s, layer))
        err = work_piece(s);
    return err;
}

static int work_moe(struct sim *s, int32_t layer)
{
    struct k3 *k = &s->k;
    uint32_t moe = (uint32_t)layer - k->c.first_dense, n;
    double each = 1.0 / config_moe_layers(&k->c);
    int err = work_matrix(s, layer, T_ROUTER);
    if (err)
        return err;
    const struct cache_use *uses = choose(s, moe, &n);
    k3_guess_judge(&s->view, (uint32_t)layer);
    fetch_begin(k->fetch, s->pass->number, moe, uses, n);
    err = work_matrix(s, layer, T_LATENT_DOWN);
    if (err)
        return err;
    k3_guess_ahead(&s->view, (uint32_t)layer);
    spend_kernel(s, K3_GUESS, each);
    err = work_experts(s, layer, uses);
    if (err)
        return err;
    spend_kernel(s, K3_REDUCE, each);
    return work_matrix(s, layer, T_LATENT_UP);
}

static int work_dense(struct sim *s, int32_t layer)
{
    int err = work_matrix(s, layer, T_GATE_PROJ);
    if (!err)
        err = work_matrix(s, layer, T_UP_PROJ);
    return err ? err : work_matrix(s, layer, T_DOWN_PROJ);
}

/* ---- a pass ---- */

static uint32_t embed_first(const struct sim *s, uint32_t row)
{
    uint32_t token = s->pass->row[row].token;
    for (uint32_t r = 0; r < row && token != TRACE_TOKEN_UNKNOWN; r++)
        if (s->pass->row[r].token == token)
            return r;
    return row;
}

static int wait_load(struct sim *s, const struct load *load)
{
    struct stream *stream = s->k.stream;
    int64_t begin = stream_now_ns(stream);
    while (atomic_load(&load->state) != LOAD_READY) {
        if (stream_failure(stream).error)
            return broken(s);
        stream_await(stream, stream_events(stream));
    }
    s->k.wait_expert_ns += stream_now_ns(stream) - begin;
    return 0;
}

static int work_embedding(struct sim *s)
{
    struct k3 *k = &s->k;
    struct extent table;
    uint64_t bytes = 2ull * k->c.hidden;
    layout_tensor(s->layout, TENSOR_MODEL_LEVEL, T_EMBED, &table);
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        struct load *load = &k->embed_load[r];
        uint32_t id = s->pass->row[r].token;
        if (embed_first(s, r) != r)
            continue;
        id = id < k->c.vocab ? id : 0;
        load->segment[0] = (struct segment){
            .file = table.file, .length_bytes = bytes,
            .offset_bytes = table.offset_bytes + id * bytes };
        block_place(&load->segment[0], 0);
        load->segment_count = 1;
        load->object = UINT32_MAX;
        load->frame = s->space;
        atomic_store(&load->urgency, READ_DEMAND);
        stream_post(k->stream, load);
        k->embed_bytes += bytes;
    }
    int err = 0;
    for (uint32_t r = 0; r < s->pass->rows && !err; r++)
        err = wait_load(s, &k->embed_load[embed_first(s, r)]);
    return err;
}

static int work_pass(struct sim *s)
{
    struct k3 *k = &s->k;
    uint32_t layers = k->c.layers;
    double other = simulate_ns(s->cost, COST_OTHER, 0, s->pass->rows) /
                   (layers + 1);
    s->tile = 0;
    int err = work_embedding(s);
    for (uint32_t l = 0; l < layers && !err; l++) {
        err = work_attention(s, (int32_t)l);
        spend_kernel(s, K3_MIX, mix_share(s));
        spend(s, other);
        if (!err)
            err = config_is_dense(&k->c, l) ? work_dense(s, (int32_t)l)
                                            : work_moe(s, (int32_t)l);
    }
    if (!err)
        err = work_smalls(s, TENSOR_MODEL_LEVEL);
    spend(s, other);
    if (!err)
        err = work_matrix(s, TENSOR_MODEL_LEVEL, T_HEAD);
    assert(err || s->tile == k->tiles->count);
    return err;
}

static void find_runs(struct sim *s)
{
    struct k3 *k = &s->k;
    k->runs = 0;
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        uint32_t slot = s->pass->row[r].slot;
        if (s->pass->row[r].starts)
            k3_guess_forget(k, slot);
        struct run *last = k->runs ? &k->run[k->runs - 1] : NULL;
        if (!last || last->sequence != slot) {
            last = &k->run[k->runs++];
            *last = (struct run){ .sequence = slot, .first = r };
        }
        last->count++;
    }
}

/* Ids that a pass gave: a decode row gives one, and so did the end of a prompt
 * in an earlier decode pass, as the sequence's going on tells. */
static uint64_t tokens_of(struct sim *s)
{
    uint64_t tokens = s->pass->tokens;
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        const struct pass_row *row = &s->pass->row[r];
        bool prefill = row->phase == TRACE_PREFILL;
        tokens += !prefill && s->ended[row->slot] && !row->starts;
        s->ended[row->slot] = prefill && s->pass->decode;
    }
    return tokens;
}

int simulate_passes(struct sim *s, struct simulate_result *out)
{
    int got;
    uint64_t end = (uint64_t)passes_facts(s->passes)->passes *
                   s->k.tiles->count;
    while ((got = passes_next(s->passes, &s->pass, s->why)) > 0) {
        s->k.passes = s->pass->number;
        s->view = (struct pass){ .k = &s->k, .rows = s->pass->rows };
        find_runs(s);
        stream_allow(s->k.stream, end);
        enum k3_phase phase = s->pass->decode ? K3_DECODE : K3_PREFILL;
        int64_t computed = s->compute_ns;
        struct k3_mark before = k3_mark(&s->k);
        int err = work_pass(s);
        if (err)
            return err;
        struct k3_mark after = k3_mark(&s->k);
        k3_account(&s->k, phase, s->pass->rows, &before, &after);
        out->compute_s[phase] += (double)(s->compute_ns - computed) / 1e9;
        out->tokens += tokens_of(s);
    }
    return got;
}

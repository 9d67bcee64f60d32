/* k3_pass.c - the graph of k3-spec 3, layer after layer, for all rows. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/bf16.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "model/k3_guess.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"

/* ---- the small tensors of a layer ---- */

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

/* b, f_a and f_b of a KDA layer, from the tile they share with its vectors. */
static int small_products(struct pass *p, uint32_t tile, const uint8_t *frame,
                          int layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    static const enum tensor_role order[] = { T_B, T_FA, T_FB };
    for (int i = 0; i < 3; i++) {
        const struct tile_piece *piece =
            tiles_piece(k->tiles, tile, layer, order[i]);
        float *y = i == 0 ? s->beta : i == 1 ? s->fa : s->decay;
        if (!piece)
            continue;
        int err = k3_product_piece(p, piece, frame, i == 2 ? s->fap : s->xp,
                                   p->rows, y, piece->rows);
        if (err)
            return err;
        if (i == 1)
            k3_pack(k, s->fap, s->fa, p->rows, k->c.kda_dim);
    }
    return 0;
}

static int copy_smalls(struct pass *p, struct smalls *small, uint32_t tile,
                       const uint8_t *frame, uint64_t *used)
{
    const struct tiles *t = p->k->tiles;
    for (uint32_t i = t->first_piece[tile]; i < t->first_piece[tile + 1];
         i++) {
        const struct tile_piece *piece = &t->piece[i];
        if (tiles_in_place(piece->role))
            continue;
        uint64_t bytes = piece->rows * piece->row_bytes;
        uint8_t *to = small->buffer + *used;
        memcpy(to, frame + piece->at, bytes);
        small->at[piece->role] = to;
        small->bytes[piece->role] = bytes;
        *used += (bytes + 63) / 64 * 64;
        if (!finite_vector(to, bytes, tensor_dtype(piece->role) == DTYPE_F32))
            return k3_tensor_failed(p, piece->layer, piece->role);
    }
    return 0;
}

/* First and one past the last small tile of a layer. */
static void small_tiles(const struct tiles *t, int layer, uint32_t *first,
                        uint32_t *end)
{
    *first = UINT32_MAX;
    *end = 0;
    for (int role = 0; role < T_COUNT; role++) {
        uint32_t count, at = tiles_of(t, layer, (enum tensor_role)role, &count);
        if (!count || !tiles_small((enum tensor_role)role))
            continue;
        *first = at < *first ? at : *first;
        *end = at + 1 > *end ? at + 1 : *end;
    }
}

/* ---- rows ---- */

struct mixing {
    struct pass *p;
    const struct smalls *small;
    enum tensor_role norm, proj, gain;
    const uint32_t *rows; /* NULL: row i is i */
    bool mixed; /* false: layer 0, the sum itself */
    _Atomic bool bad;
};

/* x = rms(mix of the depth), and packed, for rows [begin, end). */
static void mix_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct mixing *m = arg;
    struct k3 *k = m->p->k;
    struct scratch *s = &k->s;
    size_t width = k->c.hidden;
    bool good = true;
    for (size_t i = begin; i < end; i++) {
        size_t r = m->rows ? m->rows[i] : i;
        const float *source[ATTN_SOURCES_MAX];
        unsigned n = 0;
        for (uint32_t d = 0; d < m->p->depth; d++)
            source[n++] = s->snapshots + ((size_t)d * m->p->rows + r) * width;
        if (!m->p->fresh)
            source[n++] = s->sum + r * width;
        const float *h = s->sum + r * width;
        if (m->mixed) {
            good &= attn_mix(s->mix + r * width, source, n,
                             m->small->at[m->norm], m->small->at[m->proj],
                             width, k->c.rms_eps);
            h = s->mix + r * width;
        }
        good &= rms_norm(s->x + i * width, h, m->small->at[m->gain], width,
                         k->c.rms_eps);
        pack_rows(s->xp + i * pack_cols(width), s->x + i * width, 1, width,
                  width);
    }
    if (!good)
        atomic_store_explicit(&m->bad, true, memory_order_relaxed);
}

static int mix(struct pass *p, const struct smalls *small, int layer,
               enum tensor_role norm, enum tensor_role proj,
               enum tensor_role gain, const uint32_t *rows, uint32_t count)
{
    struct mixing m = { .p = p, .small = small, .norm = norm, .proj = proj,
                        .gain = gain, .rows = rows,
                        .mixed = p->depth > 0 };
    int64_t begin = stream_clock_ns();
    team_for(p->k->team, count, 1, mix_rows, &m);
    k3_note(p->k, K3_MIX, (uint32_t)layer, begin);
    return m.bad ? k3_tensor_failed(p, layer, gain) : 0;
}

void k3_add(struct pass *p, const float *out)
{
    float *sum = p->k->s.sum;
    size_t n = (size_t)p->rows * p->k->c.hidden;
    if (p->fresh)
        memcpy(sum, out, n * sizeof *sum);
    else
        for (size_t i = 0; i < n; i++)
            sum[i] += out[i];
    p->fresh = false;
}

/* Before the attention of a boundary layer: the sum becomes a snapshot. */
static void snapshot(struct pass *p)
{
    struct scratch *s = &p->k->s;
    size_t n = (size_t)p->rows * p->k->c.hidden;
    memcpy(s->snapshots + p->depth * n, s->sum, n * sizeof *s->sum);
    p->depth++;
    p->fresh = true;
}

/* One past the last tile of a layer; layers past the last are the head and the
 * next pass's first. */
static uint64_t layer_end(const struct k3 *k, uint32_t layer)
{
    uint32_t first, end;
    if (layer + 1 < k->c.layers) {
        small_tiles(k->tiles, (int)layer + 1, &first, &end);
        return first;
    }
    if (layer + 1 == k->c.layers) {
        small_tiles(k->tiles, TENSOR_MODEL_LEVEL, &first, &end);
        return first;
    }
    return layer == k->c.layers
               ? k->tiles->count
               : k->tiles->count + layer_end(k, layer - k->c.layers - 1);
}

/* What an engine does that reads whole layers, one ahead: this layer must be
 * there entirely, and only then may the next be read. */
static int look_one_layer(struct pass *p, uint32_t layer, uint32_t tile)
{
    struct k3 *k = p->k;
    uint64_t base = k->passes * k->tiles->count;
    uint64_t end = base + layer_end(k, layer + 1);
    if (k->o.look_ahead != K3_LOOK_LAYER)
        return 0;
    for (uint32_t t = tile; t < layer_end(k, layer); t++) {
        stream_allow(k->stream, base + layer_end(k, layer));
        int err = stream_wait(k->stream, t);
        if (err)
            return k3_read_failed(p, err, "a layer");
    }
    stream_allow(k->stream, end < k->end ? end : k->end);
    return 0;
}

static bool has_vectors(const struct tiles *t, uint32_t tile)
{
    for (uint32_t i = t->first_piece[tile]; i < t->first_piece[tile + 1]; i++)
        if (!tiles_in_place(t->piece[i].role))
            return true;
    return false;
}

static int attention(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    uint32_t first, end;
    uint64_t used = 0;
    bool mixed = false;
    small_tiles(k->tiles, (int)layer, &first, &end);
    int ahead = look_one_layer(p, layer, first);
    if (ahead)
        return ahead;
    memset(k->small.at, 0, sizeof k->small.at);
    for (uint32_t t = first; t < end; t++) {
        const uint8_t *frame;
        int err = k3_hold(p, t, &frame);
        if (err)
            return err;
        err = copy_smalls(p, &k->small, t, frame, &used);
        bool last = t + 1 == end || !has_vectors(k->tiles, t + 1);
        if (!err && !mixed && last) {
            err = mix(p, &k->small, (int)layer, T_ATTN_RES_NORM,
                      T_ATTN_RES_PROJ, T_INPUT_NORM, NULL, p->rows);
            mixed = true;
        }
        if (!err && mixed && !config_is_mla(&k->c, layer))
            err = small_products(p, t, frame, (int)layer);
        k3_release(p, t);
        if (err)
            return err;
    }
    k3_guess_layer(k, layer);
    if (layer % k->c.attn_res_block == 0)
        snapshot(p);
    int err = config_is_mla(&k->c, layer) ? k3_mla(p, layer)
                                          : k3_kda(p, layer);
    if (!err)
        k3_add(p, k->s.out);
    return err;
}

static int feed_forward(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    int err = mix(p, &k->small, (int)layer, T_MLP_RES_NORM, T_MLP_RES_PROJ,
                  T_POST_NORM, NULL, p->rows);
    if (!err)
        err = config_is_dense(&k->c, layer) ? k3_dense(p, layer)
                                            : k3_moe(p, layer);
    if (!err)
        k3_add(p, k->s.out);
    return err;
}

/* ---- embedding and head ---- */

static struct load *embed_of(struct pass *p, uint32_t row)
{
    for (uint32_t r = 0; r < row; r++)
        if (p->row[r].id == p->row[row].id)
            return &p->k->embed_load[r];
    return &p->k->embed_load[row];
}

static int wait_load(struct pass *p, struct load *load)
{
    struct k3 *k = p->k;
    int64_t begin = stream_clock_ns();
    for (;;) {
        uint32_t seen = stream_events(k->stream);
        uint32_t state = atomic_load(&load->state);
        if (state == LOAD_READY)
            break;
        int err = state == LOAD_FAILED ? load->error
                                       : stream_failure(k->stream).error;
        if (!err && atomic_load(&k->cancel))
            err = -ECANCELED;
        if (err)
            return k3_read_failed(p, err, "an embedding row");
        stream_await(k->stream, seen);
    }
    k3_waited_expert(k, UINT32_MAX, begin);
    return 0;
}

/* sum = the embedding rows; each distinct id is read once. */
static int embed(struct pass *p)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    struct extent table;
    uint64_t row_bytes = 2ull * k->c.hidden;
    int err = ckpt_tensor(k->ckpt, TENSOR_MODEL_LEVEL, T_EMBED, &table);
    assert(!err);
    for (uint32_t r = 0; r < p->rows; r++) {
        struct load *load = &k->embed_load[r];
        if (embed_of(p, r) != load)
            continue;
        load->segment[0] = (struct segment){
            .file = table.file, .length_bytes = row_bytes,
            .offset_bytes = table.offset_bytes + p->row[r].id * row_bytes };
        block_place(&load->segment[0], 0);
        load->segment_count = 1;
        load->object = UINT32_MAX;
        load->frame = s->embed + r * s->embed_frame_bytes;
        atomic_store(&load->urgency, READ_DEMAND);
        stream_post(k->stream, load);
        k->embed_bytes += row_bytes;
    }
    for (uint32_t r = 0; r < p->rows; r++) {
        struct load *load = embed_of(p, r);
        err = wait_load(p, load);
        if (err)
            return err;
        const uint8_t *at = load->frame + load->segment[0].at;
        if (!finite_vector(at, row_bytes, false))
            return k3_tensor_failed(p, TENSOR_MODEL_LEVEL, T_EMBED);
        bf16_widen(s->sum + (size_t)r * k->c.hidden, at, k->c.hidden);
    }
    p->fresh = false;
    return 0;
}

static int head(struct pass *p)
{
    struct k3 *k = p->k;
    uint32_t wanted[K3_ROWS_MAX], n = 0;
    uint32_t first, end;
    uint64_t used = 0;
    for (uint32_t r = 0; r < p->rows; r++)
        if (p->row[r].logits)
            wanted[n++] = r;
    small_tiles(k->tiles, TENSOR_MODEL_LEVEL, &first, &end);
    int ahead = look_one_layer(p, k->c.layers, first);
    if (ahead)
        return ahead;
    for (uint32_t t = first; t < end; t++) {
        const uint8_t *frame;
        int err = k3_hold(p, t, &frame);
        if (!err)
            err = copy_smalls(p, &k->model_small, t, frame, &used);
        if (!err)
            k3_release(p, t);
        if (err)
            return err;
    }
    int err = mix(p, &k->model_small, TENSOR_MODEL_LEVEL, T_OUT_RES_NORM,
                  T_OUT_RES_PROJ, T_NORM, wanted, n);
    if (err)
        return err;
    return k3_product(p, TENSOR_MODEL_LEVEL, T_HEAD, k->s.xp, n, k->s.logits,
                      k->c.vocab);
}

/* ---- a pass ---- */

static void find_runs(struct k3 *k, const struct k3_row *row, uint32_t n)
{
    k->runs = 0;
    k->drafts_kept = 0;
    for (uint32_t r = 0; r < n; r++) {
        struct run *last = k->runs ? &k->run[k->runs - 1] : NULL;
        if (!last || last->sequence != row[r].sequence) {
            last = &k->run[k->runs++];
            *last = (struct run){ .sequence = row[r].sequence, .first = r,
                                  .draft = k->drafts_kept };
        }
        last->count++;
        last->kept += !row[r].draft;
        k->drafts_kept += row[r].draft;
    }
}

static void whole_pass(void *arg)
{
    struct pass *p = arg;
    struct k3 *k = p->k;
    p->err = embed(p);
    k3_watch_mark(k, k->c.layers, false);
    for (uint32_t l = 0; l < k->c.layers && !p->err; l++) {
        if (k->o.progress)
            k->o.progress(k->o.progress_arg, l, k->c.layers);
        p->err = attention(p, l);
        if (config_is_dense(&k->c, l))
            k3_watch_mark(k, l, false);
        if (!p->err)
            p->err = feed_forward(p, l);
        k3_watch_mark(k, l, true);
    }
    if (!p->err)
        p->err = head(p);
    k3_watch_mark(k, k->c.layers, true);
}

int k3_pass(struct k3 *k, const struct k3_row *rows, uint32_t n,
            struct why *why)
{
    assert(n >= 1 && n <= k->plan.rows && !k->finished);
    struct pass p = { .k = k, .row = rows, .rows = n, .why = why };
    enum k3_phase phase = K3_PREFILL;
    for (uint32_t r = 0; r < n; r++) {
        assert(rows[r].sequence < k->o.sequences);
        if (rows[r].id >= k->c.vocab)
            return why_set(why, -EINVAL, "token id %" PRIu32 " is out of range"
                           ", the vocabulary has %" PRIu32, rows[r].id,
                           k->c.vocab);
        if (rows[r].position >= k->shape.context)
            return why_set(why, -EINVAL, "position %" PRIu32 " is past the "
                           "context of %" PRIu32, rows[r].position,
                           k->shape.context);
        p.logit_rows += rows[r].logits;
        if (rows[r].phase == K3_DECODE)
            phase = K3_DECODE;
    }
    assert(!k->o.logits || p.logit_rows <= k->o.logits + k->o.drafts);
    find_runs(k, rows, n);
    assert(k->drafts_kept <= k->o.drafts);
    if (k->o.began)
        k->o.began(k->o.routed_arg, rows, n);
    struct k3_mark before = k3_mark(k);
    k3_watch_pass(k, phase);
    team_run(k->team, whole_pass, &p);
    struct k3_mark after = k3_mark(k);
    k3_account(k, phase, n, &before, &after);
    k->passes++;
    if (!p.err)
        for (uint32_t i = 0; i < k->runs; i++)
            state_header(k->state + k->run[i].sequence * k->shape.bytes)
                ->positions += k->run[i].kept;
    struct journal_event e = { .begin_ns = before.ns, .end_ns = after.ns,
                               .object = (uint32_t)k->passes, .bytes = n,
                               .kind = JOURNAL_PASS,
                               .value = (uint8_t)phase };
    journal_add(k->o.journal, JOURNAL_COMPUTE, &e);
    if (!p.err && k->o.passed)
        k->o.passed(k->o.routed_arg, k->watch.times);
    return p.err;
}

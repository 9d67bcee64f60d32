#include "model/dspark/dspark.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "model/dspark/dspark_internal.h"
#include "model/k3/k3.h"
#include "model/k3/tiles.h"

enum {
    TILE_BYTES_MAX = 8 << 20,
    TILE_BYTES_MIN = 64 << 10,
    TILES_WANTED = 256, /* of a drafter whose weights are few */
};

/* ---- weights in tiles ---- */

static bool always(enum dspark_role role)
{
    return dspark_is_vector(role) || role == D_W1 || role == D_W2 ||
           role == D_CONFIDENCE;
}

static int cut_tensor(struct dspark *d, enum dspark_role role, uint32_t index,
                      uint64_t wanted_bytes)
{
    const struct dspark_tensor *at = &d->weights.at[index][role];
    uint32_t rows, cols, unit = 1;
    dspark_shape(&d->c, role, &rows, &cols);
    if (role == D_KVB)
        unit = d->c.nope + d->c.v_dim;
    uint64_t tiles = always(role) ? 1 : at->length_bytes / wanted_bytes + 1;
    uint32_t each = (uint32_t)((rows / unit + tiles - 1) / tiles) * unit;
    for (uint32_t row = 0; row < rows; row += each) {
        uint32_t n = rows - row < each ? rows - row : each;
        struct weight_tile *more =
            realloc(d->tile, (d->tiles + 1) * sizeof *more);
        if (!more)
            return -ENOMEM;
        d->tile = more;
        struct weight_tile *t = &d->tile[d->tiles++];
        *t = (struct weight_tile){ .role = role, .index = index, .row = row,
                                   .rows = n, .always = always(role) };
        t->segment = (struct segment){
            .offset_bytes = at->offset_bytes + 2ull * row * cols,
            .length_bytes = 2ull * n * cols };
        t->frame_bytes = block_place(&t->segment, 0);
        if (!t->always && t->frame_bytes > d->frame_bytes)
            d->frame_bytes = t->frame_bytes;
    }
    return 0;
}

static int cut_tiles(struct dspark *d)
{
    uint64_t wanted = d->weights.file_bytes / TILES_WANTED;
    wanted = wanted < TILE_BYTES_MAX ? wanted : TILE_BYTES_MAX;
    wanted = wanted > TILE_BYTES_MIN ? wanted : TILE_BYTES_MIN;
    d->frame_bytes = block_pages(wanted + BLOCK_PAGE);
    for (uint32_t r = 0; r < DSPARK_ROLES; r++)
        for (uint32_t i = 0; i < dspark_count(&d->c, (enum dspark_role)r);
             i++) {
            bool there = dspark_has(&d->c, (enum dspark_role)r) &&
                         r != D_EMBED;
            int err = there ? cut_tensor(d, (enum dspark_role)r, i, wanted) : 0;
            if (err)
                return err;
        }
    for (uint32_t i = 0; i < d->tiles; i++) {
        d->guest.resident_bytes += d->tile[i].always ? 0
                                                     : d->tile[i].frame_bytes;
        d->facts.sweep_bytes += d->tile[i].always
                                    ? 0
                                    : d->tile[i].segment.length_bytes;
    }
    return 0;
}

const struct weight_tile *dspark_first(const struct dspark *d,
                                       enum dspark_role role, uint32_t index)
{
    uint32_t low = 0, high = d->tiles;
    while (low < high) { /* the first that is not before it */
        uint32_t middle = low + (high - low) / 2;
        const struct weight_tile *t = &d->tile[middle];
        if (t->role < role || (t->role == role && t->index < index))
            low = middle + 1;
        else
            high = middle;
    }
    assert(low < d->tiles && d->tile[low].role == role);
    return &d->tile[low];
}

const uint8_t *dspark_vector(const struct dspark *d, enum dspark_role role,
                             uint32_t index)
{
    const struct weight_tile *t = dspark_first(d, role, index);
    assert(t->always && t->home);
    return t->home + t->segment.at;
}

/* ---- open and close ---- */

static void size(struct dspark *d)
{
    uint32_t window = d->o.window ? d->o.window : DSPARK_WINDOW;
    d->rows = d->o.rows ? d->o.rows : DSPARK_BLOCK;
    d->batch = d->o.sequences < DSPARK_BATCH ? d->o.sequences : DSPARK_BATCH;
    d->room = (window < d->o.context ? window : d->o.context) + d->rows;
    d->slots = DSPARK_SLOTS;
    d->embed_frame_bytes = block_pages(2ull * d->c.hidden + BLOCK_PAGE);
    d->guest.path = d->path;
    d->guest.tap = d->c.tap;
    d->guest.taps = d->c.taps;
    d->guest.mixed = d->c.mixed;
    d->guest.loads = DSPARK_SLOTS + DSPARK_BATCH;
    d->guest.bytes = dspark_cut(d, NULL, false);
    d->guest.resident_bytes = dspark_cut(d, NULL, true) - d->guest.bytes;
}

int dspark_open(struct dspark **out, const char *dir, const struct config *k3,
                const struct dspark_options *o, struct error *error)
{
    assert(o->context && o->sequences && o->rows <= DSPARK_BLOCK);
    *out = NULL;
    struct dspark *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(error, -ENOMEM, "no memory for a drafter");
    d->o = *o;
    int err = dspark_config_load(&d->c, dir, k3, o->stream, error);
    if (!err) {
        snprintf(d->path, sizeof d->path, "%s/model.safetensors", dir);
        err = dspark_weights_open(&d->weights, d->path, &d->c, error);
    }
    if (!err) {
        d->context = calloc(o->sequences, sizeof *d->context);
        err = d->context ? cut_tiles(d) : -ENOMEM;
        if (err)
            error_set(error, err, "no memory for the tables of a drafter");
    }
    if (err) {
        dspark_close(d);
        return err;
    }
    rope_init(&d->rope, &d->c);
    size(d);
    *out = d;
    return 0;
}

void dspark_close(struct dspark *d)
{
    if (!d)
        return;
    free(d->sweep.tile);
    free(d->tile);
    free(d->context);
    free(d);
}

const struct k3_guest *dspark_guest(const struct dspark *d)
{
    return &d->guest;
}

const struct dspark_config *dspark_config(const struct dspark *d)
{
    return &d->c;
}

uint32_t dspark_rows(const struct dspark *d)
{
    return d->rows;
}

/* Frames that also tiles of K3's head fit into, in the same memory. */
static int fit_slots(struct dspark *d)
{
    const struct tiles *t = k3_tiles(d->k);
    uint64_t all = d->slots * d->frame_bytes;
    uint32_t heads = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (tiles_first_piece(t, i)->role != T_HEAD)
            continue;
        heads++;
        if (!t->tile[i].home && t->tile[i].frame_bytes > d->frame_bytes)
            d->frame_bytes = t->tile[i].frame_bytes;
    }
    d->slots = (uint32_t)(all / d->frame_bytes);
    d->sweep.room = d->tiles + heads;
    d->sweep.tile = calloc(d->sweep.room, sizeof *d->sweep.tile);
    if (!d->sweep.tile)
        return error_set(&d->error, -ENOMEM,
                         "no memory for the tables of a drafter");
    if (!d->slots)
        return error_set(&d->error, -ENOTSUP, "a drafter needs frames of "
                         "%" PRIu64 " bytes for the head of this model, it "
                         "has %" PRIu64, d->frame_bytes, all);
    return 0;
}

static int read_mask(struct dspark *d)
{
    struct load *load = &d->embed_load[0];
    load->segment[0] = flow_embedding_row(d->lent.flow, d->c.mask_id);
    block_place(&load->segment[0], 0);
    load->segment_count = 1;
    load->frame = d->b.embed;
    load->alone = true;
    atomic_store(&load->urgency, READ_DEMAND);
    stream_post(d->lent.stream, load);
    int err = dspark_wait(d, load);
    if (err)
        return dspark_fail(d, err, D_EMBED, 0, strerror(-err));
    bf16_widen(d->lent.kern, d->b.mask, load->frame + load->segment[0].at,
               d->c.hidden);
    return 0;
}

int dspark_start(struct dspark *d, struct k3 *k, struct error *error)
{
    d->k = k;
    k3_lend(k, &d->lent);
    dspark_cut(d, d->lent.memory, d->lent.resident);
    int err = fit_slots(d);
    if (!err)
        err = dspark_read_homes(d);
    if (!err)
        err = read_mask(d);
    d->facts.resident = d->lent.resident;
    d->facts.memory_bytes =
        d->guest.bytes + (d->lent.resident ? d->guest.resident_bytes : 0);
    d->facts.read_bytes = 0; /* count from here */
    return err ? error_set(error, err, "%s", d->error.text) : 0;
}

/* ---- context ---- */

struct running {
    struct dspark *d;
    int err;
};

static void run(void *arg)
{
    struct running *r = arg;
    struct dspark *d = r->d;
    r->err = dspark_run(d);
    if (!r->err && d->asks)
        r->err = dspark_choose(d);
}

/* A sweep for the context that waits and for the asks. */
static int work(struct dspark *d, struct dspark_ask *ask, uint32_t n)
{
    struct running r = { .d = d };
    d->ask = ask;
    d->asks = n;
    team_run(d->lent.team, run, &r);
    d->ask = NULL;
    d->asks = 0;
    return r.err;
}

static void drop_pending(struct dspark *d, uint32_t sequence)
{
    uint32_t n = 0;
    size_t floats = pack_cols((size_t)d->c.taps * d->c.hidden);
    for (uint32_t i = 0; i < d->pendings; i++) {
        if (d->pending[i].sequence == sequence)
            continue;
        if (n != i)
            memcpy(d->b.pending + n * floats, d->b.pending + i * floats,
                   floats * sizeof(float));
        d->pending[n++] = d->pending[i];
    }
    d->pendings = n;
}

void dspark_begin(struct dspark *d, uint32_t sequence, uint32_t position)
{
    assert(sequence < d->o.sequences);
    drop_pending(d, sequence);
    d->context[sequence] = (struct context){ position, position, position };
}

void dspark_copy(struct dspark *d, uint32_t to, uint32_t from)
{
    struct context *c = &d->context[from];
    assert(to != from && to < d->o.sequences);
    if (d->error.code)
        return;
    dspark_begin(d, to, c->known);
    if (c->known > c->end && work(d, NULL, 0))
        return;
    uint32_t n = c->end - c->first < d->room ? c->end - c->first : d->room;
    uint32_t parts = dspark_is_mla(d) ? 1 : d->c.kv_heads;
    size_t width = dspark_kept(&d->c) / parts, all = d->room * width;
    for (uint32_t l = 0; l < d->c.layers; l++)
        for (uint32_t p = 0; p < parts; p++)
            memcpy(dspark_layer(d, to, l) + p * all,
                   dspark_layer(d, from, l) + p * all,
                   n * width * sizeof(float));
    d->context[to] = *c;
}

static void keep_row(struct dspark *d, const float *taps)
{
    size_t n = (size_t)d->c.taps * d->c.hidden, width = d->c.hidden;
    const float *from = taps;
    if (d->c.tap_norm) {
        for (uint32_t i = 0; i < d->c.taps; i++)
            rms_norm(d->lent.kern, d->b.tap + i * width, taps + i * width,
                     dspark_vector(d, D_TAP_NORM, i), width, d->c.eps);
        from = d->b.tap;
    }
    pack_rows(d->b.pending + d->pendings * pack_cols(n), from, 1, n, n);
}

void dspark_keep(struct dspark *d, uint32_t sequence, uint32_t position,
                 uint32_t row, uint32_t count)
{
    int64_t begin = stream_now_ns(d->lent.stream);
    if (d->context[sequence].known != position)
        dspark_begin(d, sequence, position);
    for (uint32_t i = 0; i < count && !d->error.code; i++) {
        if (d->pendings == DSPARK_PENDING && work(d, NULL, 0))
            break;
        keep_row(d, k3_taps(d->k, row + i));
        d->pending[d->pendings++] =
            (struct pending){ sequence, position + i };
        d->context[sequence].known++;
    }
    d->facts.ns += stream_now_ns(d->lent.stream) - begin;
}

uint32_t dspark_position(const struct dspark *d, uint32_t sequence)
{
    return d->context[sequence].known;
}

/* ---- drafts ---- */

int dspark_draft(struct dspark *d, struct dspark_ask *ask, uint32_t n)
{
    int64_t begin = stream_now_ns(d->lent.stream);
    assert(n >= 1 && n <= d->batch);
    if (d->error.code)
        return d->error.code;
    for (uint32_t i = 0; i < n; i++)
        assert(ask[i].id < d->c.vocab && ask[i].sequence < d->o.sequences);
    int err = work(d, ask, n);
    d->facts.drafts++;
    d->facts.ns += stream_now_ns(d->lent.stream) - begin;
    return err;
}

const char *dspark_failure(const struct dspark *d)
{
    return d->error.code ? d->error.text : NULL;
}

void dspark_facts(const struct dspark *d, struct dspark_facts *out)
{
    *out = d->facts;
}

/* ---- for tests ---- */

const float *dspark_hidden(const struct dspark *d, uint32_t i)
{
    return d->b.hidden + (size_t)i * d->rows * d->c.hidden;
}

const float *dspark_logits(const struct dspark *d, uint32_t i)
{
    return d->b.logits + (size_t)i * d->rows * d->c.vocab;
}

const float *dspark_fused(const struct dspark *d, uint32_t i)
{
    return d->b.fused + (size_t)i * d->c.hidden;
}

bool dspark_cache(struct dspark *d, uint32_t sequence, uint32_t layer,
                  uint32_t position, float *out)
{
    const struct context *c = &d->context[sequence];
    size_t dim = d->c.head_dim, width = dspark_kept(&d->c);
    if (d->pendings)
        work(d, NULL, 0);
    if (position < c->first || position >= c->end ||
        c->end - position > d->room - d->rows)
        return false;
    uint32_t entry = (position - c->first) % d->room;
    const float *from = dspark_layer(d, sequence, layer);
    if (dspark_is_mla(d)) {
        memcpy(out, from + entry * width, width * sizeof *out);
        return true;
    }
    for (uint32_t h = 0; h < d->c.kv_heads; h++) {
        const float *at = from + ((size_t)h * d->room + entry) * 2 * dim;
        memcpy(out + h * dim, at + dim, dim * sizeof *out);
        memcpy(out + (d->c.kv_heads + h) * dim, at, dim * sizeof *out);
    }
    return true;
}

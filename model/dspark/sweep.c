/* sweep.c - the drafter's weights, tile after tile, in the order of use.
 *
 * A sweep over weights that are not in memory has DSPARK_SLOTS frames. As many
 * tiles are asked for ahead, as demands: the drives do them before they read on
 * in K3's trunk, and then go on with the trunk.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/ckpt/ckpt.h"
#include "model/dspark/dspark_internal.h"
#include "model/k3/k3.h"
#include "model/k3/tiles.h"
#include "sched/event_ring.h"

int dspark_fail(struct dspark *d, int code, enum dspark_role role,
                uint32_t index, const char *what)
{
    char name[DSPARK_NAME_BYTES];
    if (code == -ECANCELED) /* the pass that follows ends, too */
        return code;
    dspark_name(name, &d->c, role, index);
    return error_set(&d->error, code, "the drafter, %s: %s: %s", d->path, name,
                     what);
}

int dspark_wait(struct dspark *d, const struct load *load)
{
    struct stream *s = d->lent.stream;
    for (;;) {
        uint32_t seen = stream_events(s);
        uint32_t state = atomic_load(&load->state);
        if (state == LOAD_READY)
            return 0;
        if (state == LOAD_FAILED)
            return load->error;
        if (atomic_load(d->lent.cancel))
            return -ECANCELED;
        if (stream_failure(s).error)
            return stream_failure(s).error;
        stream_sleep(s, seen);
    }
}

/* Tell the loads that are under way to end, and wait for it. */
void dspark_sweep_drop(struct dspark *d)
{
    struct stream *s = d->lent.stream;
    bool busy = true;
    for (uint32_t i = 0; i < DSPARK_SLOTS; i++)
        atomic_store(&d->load[i].cancelled, true);
    for (uint32_t i = 0; i < DSPARK_BATCH; i++)
        atomic_store(&d->embed_load[i].cancelled, true);
    while (busy && stream_failure(s).file != UINT32_MAX) {
        uint32_t seen = stream_events(s);
        stream_notify(s);
        busy = false;
        for (uint32_t i = 0; i < DSPARK_SLOTS; i++)
            busy |= atomic_load(&d->load[i].state) == LOAD_WAITING;
        for (uint32_t i = 0; i < DSPARK_BATCH; i++)
            busy |= atomic_load(&d->embed_load[i].state) == LOAD_WAITING;
        if (busy)
            stream_sleep(s, seen);
    }
    d->sweep.count = d->sweep.at = 0;
}

static void post(struct dspark *d, struct load *load,
                 const struct segment *segment, uint32_t segments,
                 uint8_t *frame)
{
    memcpy(load->segment, segment, segments * sizeof *segment);
    load->segment_count = segments;
    load->object = EVENT_GUEST;
    load->frame = frame;
    load->alone = true;
    atomic_store(&load->urgency, READ_DEMAND);
    for (uint32_t i = 0; i < segments; i++)
        d->facts.read_bytes += segment[i].length_bytes;
    stream_post(d->lent.stream, load);
}

/* ---- what stays in memory ---- */

int dspark_read_homes(struct dspark *d)
{
    uint32_t next = 0, first = 0;
    for (uint32_t i = 0; i < d->tiles; i++)
        d->tile[i].segment.file = d->lent.file;
    while (first < d->tiles) {
        for (; next < d->tiles && next < first + DSPARK_SLOTS; next++)
            if (d->tile[next].home)
                post(d, &d->load[next % DSPARK_SLOTS], &d->tile[next].segment,
                     1, d->tile[next].home);
        const struct weight_tile *t = &d->tile[first];
        int err = t->home ? dspark_wait(d, &d->load[first % DSPARK_SLOTS]) : 0;
        if (err) {
            dspark_sweep_drop(d);
            return dspark_fail(d, err, t->role, t->index, strerror(-err));
        }
        first++;
    }
    return 0;
}

/* ---- the tiles of a sweep ---- */

static void add_tensor(struct dspark *d, enum dspark_role role, uint32_t index)
{
    const struct weight_tile *t = dspark_first(d, role, index);
    do
        d->sweep.tile[d->sweep.count++] =
            (struct sweep_tile){ .own = t, .home = t->home };
    while (++t < d->tile + d->tiles && t->role == role && t->index == index);
}

static void add_head(struct dspark *d)
{
    const struct tiles *t = k3_tiles(d->k);
    for (uint32_t i = 0; i < t->count; i++)
        if (tiles_first_piece(t, i)->role == T_HEAD)
            d->sweep.tile[d->sweep.count++] =
                (struct sweep_tile){ .head = i, .home = t->tile[i].home };
}

static void post_next(struct dspark *d)
{
    struct sweep *s = &d->sweep;
    while (s->posted < s->count && s->given - s->freed < d->slots) {
        const struct sweep_tile *t = &s->tile[s->posted++];
        if (t->home)
            continue;
        uint32_t slot = s->given++ % d->slots;
        uint8_t *frame = d->b.frames + slot * d->frame_bytes;
        if (t->own) {
            post(d, &d->load[slot], &t->own->segment, 1, frame);
        } else {
            const struct tiles *all = k3_tiles(d->k);
            const struct stream_tile *tile = &all->tile[t->head];
            post(d, &d->load[slot], all->segment + tile->first_segment,
                 tile->segment_count, frame);
        }
    }
}

void dspark_sweep_begin(struct dspark *d, bool block)
{
    static const enum dspark_role gqa[] = { D_Q, D_K, D_V, D_O, D_GATE, D_UP,
                                            D_DOWN };
    static const enum dspark_role mla[] = { D_QA, D_QB, D_KVA, D_KVB, D_O,
                                            D_GATE, D_UP, D_DOWN };
    const enum dspark_role *role = dspark_is_mla(d) ? mla : gqa;
    size_t roles = dspark_is_mla(d) ? sizeof mla / sizeof *mla
                                    : sizeof gqa / sizeof *gqa;
    struct sweep *s = &d->sweep;
    s->count = s->at = s->posted = s->given = s->freed = 0;
    if (d->pendings)
        add_tensor(d, D_FUSE, 0);
    for (uint32_t l = 0; l < d->c.layers; l++)
        for (size_t i = 0; i < roles; i++)
            if (block || role[i] == D_K || role[i] == D_V || role[i] == D_KVA)
                add_tensor(d, role[i], l);
    if (block)
        add_head(d);
    d->facts.sweeps++;
    post_next(d);
}

int dspark_sweep_hold(struct dspark *d, const struct sweep_tile **tile,
                      const uint8_t **bytes)
{
    struct sweep *s = &d->sweep;
    const struct sweep_tile *t = &s->tile[s->at];
    uint32_t slot = s->freed % d->slots;
    const uint8_t *frame = t->home;
    *tile = t;
    if (!frame) {
        int err = dspark_wait(d, &d->load[slot]);
        if (err && !t->own)
            return err == -ECANCELED
                       ? err
                       : error_set(&d->error, err, "the drafter: the head of "
                                   "the model: %s", strerror(-err));
        if (err)
            return dspark_fail(d, err, t->own->role, t->own->index,
                               strerror(-err));
        frame = d->b.frames + slot * d->frame_bytes;
    }
    *bytes = frame + (t->own ? t->own->segment.at : 0);
    return 0;
}

void dspark_sweep_release(struct dspark *d)
{
    struct sweep *s = &d->sweep;
    if (!s->tile[s->at++].home)
        s->freed++;
    post_next(d);
}

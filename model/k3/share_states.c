#include "model/k3/share_states.h"

#include <assert.h>
#include <string.h>

#include "model/ckpt/owned.h"
#include "model/k3/k3_internal.h"
#include "model/k3/shared.h"

/* ---- the spans ---- */

static uint64_t head_bytes(const struct k3 *k)
{
    return (uint64_t)k->c.kda_dim * k->c.kda_dim * sizeof(float);
}

static uint64_t row_bytes(const struct k3 *k) /* of a history, all heads */
{
    return (uint64_t)config_kda_width(&k->c) * sizeof(float);
}

static struct row_range heads_of(const struct k3 *k, uint32_t rank)
{
    struct owned o = *k->o.owned;
    o.part = rank;
    return owned_kda_heads(&o, &k->c);
}

static uint64_t latent_bytes(const struct k3 *k, uint32_t positions)
{
    const struct state_shape *s = &k->shape;
    return s->context ? s->mla_bytes / s->context * positions : 0;
}

static uint64_t run_bytes(const struct k3 *k, const struct state_walk *w)
{
    struct row_range heads;
    switch (w->part) {
    case STATE_KDA:
        heads = heads_of(k, w->run);
        return (heads.end - heads.begin) * head_bytes(k);
    case STATE_CONV:
        return row_bytes(k);
    case STATE_LATENT:
        return latent_bytes(k, w->positions);
    case STATE_PARTS:
        break;
    }
    return 0;
}

static uint32_t runs_of(const struct k3 *k, enum state_part part)
{
    return part == STATE_KDA    ? k->o.peers->count
           : part == STATE_CONV ? 3 * k->shape.conv_history
                                : 1;
}

/* To the next run that has bytes left. */
static void advance(const struct k3 *k, struct state_walk *w)
{
    while (w->part < STATE_PARTS && w->done == run_bytes(k, w)) {
        uint32_t layers = w->part == STATE_LATENT ? k->shape.mla_layers
                                                  : k->shape.kda_layers;
        w->done = 0;
        if (layers && ++w->run < runs_of(k, w->part))
            continue;
        w->run = 0;
        if (layers && ++w->layer < layers)
            continue;
        w->layer = 0;
        w->part++;
    }
    while (w->part < STATE_PARTS &&
           !(w->part == STATE_LATENT ? k->shape.mla_layers
                                     : k->shape.kda_layers))
        w->part++;
}

/* ---- one span, in all ranks ---- */

/* Ours of the run: of a KDA run all of it, or nothing. */
static uint8_t *own_of(const struct k3 *k, const struct state_walk *w)
{
    const struct state_shape *s = &k->shape;
    switch (w->part) {
    case STATE_KDA:
        return w->run == k->o.peers->rank
                   ? (uint8_t *)state_kda(w->block, s, w->layer)
                   : NULL;
    case STATE_CONV:
        return (uint8_t *)(state_conv(w->block, s, w->layer, 0) +
                           (size_t)w->run * s->width);
    case STATE_LATENT:
        return (uint8_t *)state_mla(w->block, s, w->layer);
    case STATE_PARTS:
        break;
    }
    return NULL;
}

/* Does rank 0 have all bytes of the span in its block? */
static bool is_rank0s(const struct state_walk *w)
{
    return w->part == STATE_LATENT || (w->part == STATE_KDA && !w->run);
}

static int gather_span(struct k3 *k, const struct state_walk *w)
{
    const struct peers *p = k->o.peers;
    uint8_t *buffer = (uint8_t *)k->s.gather, *own = own_of(k, w);
    uint64_t end[CUTS_PARTS_MAX], head = k->c.kda_dim * sizeof(float);
    if (is_rank0s(w))
        return 0;
    for (uint32_t r = 0; r < p->count; r++)
        end[r] = w->part == STATE_CONV ? heads_of(k, r).end * head
                 : r < w->run          ? 0
                                       : w->span.bytes;
    if (w->part == STATE_CONV)
        memcpy(buffer + k->shape.first * sizeof(float), own,
               k->shape.width * sizeof(float));
    else if (own)
        memcpy(buffer, own + w->from, w->span.bytes);
    return p->gather(p->arg, buffer, end, &(struct error){ 0 });
}

/* Rank 0 has filled the span. */
static int tell_span(struct k3 *k, const struct state_walk *w)
{
    const struct peers *p = k->o.peers;
    uint8_t *own = own_of(k, w);
    if (w->part == STATE_KDA && !w->run)
        return 0;
    int err = p->tell(p->arg, w->span.at, w->span.bytes,
                      &(struct error){ 0 });
    if (err || w->part == STATE_LATENT)
        return err;
    if (w->part == STATE_CONV)
        memcpy(own, w->span.at + k->shape.first * sizeof(float),
               k->shape.width * sizeof(float));
    else if (own)
        memcpy(own + w->from, w->span.at, w->span.bytes);
    return 0;
}

/* The next span; in a load, what the last one was filled with is told. */
static int next_span(struct k3 *k, struct state_walk *w)
{
    uint64_t room = k->s.gather_floats * sizeof(float);
    if (w->load && w->span.bytes && !w->err)
        w->err = tell_span(k, w);
    w->done += w->span.bytes;
    w->span = (struct state_span){ 0 };
    advance(k, w);
    if (w->part == STATE_PARTS || w->err)
        return w->err;
    uint64_t left = run_bytes(k, w) - w->done;
    w->from = w->done;
    w->span.bytes = left < room ? left : room;
    assert(w->part != STATE_CONV || w->span.bytes == row_bytes(k));
    w->span.at = w->part == STATE_LATENT || (is_rank0s(w) && own_of(k, w))
                     ? own_of(k, w) + w->from
                     : (uint8_t *)k->s.gather;
    if (!w->load)
        w->err = gather_span(k, w);
    return w->err;
}

/* ---- rank 0, for state_file.c ---- */

static int begin(void *arg, uint8_t *block, bool load, uint32_t positions)
{
    struct k3 *k = arg;
    uint64_t sequence = (uint64_t)(block - k->state) / k->shape.bytes;
    k->walk = (struct state_walk){ .block = block, .load = load,
                                   .positions = positions };
    k->walk.err = k3_say(k, load ? SAID_LOAD : SAID_SAVE, sequence, positions,
                         &(struct error){ 0 });
    return k->walk.err;
}

static int next(void *arg, struct state_span *out)
{
    struct k3 *k = arg;
    int err = next_span(k, &k->walk);
    *out = k->walk.span;
    return err;
}

/* What is left of the walk, for the others; then how it went. */
static int end(void *arg, int err)
{
    struct k3 *k = arg;
    struct state_walk *w = &k->walk;
    const struct peers *p = k->o.peers;
    do
        next_span(k, w);
    while (w->span.bytes && !w->err);
    int64_t went = err;
    if (w->load && !w->err)
        w->err = p->tell(p->arg, &went, sizeof went, &(struct error){ 0 });
    return err ? err : w->err;
}

void k3_share_states(struct k3 *k)
{
    if (!k->o.peers)
        return;
    k->state_share = (struct state_share){
        .kda_bytes = k->c.kda_heads * head_bytes(k),
        .conv_bytes = 3 * k->shape.conv_history * row_bytes(k),
        .begin = begin, .next = next, .end = end, .arg = k };
    k->shape.share = &k->state_share;
}

/* ---- the other ranks ---- */

void k3_share_obey(struct k3 *k, uint32_t sequence, bool load,
                   uint32_t positions)
{
    const struct peers *p = k->o.peers;
    struct state_walk w = { .block = k->state + sequence * k->shape.bytes,
                            .load = load, .positions = positions };
    int64_t went = 0;
    if (load)
        state_reset(w.block, &k->shape);
    do
        next_span(k, &w);
    while (w.span.bytes && !w.err);
    if (!load || w.err)
        return;
    if (p->tell(p->arg, &went, sizeof went, &(struct error){ 0 }) || went)
        state_reset(w.block, &k->shape);
    else
        state_header(w.block)->positions = positions;
}

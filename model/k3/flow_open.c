/* flow_open.c - stream, cache, fetch and prefetches, from a plan. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3/flow.h"
#include "model/k3/guest.h"
#include "model/k3/prefetch.h"
#include "model/k3/shape.h"

enum {
    LOADS_SPARE = 8,       /* loads of cancelled prefetches */
    STAGING_RESERVE = 1,   /* staging frames that prefetches may not take */
};

/* Bytes without coding over those that are stored. */
static void find_factors(struct flow *f, const struct k3_shape *shape)
{
    uint64_t stored = 0, decoded = 0;
    for (uint32_t t = 0; t < f->tiles->count; t++)
        if (!f->resident[t]) {
            stored += f->tiles->tile[t].payload_bytes;
            decoded += tiles_decoded_bytes(f->tiles, t);
        }
    f->trunk_factor = stored ? (double)decoded / (double)stored : 1;
    f->expert_factor =
        shape->expert_read_bytes
            ? (double)expert_bytes(f->c) / (double)shape->expert_read_bytes
            : 1;
}

int flow_prepare(struct flow *f, struct k3_shape *shape,
                 const struct config *c, const struct k3_options *o,
                 uint32_t rows, struct error *error)
{
    f->c = c;
    f->o = o;
    f->tiles = shape->tiles;
    f->resident = shape->resident;
    f->plan = shape->plan;
    f->decoded = calloc(f->tiles->count, sizeof *f->decoded);
    for (uint32_t t = 0, n = 0; f->decoded && t < f->tiles->count; t++)
        if (shape->plan_tile[t].decoded_bytes && n++ < f->plan.decoded_tiles) {
            f->decoded[t] = true;
            tiles_read_for_decoding(f->tiles, t);
        }
    find_factors(f, shape);
    shape->tiles = NULL;
    shape->resident = NULL;
    k3_shape_free(shape);
    f->embed_load = calloc(rows, sizeof *f->embed_load);
    f->run = calloc(rows, sizeof *f->run);
    f->frame = calloc(f->tiles->count, sizeof *f->frame);
    f->lent = calloc(c->experts + 1, sizeof *f->lent);
    if (!f->embed_load || !f->run || !f->frame || !f->lent || !f->decoded ||
        flow_watch_open(f))
        return error_set(error, -ENOMEM, "no memory for the tables of a pass");
    return 0;
}

static int open_stream(struct flow *f, const struct flow_options *fo,
                       struct error *error)
{
    struct stream_options so = {
        .reader = fo->reader, .simulated = fo->simulated,
        .place = fo->file_place,
        .segments = f->tiles->segment, .tiles = f->tiles->tile,
        .tile_count = f->tiles->count, .ring = fo->ring,
        .ring_bytes = f->plan.ring_bytes, .chunk_bytes = K3_CHUNK_BYTES,
        .loads_max = f->plan.staging_frames + f->plan.expert_frames +
                     f->plan.rows + LOADS_SPARE +
                     (f->o->guest ? f->o->guest->loads : 0),
        .loaded = f->o->loaded, .loaded_arg = f->o->progress_arg,
        .event_ring = f->o->event_ring, .cancel = &f->cancel,
    };
    int err = stream_open(&f->stream, &so);
    if (err)
        return error_set(error, err, "the reads could not be started: %s",
                         strerror(-err));
    err = stream_preload(f->stream);
    return err ? f->ops->failed(f->arg, err, NULL, NULL) : 0;
}

static int open_experts(struct flow *f, const struct flow_options *fo,
                        struct error *error)
{
    const struct config *c = f->c;
    struct cache_options co = {
        .policy = f->o->policy, .layers = config_moe_layers(c),
        .experts = c->experts, .top_k = c->top_k,
        .frames = f->plan.expert_frames, .pin_file = f->o->pin_file,
    };
    int err = cache_open(&f->cache, &co);
    if (err && err != -EINVAL && co.pin_file)
        return error_set(error, err, "%s: its experts cannot be pinned: %s",
                         co.pin_file, err == -ESPIPE
                             ? "a trace must be a file"
                             : strerror(-err));
    if (err)
        return error_set(error, err, "cache policy %s: %s", f->o->policy,
                         err == -EINVAL ? "unknown, or it needs a file"
                                        : strerror(-err));
    struct fetch_options to = {
        .stream = f->stream, .cache = f->cache,
        .layers = config_moe_layers(c), .experts = c->experts,
        .cache_frames = f->plan.expert_frames,
        .staging_frames = f->plan.staging_frames,
        .reserve = f->o->owned ? c->top_k : STAGING_RESERVE,
        .frames = fo->expert_frames, .frame_bytes = fo->expert_frame_bytes,
        .place = fo->place, .landed = fo->landed,
        .place_arg = fo->place_arg,
    };
    err = fetch_open(&f->fetch, &to);
    if (err)
        return error_set(error, err, "no memory for the table of experts");
    return k3_prefetch_open(&f->prefetching, f, error);
}

int flow_open(struct flow *f, const struct flow_options *fo,
              struct error *error)
{
    f->bytes_per_s = fo->bytes_per_s;
    f->embedding_slices = fo->embedding_slices;
    memcpy(f->embedding, fo->embedding,
           fo->embedding_slices * sizeof *f->embedding);
    f->ids = fo->ids;
    f->embed_frame = fo->embed_frame;
    f->embed_frame_stride = fo->embed_frame_stride;
    int err = open_stream(f, fo, error);
    if (!err && config_moe_layers(f->c))
        err = open_experts(f, fo, error);
    return err;
}

void flow_close(struct flow *f)
{
    stream_close(f->stream);
    k3_prefetch_close(f->prefetching);
    fetch_close(f->fetch);
    cache_close(f->cache);
    flow_watch_close(f);
    tiles_free(f->tiles);
    free(f->resident);
    free(f->decoded);
    free(f->embed_load);
    free(f->run);
    free(f->frame);
    free(f->lent);
}

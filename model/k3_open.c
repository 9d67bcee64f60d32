/* k3_open.c - from a folder and a budget to a session, and back. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/kern.h"
#include "model/k3_guess.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"
#include "model/k3_shape.h"

enum { LOADS_SPARE = 8, CHUNK_BYTES = 1 << 20 };

static int open_reader(struct k3 *k, struct why *why)
{
    uint32_t files = ckpt_files(k->ckpt), bad = 0;
    const char **path = calloc(files, sizeof *path);
    if (!path)
        return why_set(why, -ENOMEM, "no memory for the list of shards");
    for (uint32_t f = 0; f < files; f++)
        path[f] = ckpt_path(k->ckpt, f);
    struct reader_options ro = {
        .method = k->o.io, .paths = path, .files = files,
        .chunk_bytes = CHUNK_BYTES, .arena = k->arena, .paced = k->o.paced,
        .paced_count = k->o.paced_count, .fault = k->o.fault,
        .in_flight_bytes = k->o.in_flight_bytes,
    };
    int err = reader_open(&k->reader, &ro, &bad);
    if (err)
        why_set(why, err, "%s %s: %s",
                bad < files ? path[bad] : "the reader",
                bad < files ? "cannot be opened for reading" : "cannot start",
                strerror(-err));
    free(path);
    if (!err) {
        struct reader_facts f;
        reader_facts(k->reader, &f);
        uint64_t rate = f.paced_bytes_per_s ? f.paced_bytes_per_s
                                            : f.raw_bytes_per_s;
        k->rate = rate ? (double)rate : 1e9;
    }
    return err;
}

static int take_arena(struct k3 *k, struct why *why, uint64_t frames)
{
    const struct plan *p = &k->plan;
    uint64_t bytes = p->total_bytes - p->program_bytes;
    int err = arena_open(&k->arena, bytes);
    if (err)
        return why_set(why, err, "%" PRIu64 " bytes of memory could not be "
                       "had: %s", bytes, strerror(-err));
    k->state = arena_take(k->arena, p->state_bytes, BLOCK_PAGE);
    uint8_t *scratch = arena_take(k->arena, p->scratch_bytes, BLOCK_PAGE);
    assert(k->state && scratch && frames);
    k3_scratch_cut(&k->s, scratch, &k->c, &k->o, team_threads(k->team),
                   p->rows);
    k->small.buffer =
        scratch + p->scratch_bytes - 2 * k3_smalls_bytes(k->tiles);
    k->model_small.buffer = k->small.buffer + k3_smalls_bytes(k->tiles);
    return 0;
}

static void place_expert(void *arg, uint32_t layer, uint32_t expert,
                         struct load *load)
{
    struct k3 *k = arg;
    uint32_t at[EXPERT_TENSORS];
    k3_place_expert(k->ckpt, layer + k->c.first_dense, expert, load, at);
    load->object = 1u << 31 | (layer * k->c.experts + expert);
}

static int open_stream(struct k3 *k, struct why *why)
{
    uint8_t *ring = NULL;
    if (k->plan.ring_bytes)
        ring = arena_take(k->arena, k->plan.ring_bytes, BLOCK_PAGE);
    for (uint32_t t = 0; t < k->tiles->count; t++)
        if (k->resident[t]) {
            k->tiles->tile[t].home = arena_take(
                k->arena, k->tiles->tile[t].frame_bytes, BLOCK_PAGE);
            assert(k->tiles->tile[t].home);
        }
    struct stream_options so = {
        .reader = k->reader, .segments = k->tiles->segment,
        .tiles = k->tiles->tile, .tile_count = k->tiles->count,
        .ring = ring, .ring_bytes = k->plan.ring_bytes,
        .chunk_bytes = CHUNK_BYTES,
        .loads_max = k->plan.staging_frames + k->plan.expert_frames +
                     k->plan.rows + LOADS_SPARE,
        .journal = k->o.journal, .cancel = &k->cancel,
    };
    int err = stream_open(&k->stream, &so);
    if (err)
        return why_set(why, err, "the reads could not be started: %s",
                       strerror(-err));
    err = stream_preload(k->stream);
    if (err) {
        struct pass p = { .k = k, .why = why };
        return k3_read_failed(&p, err, "the resident trunk");
    }
    return 0;
}

static int open_experts(struct k3 *k, uint64_t frame_bytes, struct why *why)
{
    if (!config_moe_layers(&k->c))
        return 0;
    struct cache_options co = {
        .policy = k->o.policy, .layers = config_moe_layers(&k->c),
        .experts = k->c.experts, .top_k = k->c.top_k,
        .frames = k->plan.expert_frames, .pin_file = k->o.pin_file,
    };
    int err = cache_open(&k->cache, &co);
    if (err)
        return why_set(why, err, "cache policy %s: %s", k->o.policy,
                       err == -EINVAL ? "unknown, or it needs a file"
                                      : strerror(-err));
    uint32_t frames = k->plan.expert_frames + k->plan.staging_frames;
    struct fetch_options fo = {
        .stream = k->stream, .cache = k->cache,
        .layers = config_moe_layers(&k->c), .experts = k->c.experts,
        .cache_frames = k->plan.expert_frames,
        .staging_frames = k->plan.staging_frames,
        .reserve = 1,
        .frames = arena_take(k->arena, frames * frame_bytes, BLOCK_PAGE),
        .frame_bytes = frame_bytes, .payload_bytes = expert_bytes(&k->c),
        .place = place_expert, .place_arg = k,
    };
    assert(fo.frames);
    err = fetch_open(&k->fetch, &fo);
    if (err)
        return why_set(why, err, "no memory for the table of experts");
    return k3_guess_open(&k->guesser, k, why);
}

static int open_tables(struct k3 *k, struct why *why)
{
    uint32_t count[2] = { 0, 0 };
    k->index_in_kind = calloc(k->c.layers, sizeof *k->index_in_kind);
    k->run = calloc(k->plan.rows, sizeof *k->run);
    k->embed_load = calloc(k->plan.rows, sizeof *k->embed_load);
    if (!k->index_in_kind || !k->run || !k->embed_load)
        return why_set(why, -ENOMEM, "no memory for the table of layers");
    for (uint32_t l = 0; l < k->c.layers; l++)
        k->index_in_kind[l] = count[config_is_mla(&k->c, l)]++;
    return 0;
}

int k3_open(struct k3 **out, const char *dir, const struct k3_options *o,
            struct why *why)
{
    *out = NULL;
    struct k3 *k = calloc(1, sizeof *k);
    if (!k)
        return why_set(why, -ENOMEM, "no memory for a session");
    k->o = *o;
    k3_option_defaults(&k->o);
    struct k3_shape shape;
    int err = team_open(&k->team, o->threads);
    if (err)
        why_set(why, err, "the threads could not be started: %s",
                strerror(-err));
    k->isa = isa_name(kern_init(o->isa ? o->isa - 1 : ISA_COUNT - 1));
    if (!err)
        err = config_load(&k->c, dir, why);
    if (!err && o->mla_latent_eps > 0)
        k->c.mla_latent_eps = o->mla_latent_eps;
    if (!err)
        err = ckpt_open(&k->ckpt, dir, &k->c, why);
    if (!err)
        err = k3_shape_of(&shape, k->ckpt, &k->c, &k->o,
                          team_threads(k->team), why);
    if (!err) {
        k->tiles = shape.tiles;
        k->resident = shape.resident;
        k->shape = shape.state;
        k->plan = shape.plan;
        k->o.prefetch = shape.prefetch;
        k->o.drafts = shape.drafts;
        free(shape.plan_tile);
        if (k3_watch_open(k))
            err = why_set(why, -ENOMEM, "no memory for the table of times");
        else if (k->o.planned)
            err = k->o.planned(k->o.planned_arg, k, why);
    }
    if (!err)
        err = open_tables(k, why);
    if (!err)
        err = take_arena(k, why, shape.expert_frame_bytes);
    if (!err)
        err = open_reader(k, why);
    if (!err)
        err = open_stream(k, why);
    if (!err)
        err = open_experts(k, shape.expert_frame_bytes, why);
    if (err) {
        k3_close(k);
        return err;
    }
    for (uint32_t s = 0; s < k->o.sequences; s++)
        k3_reset(k, s);
    *out = k;
    return 0;
}

void k3_close(struct k3 *k)
{
    if (!k)
        return;
    stream_close(k->stream);
    k3_guess_close(k->guesser);
    fetch_close(k->fetch);
    cache_close(k->cache);
    reader_close(k->reader);
    arena_close(k->arena);
    k3_watch_close(k);
    team_close(k->team);
    tiles_free(k->tiles);
    ckpt_close(k->ckpt);
    config_free(&k->c);
    free(k->resident);
    free(k->index_in_kind);
    free(k->run);
    free(k->embed_load);
    free(k);
}

const struct config *k3_config(const struct k3 *k)
{
    return &k->c;
}

const struct plan *k3_plan_of(const struct k3 *k)
{
    return &k->plan;
}

const struct k3_options *k3_options_of(const struct k3 *k)
{
    return &k->o;
}

uint32_t k3_rows(const struct k3 *k)
{
    return k->plan.rows;
}

uint32_t k3_drafts(const struct k3 *k)
{
    return k->o.drafts;
}

uint32_t k3_threads(const struct k3 *k)
{
    return team_threads(k->team);
}

void k3_allow(struct k3 *k, uint64_t passes)
{
    k->end = (k->passes + passes) * k->tiles->count;
    if (k->o.look_ahead == K3_LOOK_RING)
        stream_allow(k->stream, k->end);
}

const float *k3_logits(const struct k3 *k, uint32_t i)
{
    return k->s.logits + (size_t)i * k->c.vocab;
}

void k3_reset(struct k3 *k, uint32_t sequence)
{
    state_reset(k->state + sequence * k->shape.bytes, &k->shape);
    k3_guess_forget(k, sequence);
}

void k3_cancel(struct k3 *k)
{
    atomic_store(&k->cancel, true);
}

struct stream *k3_stream(struct k3 *k)
{
    return k->stream;
}

uint64_t k3_in_flight_budget(const struct k3 *k, uint32_t drive)
{
    return reader_in_flight_budget(k->reader, drive);
}

const struct tiles *k3_tiles(const struct k3 *k)
{
    return k->tiles;
}

const struct k3_totals *k3_last(const struct k3 *k)
{
    return &k->last;
}

void k3_facts(struct k3 *k, struct k3_facts *out)
{
    struct arena_facts arena;
    memset(out, 0, sizeof *out);
    memcpy(out->totals, k->totals, sizeof out->totals);
    if (k->fetch)
        out->experts = fetch_counts(k->fetch);
    reader_facts(k->reader, &out->reader);
    arena_facts(k->arena, &arena);
    out->resident_read_bytes = k->plan.resident_payload_bytes;
    out->huge_page_share = arena.huge_page_share;
    out->arena_note = arena.note;
    out->nodes = arena.nodes;
    out->threads = team_threads(k->team);
    out->drives = reader_drives(k->reader);
    out->isa = k->isa;
    out->policy = k->o.policy;
    out->prefetch = k->o.prefetch;
}

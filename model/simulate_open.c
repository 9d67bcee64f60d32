/* simulate_open.c - a session of numbers: the plan, stream, cache and fetch of
 * a real one, over drives that do not exist. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model/k3_guess.h"
#include "model/simulate_internal.h"

enum { LOADS_SPARE = 8, CHUNK_BYTES = 1 << 20 }; /* as in k3_open.c */

static int no_memory(struct sim *s)
{
    return why_set(s->why, -ENOMEM, "no memory to simulate %s", s->o->trace);
}

static int open_trace(struct sim *s)
{
    int err = passes_open(&s->passes, s->o->trace, s->o->repair, s->why);
    if (err)
        return err;
    const struct trace_info *i = &passes_facts(s->passes)->info;
    const struct config *c = s->o->config;
    if (i->layers == config_moe_layers(c) && i->experts == c->experts &&
        i->top_k == c->top_k)
        return 0;
    return why_set(s->why, -EBADMSG, "%s: %" PRIu32 " layers of %" PRIu32
                   " experts, top %" PRIu32 "; the config has %" PRIu32 " of %"
                   PRIu32 ", top %" PRIu32, s->o->trace, i->layers, i->experts,
                   i->top_k, config_moe_layers(c), c->experts, c->top_k);
}

/* The options a session would have had for this trace. */
static void take_options(struct sim *s)
{
    const struct passes_facts *f = passes_facts(s->passes);
    struct k3_options *o = &s->k.o;
    *o = s->o->k3;
    s->perfect = o->prefetch && !strcmp(o->prefetch, "perfect");
    if (s->perfect)
        o->prefetch = "gate";
    if (!o->rows)
        o->rows = f->rows_most;
    if (o->sequences < f->slots)
        o->sequences = f->slots;
    k3_option_defaults(o);
}

static int open_plan(struct sim *s)
{
    struct k3 *k = &s->k;
    take_options(s);
    k->c = *s->o->config;
    int err = k3_shape_of(&s->shape, NULL, &k->c, &k->o,
                      k->o.threads ? k->o.threads : 1, s->why);
    if (err)
        return err;
    k->tiles = s->shape.tiles;
    k->resident = s->shape.resident;
    k->plan = s->shape.plan;
    k->o.prefetch = s->shape.prefetch;
    if (s->o->frames >= 0)
        k->plan.expert_frames = (uint32_t)s->o->frames;
    return layout_open(&s->layout, &k->c) ? no_memory(s) : 0;
}

static int open_drives(struct sim *s)
{
    struct virtual_drive drive[PLAN_DRIVES_MAX];
    const struct k3_options *o = &s->k.o;
    assert(o->paced_count >= 1 && o->paced_count <= PLAN_DRIVES_MAX);
    for (uint32_t d = 0; d < o->paced_count; d++) {
        drive[d] = (struct virtual_drive){
            .bytes_per_s = o->paced[d].bytes_per_s,
            .latency_ns = o->paced[d].latency_ns,
            .budget_bytes = o->in_flight_bytes
                                ? o->in_flight_bytes
                                : reader_paced_budget(&o->paced[d]) };
        s->k.rate += (double)drive[d].bytes_per_s;
    }
    return virtual_open(&s->drives, drive, o->paced_count) ? no_memory(s) : 0;
}

/* Frames for everything, as addresses; the kernel gives no memory for them. */
static int open_space(struct sim *s)
{
    struct k3 *k = &s->k;
    uint64_t tiles = k->plan.ring_bytes;
    for (uint32_t t = 0; t < k->tiles->count; t++)
        if (k->resident[t])
            tiles += k->tiles->tile[t].frame_bytes;
    uint64_t frames =
        (uint64_t)k->plan.expert_frames + k->plan.staging_frames;
    s->space_bytes = tiles + frames * s->shape.expert_frame_bytes + BLOCK_PAGE;
    void *space = mmap(NULL, s->space_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return no_memory(s);
    s->space = space;
    uint8_t *at = s->space + k->plan.ring_bytes;
    for (uint32_t t = 0; t < k->tiles->count; t++)
        if (k->resident[t]) {
            k->tiles->tile[t].home = at;
            at += k->tiles->tile[t].frame_bytes;
        }
    return 0;
}

static int open_stream(struct sim *s)
{
    struct k3 *k = &s->k;
    struct stream_options so = {
        .simulated = s->drives, .segments = k->tiles->segment,
        .tiles = k->tiles->tile, .tile_count = k->tiles->count,
        .ring = s->space, .ring_bytes = k->plan.ring_bytes,
        .chunk_bytes = CHUNK_BYTES,
        .loads_max = k->plan.staging_frames + k->plan.expert_frames +
                     passes_facts(s->passes)->rows_most + LOADS_SPARE,
    };
    int err = stream_open(&k->stream, &so);
    if (!err)
        err = stream_preload(k->stream);
    return err ? no_memory(s) : 0;
}

static void place_expert(void *arg, uint32_t layer, uint32_t expert,
                         struct load *load)
{
    struct sim *s = arg;
    struct extent e[EXPERT_TENSORS];
    layout_expert(s->layout, layer + s->k.c.first_dense, expert, e);
    load->segment[0] = (struct segment){
        .file = e[0].file, .offset_bytes = e[0].offset_bytes,
        .length_bytes = expert_bytes(&s->k.c) };
    load->segment_count = 1;
    block_place(&load->segment[0], 0);
    load->object = 1u << 31 | (layer * s->k.c.experts + expert);
}

static int open_experts(struct sim *s)
{
    struct k3 *k = &s->k;
    struct cache_options co = {
        .policy = k->o.policy, .layers = config_moe_layers(&k->c),
        .experts = k->c.experts, .top_k = k->c.top_k,
        .frames = k->plan.expert_frames, .pin_file = k->o.pin_file,
    };
    int err = cache_open(&k->cache, &co);
    if (err)
        return why_set(s->why, err, "%s: policy %s cannot be simulated",
                       s->o->trace, k->o.policy);
    uint64_t frames = (uint64_t)k->plan.expert_frames +
                      k->plan.staging_frames;
    struct fetch_options fo = {
        .stream = k->stream, .cache = k->cache,
        .layers = config_moe_layers(&k->c), .experts = k->c.experts,
        .cache_frames = k->plan.expert_frames,
        .staging_frames = k->plan.staging_frames, .reserve = 1,
        .frames = s->space + s->space_bytes - BLOCK_PAGE -
                  frames * s->shape.expert_frame_bytes,
        .frame_bytes = s->shape.expert_frame_bytes,
        .payload_bytes = expert_bytes(&k->c),
        .place = place_expert, .place_arg = s,
    };
    if (fetch_open(&k->fetch, &fo) || k3_watch_open(k))
        return no_memory(s);
    err = k3_guess_open(&k->guesser, k, s->why);
    if (!err && k->guesser)
        k3_guess_supply(k->guesser, simulate_gate, s);
    return err;
}

static int open_rows(struct sim *s)
{
    struct k3 *k = &s->k;
    uint32_t rows = passes_facts(s->passes)->rows_most;
    k->run = calloc(rows, sizeof *k->run);
    k->embed_load = calloc(rows, sizeof *k->embed_load);
    k->s.ids = calloc((size_t)rows * k->c.top_k, sizeof *k->s.ids);
    s->ended = calloc(passes_facts(s->passes)->slots, sizeof *s->ended);
    return k->run && k->embed_load && k->s.ids && s->ended ? 0
                                                           : no_memory(s);
}

static void close_all(struct sim *s)
{
    struct k3 *k = &s->k;
    stream_close(k->stream);
    k3_guess_close(k->guesser);
    fetch_close(k->fetch);
    cache_close(k->cache);
    k3_watch_close(k);
    virtual_close(s->drives);
    if (s->space)
        munmap(s->space, s->space_bytes);
    free(k->run);
    free(k->embed_load);
    free(k->s.ids);
    free(s->ended);
    k3_shape_free(&s->shape);
    layout_close(s->layout);
    passes_close(s->passes);
}

int simulate_run(struct simulate_result *out,
                 const struct simulate_options *options, struct why *why)
{
    struct sim *s = calloc(1, sizeof *s);
    memset(out, 0, sizeof *out);
    if (!s)
        return why_set(why, -ENOMEM, "no memory to simulate %s",
                       options->trace);
    s->o = options;
    s->cost = options->cost;
    s->why = why;
    int err = open_trace(s);
    int (*const step[])(struct sim *) = { open_plan, open_drives, open_space,
                                          open_stream, open_experts,
                                          open_rows };
    for (size_t i = 0; i < sizeof step / sizeof *step && !err; i++)
        err = step[i](s);
    if (!err)
        err = simulate_passes(s, out);
    if (!err) {
        k3_finish(&s->k);
        out->plan = s->k.plan;
        out->policy = s->k.o.policy;
        out->prefetch = s->perfect ? "perfect" : s->k.o.prefetch;
        out->experts = fetch_counts(s->k.fetch);
        out->drives = virtual_count(s->drives);
        out->bytes_per_s = s->k.rate;
        memcpy(out->totals, s->k.totals, sizeof out->totals);
    }
    close_all(s);
    free(s);
    return err;
}

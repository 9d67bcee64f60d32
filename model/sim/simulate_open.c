/* simulate_open.c - a session of numbers: the plan, stream, cache and fetch of
 * a real one, over drives that do not exist. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model/k3/coded.h"
#include "model/k3/prefetch.h"
#include "model/sim/simulate_internal.h"

static int no_memory(struct sim *s)
{
    return error_set(s->error, -ENOMEM, "no memory to simulate %s",
                     s->o->trace);
}

static int open_trace(struct sim *s)
{
    int err = passes_open(&s->passes, s->o->trace, s->o->repair, s->error);
    if (err)
        return err;
    const struct trace_info *i = &passes_facts(s->passes)->info;
    const struct config *c = s->o->config;
    if (i->layers == config_moe_layers(c) && i->experts == c->experts &&
        i->top_k == c->top_k)
        return 0;
    return error_set(s->error, -EBADMSG,
                     "%s: %" PRIu32 " layers of %" PRIu32
                     " experts, top %" PRIu32 "; the config has %" PRIu32
                     " of %" PRIu32 ", top %" PRIu32,
                     s->o->trace, i->layers, i->experts, i->top_k,
                     config_moe_layers(c), c->experts, c->top_k);
}

/* The options a session would have had for this trace. */
static void take_options(struct sim *s)
{
    const struct passes_facts *f = passes_facts(s->passes);
    struct k3_options *o = &s->k3;
    *o = s->o->k3;
    s->perfect = o->prefetch && !strcmp(o->prefetch, "perfect");
    if (s->perfect)
        o->prefetch = "gate";
    if (!o->rows)
        o->rows = f->rows_max;
    if (o->sequences < f->slots)
        o->sequences = f->slots;
    k3_option_defaults(o);
}

static int open_plan(struct sim *s)
{
    struct k3_shape shape;
    take_options(s);
    s->c = *s->o->config;
    int err = k3_shape_of(&shape, NULL, &s->c, &s->k3,
                          s->k3.threads ? s->k3.threads : 1, s->error);
    if (err)
        return err;
    s->k3.prefetch = shape.prefetch;
    s->k3.packed_skip = shape.packed_skip;
    s->expert_frame_bytes = shape.expert_frame_bytes;
    s->form = shape.form;
    s->flow.ops = &simulate_ops;
    s->flow.arg = s;
    err = flow_prepare(&s->flow, &shape, &s->c, &s->k3,
                       passes_facts(s->passes)->rows_max, s->error);
    if (err)
        return err;
    if (s->o->frames >= 0)
        s->flow.plan.expert_frames = (uint32_t)s->o->frames;
    if (!s->k3.parts && layout_open(&s->layout, &s->c))
        return no_memory(s);
    s->weights = weights_of(&s->k3, &s->c, NULL, s->layout);
    s->place = calloc(weights_files(&s->weights), sizeof *s->place);
    for (uint32_t f = 0; s->place && f < weights_files(&s->weights); f++)
        s->place[f] = weights_place(&s->weights, f);
    return s->place ? 0 : no_memory(s);
}

static int open_drives(struct sim *s)
{
    struct virtual_drive drive[DRIVES_MAX];
    const struct k3_options *o = &s->k3;
    assert(o->paced_count >= 1 && o->paced_count <= DRIVES_MAX);
    for (uint32_t d = 0; d < o->paced_count; d++) {
        drive[d] = (struct virtual_drive){
            .bytes_per_s = o->paced[d].bytes_per_s,
            .latency_ns = o->paced[d].latency_ns,
            .budget_bytes = o->in_flight_bytes
                                ? o->in_flight_bytes
                                : reader_paced_budget(&o->paced[d]) };
        s->flow.bytes_per_s += (double)drive[d].bytes_per_s;
    }
    return virtual_open(&s->drives, drive, o->paced_count,
                        o->layout == K3_PARTS     ? VIRTUAL_PARTS
                        : o->layout == K3_MIRRORS ? VIRTUAL_COPIES
                                                  : VIRTUAL_SHARDS)
               ? no_memory(s)
               : 0;
}

/* Frames for everything, as addresses; the kernel gives no memory for them. */
static int open_space(struct sim *s)
{
    struct tiles *t = s->flow.tiles;
    const struct plan *p = &s->flow.plan;
    uint64_t tiles = p->ring_bytes;
    for (uint32_t i = 0; i < t->count; i++)
        if (s->flow.resident[i])
            tiles += t->tile[i].frame_bytes;
    uint64_t frames = (uint64_t)p->expert_frames + p->staging_frames;
    s->space_bytes = tiles + frames * s->expert_frame_bytes + BLOCK_PAGE;
    void *space = mmap(NULL, s->space_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return no_memory(s);
    s->space = space;
    uint8_t *at = s->space + p->ring_bytes;
    for (uint32_t i = 0; i < t->count; i++)
        if (s->flow.resident[i]) {
            t->tile[i].home = at;
            at += t->tile[i].frame_bytes;
        }
    return 0;
}

static void place_expert(void *arg, uint32_t layer, uint32_t expert,
                         struct load *load)
{
    struct sim *s = arg;
    weights_place_expert(&s->weights, &s->form, layer + s->c.first_dense,
                         expert, load);
    load->object = EVENT_EXPERT | (layer * s->c.experts + expert);
}

static int open_rows(struct sim *s)
{
    const struct passes_facts *f = passes_facts(s->passes);
    s->row = calloc(f->rows_max, sizeof *s->row);
    s->ids = calloc((size_t)f->rows_max * s->c.top_k, sizeof *s->ids);
    s->ended = calloc(f->slots, sizeof *s->ended);
    return s->row && s->ids && s->ended ? 0 : no_memory(s);
}

static int open_flow(struct sim *s)
{
    const struct plan *p = &s->flow.plan;
    uint64_t frames = (uint64_t)p->expert_frames + p->staging_frames;
    struct tiles_slice embedding[TILES_SLICES_MAX];
    struct flow_options fo = {
        .simulated = s->drives, .file_place = s->place, .embedding = embedding,
        .bytes_per_s = s->flow.bytes_per_s,
        .ring = s->space, .embed_frame = s->space, .ids = s->ids,
        .expert_frames = s->space + s->space_bytes - BLOCK_PAGE -
                         frames * s->expert_frame_bytes,
        .expert_frame_bytes = s->expert_frame_bytes, .place = place_expert,
        .place_arg = s,
    };
    fo.embedding_slices = weights_slices(&s->weights, TENSOR_MODEL_LEVEL,
                                         T_EMBED, embedding);
    int err = flow_open(&s->flow, &fo, s->error);
    for (uint32_t i = 0; !err && i < s->flow.tiles->count; i++)
        if (s->flow.decoded[i])
            tiles_set_decoded(s->flow.tiles, i);
    if (!err && s->flow.prefetching)
        k3_prefetch_set_gate(s->flow.prefetching, simulate_gate, s);
    return err;
}

static void close_all(struct sim *s)
{
    flow_close(&s->flow);
    virtual_close(s->drives);
    if (s->space)
        munmap(s->space, s->space_bytes);
    free(s->row);
    free(s->ids);
    free(s->ended);
    layout_close(s->layout);
    free(s->place);
    passes_close(s->passes);
}

int simulate_run(struct simulate_result *out,
                 const struct simulate_options *options, struct error *error)
{
    struct sim *s = calloc(1, sizeof *s);
    memset(out, 0, sizeof *out);
    if (!s)
        return error_set(error, -ENOMEM, "no memory to simulate %s",
                         options->trace);
    s->o = options;
    s->cost = options->cost;
    s->error = error;
    int err = open_trace(s);
    int (*const step[])(struct sim *) = { open_plan, open_drives, open_space,
                                          open_rows, open_flow };
    for (size_t i = 0; i < sizeof step / sizeof *step && !err; i++)
        err = step[i](s);
    if (!err)
        err = simulate_passes(s, out);
    if (!err) {
        flow_quiesce(&s->flow);
        out->plan = s->flow.plan;
        out->policy = s->k3.policy;
        out->prefetch = s->perfect ? "perfect" : s->k3.prefetch;
        out->experts = fetch_counts(s->flow.fetch);
        out->drives = virtual_count(s->drives);
        memcpy(out->totals, s->flow.totals, sizeof out->totals);
        for (int p = 0; p < K3_PHASES; p++)
            out->decoded_bytes[p] = flow_decoded_bytes(&s->flow,
                                                       &out->totals[p]);
    }
    close_all(s);
    free(s);
    return err;
}

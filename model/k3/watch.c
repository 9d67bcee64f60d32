/* watch.c - counters: time by kernel, by layer and by wait; totals of
 * passes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3/k3_internal.h"
#include "model/k3/prefetch.h"

int flow_watch_open(struct flow *f)
{
    struct flow_watch *w = &f->watch;
    w->times = calloc(config_moe_layers(f->c) + 1, sizeof *w->times);
    bool all = w->times != NULL;
    for (int i = 0; i < K3_PHASES; i++) {
        w->layer[i] = calloc(f->c->layers + 1, sizeof *w->layer[i]);
        w->kernel[i] = calloc(K3_KERNELS, sizeof *w->kernel[i]);
        all = all && w->layer[i] && w->kernel[i];
    }
    return all ? 0 : -ENOMEM;
}

void flow_watch_close(struct flow *f)
{
    free(f->watch.times);
    for (int i = 0; i < K3_PHASES; i++) {
        free(f->watch.layer[i]);
        free(f->watch.kernel[i]);
    }
}

void flow_watch_kernel(struct flow *f, uint8_t kernel, int32_t layer,
                       int64_t begin_ns)
{
    if (kernel == K3_NO_KERNEL)
        return;
    struct event e = { .begin_ns = begin_ns,
                       .end_ns = stream_now_ns(f->stream),
                       .object = (uint32_t)layer,
                       .kind = EVENT_KERNEL,
                       .value = kernel };
    struct k3_kernel_totals *t = &f->watch.kernel[f->watch.phase][kernel];
    t->ns += e.end_ns - begin_ns;
    t->calls++;
    event_ring_add(f->o->event_ring, EVENT_TRACK_COMPUTE, &e);
}

/* Read the counters into the watch. */
static void look(struct flow *f)
{
    struct flow_watch *w = &f->watch;
    w->ns = stream_now_ns(f->stream);
    w->wait_trunk_ns = stream_hold_wait_ns(f->stream);
    w->wait_expert_ns = f->wait_expert_ns;
    w->trunk_bytes = f->trunk_bytes;
    if (f->fetch)
        w->experts = fetch_counts(f->fetch);
}

void flow_watch_pass(struct flow *f, enum k3_phase phase)
{
    f->watch.phase = phase;
    memset(f->watch.times, 0,
           (config_moe_layers(f->c) + 1) * sizeof *f->watch.times);
    look(f);
}

static uint32_t us(int64_t ns)
{
    return (uint32_t)(ns / 1000);
}

void flow_watch_part(struct flow *f, int32_t model_layer, bool mlp)
{
    uint32_t layer = model_layer < 0 ? f->c->layers : (uint32_t)model_layer;
    struct flow_watch *w = &f->watch, was = *w;
    struct k3_layer_totals *t = &w->layer[w->phase][layer];
    look(f);
    int64_t trunk = w->wait_trunk_ns - was.wait_trunk_ns;
    int64_t expert = w->wait_expert_ns - was.wait_expert_ns;
    int64_t compute = w->ns - was.ns - trunk - expert;
    t->wait_trunk_ns += trunk;
    t->wait_expert_ns += expert;
    *(mlp ? &t->mlp_ns : &t->attention_ns) += compute;
    t->trunk_bytes += w->trunk_bytes - was.trunk_bytes;
    t->expert_bytes += w->experts.demand_bytes - was.experts.demand_bytes +
                       w->experts.prefetch_bytes - was.experts.prefetch_bytes;
    t->requests += w->experts.requests - was.experts.requests;
    t->loads += w->experts.loads - was.experts.loads;
    t->prefetch_hits += w->experts.prefetch_hits - was.experts.prefetch_hits;
    t->late += w->experts.late - was.experts.late;
    if (layer < f->c->first_dense || layer == f->c->layers)
        return;
    struct k3_moe_times *now = &w->times[layer - f->c->first_dense];
    now->wait_trunk_us += us(trunk);
    now->wait_expert_us += us(expert);
    *(mlp ? &now->experts_us : &now->attention_us) += us(compute);
}

/* ---- what passes did ---- */

struct flow_counters flow_counters(const struct flow *f)
{
    struct flow_counters m = {
        .ns = stream_now_ns(f->stream),
        .wait_trunk_ns = stream_hold_wait_ns(f->stream),
        .wait_expert_ns = f->wait_expert_ns,
        .wait_embed_ns = f->wait_embed_ns,
        .idle_ns = stream_idle_ns(f->stream),
        .all_idle_ns = stream_all_idle_ns(f->stream),
        .trunk_bytes = f->trunk_bytes,
        .embed_bytes = f->embed_bytes, .expert_items = f->expert_items,
    };
    if (f->fetch)
        m.experts = fetch_counts(f->fetch);
    return m;
}

static void add(struct k3_totals *t, const struct k3_totals *one)
{
    t->passes += one->passes;
    t->rows += one->rows;
    t->ns += one->ns;
    t->wait_trunk_ns += one->wait_trunk_ns;
    t->wait_expert_ns += one->wait_expert_ns;
    t->wait_embed_ns += one->wait_embed_ns;
    t->idle_ns += one->idle_ns;
    t->all_idle_ns += one->all_idle_ns;
    t->trunk_bytes += one->trunk_bytes;
    t->embed_bytes += one->embed_bytes;
    t->demand_bytes += one->demand_bytes;
    t->prefetch_bytes += one->prefetch_bytes;
    t->wasted_bytes += one->wasted_bytes;
    t->expert_items += one->expert_items;
}

void flow_account(struct flow *f, enum k3_phase phase, uint32_t rows,
                  const struct flow_counters *a, const struct flow_counters *b)
{
    f->last = (struct k3_totals){
        .passes = 1,
        .rows = rows,
        .ns = b->ns - a->ns,
        .wait_trunk_ns = b->wait_trunk_ns - a->wait_trunk_ns,
        .wait_expert_ns = b->wait_expert_ns - a->wait_expert_ns,
        .wait_embed_ns = b->wait_embed_ns - a->wait_embed_ns,
        .idle_ns = b->idle_ns - a->idle_ns,
        .all_idle_ns = b->all_idle_ns - a->all_idle_ns,
        .trunk_bytes = b->trunk_bytes - a->trunk_bytes,
        .embed_bytes = b->embed_bytes - a->embed_bytes,
        .demand_bytes = b->experts.demand_bytes - a->experts.demand_bytes,
        .prefetch_bytes = b->experts.prefetch_bytes - a->experts.prefetch_bytes,
        .wasted_bytes = b->experts.wasted_bytes - a->experts.wasted_bytes,
        .expert_items = b->expert_items - a->expert_items,
    };
    f->last_phase = phase;
    const struct k3_totals *t = &f->last;
    add(&f->totals[phase], t);
    k3_prefetch_pass(
        f, (double)(t->ns - t->wait_trunk_ns - t->wait_expert_ns) / 1e9,
        k3_read_bytes(t), t->wasted_bytes);
}

uint64_t k3_read_bytes(const struct k3_totals *t)
{
    return t->trunk_bytes + t->embed_bytes + t->demand_bytes +
           t->prefetch_bytes + t->wasted_bytes;
}

void flow_quiesce(struct flow *f)
{
    struct stream_stats stats;
    uint64_t used = f->plan.resident_payload_bytes, read = 0;
    stream_quiesce(f->stream);
    f->quiet = true;
    stream_stats(f->stream, &stats);
    for (int c = 0; c < READ_CLASSES; c++)
        read += stats.payload_bytes[c];
    for (int i = 0; i < K3_PHASES; i++)
        used += k3_read_bytes(&f->totals[i]);
    if (read > used) /* a failed pass may count more than was read */
        f->totals[f->last_phase].wasted_bytes += read - used;
}

void k3_quiesce(struct k3 *k)
{
    k3_say(k, SAID_QUIESCE, 0, 0, NULL);
    flow_quiesce(&k->flow);
    k3_gather_machines(k);
}

const struct k3_layer_totals *k3_layers(const struct k3 *k,
                                        enum k3_phase phase)
{
    return k->flow.watch.layer[phase];
}

uint32_t k3_kernels_count(void)
{
    return K3_KERNELS;
}

const struct k3_kernel_totals *k3_kernels(const struct k3 *k,
                                          enum k3_phase phase)
{
    return k->flow.watch.kernel[phase];
}

/* ---- names ---- */

/* "block_sparse_moe.shared_experts.up_proj.weight" is "shared up_proj". */
static void short_name(char out[K3_NAME_BYTES], enum tensor_role role)
{
    static const char *const left_out[] = { "language_model.", "model.",
                                            "self_attn.", "mlp.",
                                            "block_sparse_moe." };
    const char *name = tensor_suffix(role);
    const char *shared = "";
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (!strncmp(name, left_out[i], strlen(left_out[i])))
            name += strlen(left_out[i]);
    if (!strncmp(name, "shared_experts.", 15)) {
        name += 15;
        shared = "shared ";
    }
    size_t n = strlen(name);
    if (n > 7 && !strcmp(name + n - 7, ".weight"))
        n -= 7;
    if (role == T_ROUTER) {
        name = "router";
        n = 6;
    }
    snprintf(out, K3_NAME_BYTES, "%s%.*s", shared, (int)n, name);
}

void k3_kernel_name(char out[K3_NAME_BYTES], uint32_t kernel)
{
    static const char *const others[K3_KERNELS - T_COUNT] = {
        "residual mix", "recurrence", "attend", "route", "experts", "reduce",
        "prefetch", "gather",
    };
    if (kernel < T_COUNT)
        short_name(out, (enum tensor_role)kernel);
    else
        snprintf(out, K3_NAME_BYTES, "%s",
                 kernel < K3_KERNELS ? others[kernel - T_COUNT] : "?");
}

int32_t k3_tile_name(char out[K3_NAME_BYTES], const struct tiles *t,
                     uint32_t tile)
{
    const struct tile_piece *piece = tiles_first_piece(t, tile);
    if (tiles_hold_vectors(t, tile))
        snprintf(out, K3_NAME_BYTES, "vectors");
    else
        short_name(out, (enum tensor_role)piece->role);
    return piece->layer;
}

uint64_t flow_decoded_bytes(const struct flow *f, const struct k3_totals *t)
{
    double trunk = f->trunk_factor * (double)t->trunk_bytes;
    double experts = f->expert_factor *
                     (double)(t->demand_bytes + t->prefetch_bytes);
    return t->embed_bytes + (uint64_t)(trunk + experts + 0.5);
}

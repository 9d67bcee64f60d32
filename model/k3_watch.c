/* k3_watch.c - where the time of a pass goes: by kernel, by layer, by wait,
 * and what passes did. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3_guess.h"
#include "model/k3_internal.h"

int k3_watch_open(struct k3 *k)
{
    struct watch *w = &k->watch;
    w->times = calloc(config_moe_layers(&k->c) + 1, sizeof *w->times);
    bool all = w->times != NULL;
    for (int i = 0; i < K3_PHASES; i++) {
        w->layer[i] = calloc(k->c.layers + 1, sizeof *w->layer[i]);
        w->kernel[i] = calloc(K3_KERNELS, sizeof *w->kernel[i]);
        all = all && w->layer[i] && w->kernel[i];
    }
    return all ? 0 : -ENOMEM;
}

void k3_watch_close(struct k3 *k)
{
    free(k->watch.times);
    for (int i = 0; i < K3_PHASES; i++) {
        free(k->watch.layer[i]);
        free(k->watch.kernel[i]);
    }
}

void k3_note(struct k3 *k, uint8_t kernel, uint32_t layer, int64_t begin_ns)
{
    struct journal_event e = { .begin_ns = begin_ns,
                               .end_ns = stream_clock_ns(),
                               .object = layer,
                               .kind = JOURNAL_KERNEL,
                               .value = kernel };
    struct k3_kernel_totals *t = &k->watch.kernel[k->watch.phase][kernel];
    t->ns += e.end_ns - begin_ns;
    t->calls++;
    journal_add(k->o.journal, JOURNAL_COMPUTE, &e);
}

void k3_waited_expert(struct k3 *k, uint32_t layer, int64_t begin_ns)
{
    struct journal_event e = { .begin_ns = begin_ns,
                               .end_ns = stream_clock_ns(),
                               .object = layer,
                               .kind = JOURNAL_WAIT_EXPERT };
    k->wait_expert_ns += e.end_ns - begin_ns;
    journal_add(k->o.journal, JOURNAL_COMPUTE, &e);
}

static void look(struct k3 *k)
{
    struct watch *w = &k->watch;
    w->ns = stream_clock_ns();
    w->wait_trunk_ns = stream_hold_wait_ns(k->stream);
    w->wait_expert_ns = k->wait_expert_ns;
    w->trunk_bytes = k->trunk_bytes;
    if (k->fetch)
        w->experts = fetch_counts(k->fetch);
}

void k3_watch_pass(struct k3 *k, enum k3_phase phase)
{
    k->watch.phase = phase;
    memset(k->watch.times, 0,
           (config_moe_layers(&k->c) + 1) * sizeof *k->watch.times);
    look(k);
}

static uint32_t us(int64_t ns)
{
    return (uint32_t)(ns / 1000);
}

void k3_watch_mark(struct k3 *k, uint32_t layer, bool mlp)
{
    struct watch *w = &k->watch, was = *w;
    struct k3_layer_totals *t = &w->layer[w->phase][layer];
    look(k);
    int64_t trunk = w->wait_trunk_ns - was.wait_trunk_ns;
    int64_t expert = w->wait_expert_ns - was.wait_expert_ns;
    int64_t compute = w->ns - was.ns - trunk - expert;
    t->wait_trunk_ns += trunk;
    t->wait_expert_ns += expert;
    *(mlp ? &t->mlp_ns : &t->attention_ns) += compute;
    t->trunk_bytes += w->trunk_bytes - was.trunk_bytes;
    t->expert_bytes += w->experts.demand_bytes - was.experts.demand_bytes +
                       w->experts.guess_bytes - was.experts.guess_bytes;
    t->requests += w->experts.requests - was.experts.requests;
    t->loads += w->experts.loads - was.experts.loads;
    t->guess_hits += w->experts.guess_hits - was.experts.guess_hits;
    t->late += w->experts.late - was.experts.late;
    if (layer < k->c.first_dense || layer == k->c.layers)
        return;
    struct k3_moe_times *now = &w->times[layer - k->c.first_dense];
    now->wait_trunk_us += us(trunk);
    now->wait_expert_us += us(expert);
    *(mlp ? &now->experts_us : &now->attention_us) += us(compute);
}

/* ---- what passes did ---- */

struct k3_mark k3_mark(const struct k3 *k)
{
    struct k3_mark m = {
        .ns = stream_now_ns(k->stream),
        .wait_trunk_ns = stream_hold_wait_ns(k->stream),
        .wait_expert_ns = k->wait_expert_ns,
        .idle_ns = stream_idle_ns(k->stream), .trunk_bytes = k->trunk_bytes,
        .embed_bytes = k->embed_bytes, .expert_items = k->expert_items,
    };
    if (k->fetch)
        m.experts = fetch_counts(k->fetch);
    return m;
}

static void add(struct k3_totals *t, const struct k3_totals *one)
{
    t->passes += one->passes;
    t->rows += one->rows;
    t->ns += one->ns;
    t->wait_trunk_ns += one->wait_trunk_ns;
    t->wait_expert_ns += one->wait_expert_ns;
    t->idle_ns += one->idle_ns;
    t->trunk_bytes += one->trunk_bytes;
    t->embed_bytes += one->embed_bytes;
    t->demand_bytes += one->demand_bytes;
    t->guess_bytes += one->guess_bytes;
    t->wasted_bytes += one->wasted_bytes;
    t->expert_items += one->expert_items;
}

void k3_account(struct k3 *k, enum k3_phase phase, uint32_t rows,
                const struct k3_mark *a, const struct k3_mark *b)
{
    k->last = (struct k3_totals){
        .passes = 1, .rows = rows, .ns = b->ns - a->ns,
        .wait_trunk_ns = b->wait_trunk_ns - a->wait_trunk_ns,
        .wait_expert_ns = b->wait_expert_ns - a->wait_expert_ns,
        .idle_ns = b->idle_ns - a->idle_ns,
        .trunk_bytes = b->trunk_bytes - a->trunk_bytes,
        .embed_bytes = b->embed_bytes - a->embed_bytes,
        .demand_bytes = b->experts.demand_bytes - a->experts.demand_bytes,
        .guess_bytes = b->experts.guess_bytes - a->experts.guess_bytes,
        .wasted_bytes = b->experts.wasted_bytes - a->experts.wasted_bytes,
        .expert_items = b->expert_items - a->expert_items,
    };
    k->last_phase = phase;
    const struct k3_totals *t = &k->last;
    add(&k->totals[phase], t);
    k3_guess_pass(k, (double)(t->ns - t->wait_trunk_ns - t->wait_expert_ns) /
                         1e9,
                  k3_read_bytes(t), t->wasted_bytes);
}

uint64_t k3_read_bytes(const struct k3_totals *t)
{
    return t->trunk_bytes + t->embed_bytes + t->demand_bytes +
           t->guess_bytes + t->wasted_bytes;
}

void k3_finish(struct k3 *k)
{
    struct stream_stats stats;
    uint64_t used = k->plan.resident_payload_bytes, read = 0;
    stream_rest(k->stream);
    k->finished = true;
    stream_stats(k->stream, &stats);
    for (int c = 0; c < READ_CLASSES; c++)
        read += stats.payload_bytes[c];
    for (int i = 0; i < K3_PHASES; i++)
        used += k3_read_bytes(&k->totals[i]);
    if (read > used) /* a failed pass asked for more than it got */
        k->totals[k->last_phase].wasted_bytes += read - used;
}

const struct k3_layer_totals *k3_layers(const struct k3 *k,
                                        enum k3_phase phase)
{
    return k->watch.layer[phase];
}

uint32_t k3_kernels_count(void)
{
    return K3_KERNELS;
}

const struct k3_kernel_totals *k3_kernels(const struct k3 *k,
                                          enum k3_phase phase)
{
    return k->watch.kernel[phase];
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
        "guess",
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
    const struct tile_piece *piece = &t->piece[t->first_piece[tile]];
    if (tiles_small((enum tensor_role)piece->role))
        snprintf(out, K3_NAME_BYTES, "vectors");
    else
        short_name(out, (enum tensor_role)piece->role);
    return piece->layer;
}

/* simulate.c - the engine's passes, with time instead of numbers. */
#include <errno.h>

#include "model/k3/prefetch.h"
#include "model/k3/rates.h"
#include "model/sim/simulate_internal.h"

#define LONG_NS 1e15 /* 11 days */

/* ---- compute ---- */

static void compute_for(struct sim *s, double ns)
{
    s->owed_ns += ns;
    /* A line through two phases may be steep. */
    int64_t whole = s->owed_ns < LONG_NS ? (int64_t)s->owed_ns
                                         : (int64_t)LONG_NS;
    s->owed_ns = whole < (int64_t)LONG_NS ? s->owed_ns - (double)whole : 0;
    s->compute_ns += whole;
    stream_compute(s->flow.stream, whole);
}

/* A share of what a kernel takes in a pass. */
static void compute_kernel(struct sim *s, uint32_t kernel, double share)
{
    if (kernel != K3_NO_KERNEL)
        compute_for(s, share * simulate_ns(s->cost, COST_KERNEL, kernel,
                                           s->pass->rows));
}

/* What is in no kernel, spread over the layers and the head. */
static void compute_other(struct sim *s)
{
    compute_for(s, simulate_ns(s->cost, COST_OTHER, 0, s->pass->rows) /
                       (s->c.layers + 1));
}

/* ---- other processes ---- */

/* A meeting, and what all have of `rows` rows of floats, of which we have the
 * columns `own`. No link is used for more than one way at a time. */
static void exchange(struct sim *s, double rows, uint32_t width,
                     struct row_range own)
{
    const struct k3_network *n = s->k3.network;
    uint32_t rounds = 1;
    if (!n)
        return;
    for (uint32_t parts = s->k3.owned->cuts.parts; parts > 1;
         parts = (parts + 1) / 2)
        rounds++;
    double bytes = rows * (width - (own.end - own.begin)) * sizeof(float);
    int64_t ns = rounds * n->latency_ns +
                 (int64_t)(bytes / n->bytes_per_s * 1e9);
    s->network_ns += ns;
    stream_compute(s->flow.stream, ns);
}

static int experts_down(void *arg, const struct step *step,
                        const struct expert_batch *b)
{
    struct sim *s = arg;
    (void)step;
    exchange(s, b->rows, s->c.moe_inter,
             owned_expert_rows(s->k3.owned, 0, &s->c));
    return 0;
}

/* ---- the steps ---- */

/* Of the time that a kernel's weights take by their number, what these take:
 * coded ones are decoded, and the costs may be of either kind. */
static double decoding(const struct sim *s, const struct step *step,
                       const struct tile_piece *piece)
{
    if (!s->k3.decode)
        return 1;
    double coded = decode_time_of(s->k3.decode, step_decodes_first(step),
                                  s->pass->rows);
    return (piece->block ? coded : 1) / (s->cost->coded ? coded : 1);
}

static int do_piece(void *arg, const struct step *step,
                    const struct tile_piece *piece, const uint8_t *frame)
{
    struct sim *s = arg;
    (void)frame;
    if (step->kernel != K3_NO_KERNEL)
        compute_kernel(s, step->kernel,
                       decoding(s, step, piece) * (double)piece->rows *
                           (double)piece->row_bytes /
                           (double)s->cost->kernel_bytes[step->kernel]);
    return 0;
}

/* The rows' choices, from the trace. */
static void choose(struct sim *s, uint32_t moe)
{
    uint32_t top_k = s->c.top_k;
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        const uint16_t *from = passes_ids(s->passes, r, moe);
        uint32_t *ids = s->ids + (size_t)r * top_k;
        for (uint32_t q = 0; q < top_k; q++)
            ids[q] = from[q];
        cache_row(s->flow.cache, ids, top_k,
                  passes_facts(s->passes)->info.flags & TRACE_RANKED,
                  s->pass->row[r].age);
    }
}

static int do_step(void *arg, const struct step *step)
{
    struct sim *s = arg;
    switch (step->op) {
    case STEP_CHOOSE:
        choose(s, (uint32_t)step->layer - s->c.first_dense);
        return 0;
    case STEP_ACTIVATE: /* in the time of the product that follows */
        return 0;
    case STEP_GATHER:
        exchange(s, step->role == T_EMBED /* rows, not columns */
                        ? (double)s->pass->rows * s->c.hidden / s->c.vocab
                        : s->pass->rows, step->width, step->own);
        return 0;
    case STEP_PREFETCH:
        if (!config_is_dense(&s->c, (uint32_t)step->layer))
            compute_kernel(s, K3_PREFETCH, 1.0 / config_moe_layers(&s->c));
        return 0;
    }
    if (step->kernel != K3_NO_KERNEL)
        compute_kernel(s, step->kernel,
                       1.0 / s->cost->kernel_steps[step->kernel]);
    if (step->op == STEP_MIX && step->vector[0] != T_ATTN_RES_NORM)
        compute_other(s);
    return 0;
}

static int embedded(void *arg, uint32_t row, const uint8_t *bytes)
{
    (void)arg;
    (void)row;
    (void)bytes;
    return 0;
}

static void requested(void *arg, const struct step *step)
{
    (void)arg;
    (void)step;
}

static int experts(void *arg, const struct step *step,
                   const struct expert_batch *b)
{
    struct sim *s = arg;
    uint32_t done = 0;
    (void)step;
    for (uint32_t i = 0; i < b->parts; i++)
        done += b->part[i].last;
    double ours = (double)owned_expert_bytes(s->k3.owned, &s->c) /
                  (double)expert_bytes(&s->c);
    compute_for(s, ours * done *
                       simulate_ns(s->cost, COST_ITEM, 0, s->pass->rows));
    return 0;
}

static int failed(void *arg, int err, const struct step *step,
                  const struct tile_piece *piece)
{
    struct sim *s = arg;
    (void)step;
    (void)piece;
    return error_set(s->error, err, "%s: the simulation cannot go on (%s)",
                     s->o->trace,
                     err == -EDEADLK ? "compute waits and nothing is read"
                                     : "a read failed");
}

const struct flow_ops simulate_ops = {
    .piece = do_piece, .step = do_step, .embedded = embedded,
    .requested = requested,
    .experts = experts, .experts_down = experts_down, .failed = failed,
    .hold = flow_hold, .next = flow_next,
};

/* ---- a pass ---- */

static void take_rows(struct sim *s)
{
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        const struct pass_row *from = &s->pass->row[r];
        if (from->starts)
            k3_prefetch_forget(&s->flow, from->slot);
        s->row[r] = (struct k3_row){ .sequence = from->slot,
                                     .id = from->token };
    }
}

/* Ids that a pass gave: a decode row gives one, and so did the end of a prompt
 * in an earlier decode pass, as the sequence's going on tells. */
static uint64_t tokens_of(struct sim *s)
{
    uint64_t tokens = s->pass->tokens;
    for (uint32_t r = 0; r < s->pass->rows; r++) {
        const struct pass_row *row = &s->pass->row[r];
        bool prefill = row->phase == TRACE_PREFILL;
        tokens += !prefill && s->ended[row->slot] && !row->starts;
        s->ended[row->slot] = prefill && s->pass->decode;
    }
    return tokens;
}

/* Add `sign` times the bytes that the drives have been asked for. */
static void count_bytes(const struct sim *s, double bytes[DRIVES_MAX], int sign)
{
    for (uint32_t d = 0; d < s->k3.paced_count; d++)
        bytes[d] += sign * (double)virtual_bytes(s->drives, d);
}

static void sum_up(const struct sim *s, struct simulate_result *out,
                   double bytes[K3_PHASES][DRIVES_MAX])
{
    for (int p = 0; p < K3_PHASES; p++)
        for (uint32_t d = 0; d < s->k3.paced_count; d++) {
            double each = bytes[p][d] / (double)s->k3.paced[d].bytes_per_s;
            out->io_s[p] = each > out->io_s[p] ? each : out->io_s[p];
            out->io_mean_s[p] += each / s->k3.paced_count;
        }
}

int simulate_passes(struct sim *s, struct simulate_result *out)
{
    int got;
    double bytes[K3_PHASES][DRIVES_MAX] = { 0 };
    uint64_t left = passes_facts(s->passes)->passes;
    while ((got = passes_next(s->passes, &s->pass, s->error)) > 0) {
        enum k3_phase phase = s->pass->decode ? K3_DECODE : K3_PREFILL;
        int64_t computed = s->compute_ns, exchanged = s->network_ns;
        count_bytes(s, bytes[phase], -1);
        take_rows(s);
        flow_set_readahead(&s->flow, left--);
        flow_begin(&s->flow, s->row, s->pass->rows, phase);
        int err = flow_walk(&s->flow);
        if (err)
            return err;
        flow_end(&s->flow);
        out->compute_s[phase] += (double)(s->compute_ns - computed) / 1e9;
        out->network_s[phase] += (double)(s->network_ns - exchanged) / 1e9;
        out->tokens += tokens_of(s);
        count_bytes(s, bytes[phase], 1);
    }
    sum_up(s, out, bytes);
    return got;
}

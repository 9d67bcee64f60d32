/* simulate.h - the passes of a trace on a virtual clock: what a machine would
 * take for them.
 *
 *     config_load -> simulate_cost_fill -> simulate_run (any number of times)
 *
 * Nothing is modelled that the engine has itself: plan, tiles, the owner's
 * order of reads, ring, fetch, cache, prefetcher and governor are its own code,
 * over drives that are numbers (sched/virtual.h). This file only walks the
 * graph in the engine's order and, where the engine would compute, lets time
 * pass. So bytes, loads and prefetches are those of a run, and seconds are
 * right as far as the cost of compute and the rate of the drives are.
 *
 * Where weights are coded, k3.decode says what decoding costs; NULL: nothing.
 *
 * Not modelled: time between passes, a drive that is slower at times, threads
 * that the reads take from compute. What prefetch `gate` would name is not in a
 * trace: it is drawn by lot from how often it was right on K3, and `perfect` is
 * a gate that always is.
 *
 * Memory  one pass and the tables of a session. Cost: about 0.2 us a chunk of
 *         1 MiB read.
 */
#ifndef MODEL_SIM_SIMULATE_H
#define MODEL_SIM_SIMULATE_H

#include <jansson.h>

#include "model/k3/k3.h"

struct simulate_cost;

/* What compute takes, from the report of a run: kernels, items of experts and
 * what is outside kernels, for prefill and decode; a pass of other rows is put
 * on the line through the two. -EBADMSG: not such a report. */
int simulate_cost_report(struct simulate_cost **out, const struct config *c,
                         const json_t *report, const char *name,
                         struct error *error);
/* The same seconds for every pass, spread over the weights by their bytes. */
int simulate_cost_seconds(struct simulate_cost **out, const struct config *c,
                          double seconds, struct error *error);
/* What a machine takes for a pass of `rows` rows that choose `items` distinct
 * experts in a layer. */
struct forecast_machine;
int simulate_cost_machine(struct simulate_cost **out, const struct config *c,
                          const struct forecast_machine *m, uint32_t rows,
                          double items, struct error *error);
/* Compute becomes `factor` times as long. */
void simulate_cost_scale(struct simulate_cost *cost, double factor);
/* Seconds of a decode pass outside experts. */
double simulate_cost_total(const struct simulate_cost *cost);
void simulate_cost_free(struct simulate_cost *cost);
/* What decoding coded weights cost in the run of the report; NULL: not known,
 * or not from a report. Valid as long as the cost. */
const struct decode_time *simulate_cost_decode(
    const struct simulate_cost *cost);

struct simulate_options {
    const char *trace;
    bool        repair;
    const struct config        *config; /* of the model the trace is of */
    const struct simulate_cost *cost;
    /* As for k3_open: memory_bytes, heap_bytes, threads, context, rows,
     * logits, sequences, drafts, policy, prefetch, pin_file, paced, layout. */
    struct k3_options k3;
    int64_t frames; /* of the cache; negative: as planned */
};

struct simulate_result {
    struct plan plan; /* expert_frames are those that were used */
    const char *policy, *prefetch;
    struct k3_totals    totals[K3_PHASES];
    struct fetch_counts experts;
    uint64_t tokens; /* that decode passes gave */
    uint64_t decoded_bytes[K3_PHASES]; /* as in k3_facts */
    uint32_t drives; /* queues of reads: 1 if all drives have parts */
    double   compute_s[K3_PHASES];
    double   network_s[K3_PHASES]; /* in gathers, with owned rows */
    /* What the drive that reads longest would take alone, and the mean of all
     * drives. */
    double   io_s[K3_PHASES], io_mean_s[K3_PHASES];
};

/* 0, or what passes_open, k3_shape_of and cache_open return. */
int simulate_run(struct simulate_result *out,
                 const struct simulate_options *options, struct error *error);

#endif

/* pass_clock.h - how long a decode pass takes, by simulation: the one clock of
 * every forecast.
 *
 * Some passes of n rows, of one sequence or each of its own, with experts
 * chosen as routing.h has it, run through simulate.h; those after the first few
 * count, since these leave ring, cache and prefetcher as every pass does.
 * Where a trace cannot hold the model (no experts, or more than 65,536), the
 * longer of reads and compute is taken.
 *
 *     pass_clock_open -> { pass_clock_run ... } -> pass_clock_close
 *
 * Threads  pass_clock_run: any number at once.
 * Errors   -ENOBUFS below the floor; -ENOMEM, and errnos of a file in memory
 *          from open.
 * Cost     of a run: 0.07 s for one row where all of K3's trunk streams.
 */
#ifndef MODEL_SIM_PASS_CLOCK_H
#define MODEL_SIM_PASS_CLOCK_H

#include "model/sim/cause.h"
#include "model/sim/simulate.h"

struct pass_clock;

struct pass_times { /* of a pass, on average */
    double   seconds, compute_s;
    double   network_s; /* gathers, with owned rows */
    double   wait_trunk_s, wait_expert_s;
    double   trunk_bytes, expert_bytes, read_bytes;
    double   distinct;   /* experts that a layer's rows chose */
    /* What the drive that reads longest would take alone, and the mean of all
     * drives. */
    double   io_s, io_mean_s;
    uint32_t drives;
    double   any_share; /* of the time, with a read on some drive */
    double   at_once;   /* drives with a read, on average over the time */
    struct plan plan;
};

/* A pass has the rows of `sequences` sequences, `each` rows a sequence. `warm`:
 * passes that do not count, at least 1. The config is the caller's and outlives
 * the clock. */
int pass_clock_open(struct pass_clock **out, const struct config *c,
                    uint32_t sequences, uint32_t each, uint32_t warm,
                    struct error *error);
/* Options as for k3_open; memory_bytes and paced are given. `error` may be
 * NULL. */
int pass_clock_run(struct pass_times *out, const struct pass_clock *t,
                   const struct k3_options *o,
                   const struct simulate_cost *cost, struct error *error);
/* What its time is spent on. */
enum cause pass_cause(const struct pass_times *t);
void pass_clock_close(struct pass_clock *t);

#endif

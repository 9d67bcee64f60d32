/* forecast.h - how many ids a second a batch of n sequences gives, for any n,
 * under one memory budget.
 *
 * More sequences share one pass over the weights, but their states take the
 * memory that would have kept weights resident. Every n gets its plan; 1, 2, 3,
 * 4, 6, 8, 12 ... and the most that fit are simulated (pass_clock.h), and the
 * best is one of these.
 *
 *     k3_shape_of -> forecast_curve -> forecast_best
 *
 * Threads  the simulations run in parallel.
 * Errors   -ENOMEM, or what pass_clock.h returns.
 * Cost     of each n a plan, below a millisecond; of those that are simulated 1
 *          ms for a small model and up to 1 s for K3.
 */
#ifndef MODEL_SIM_FORECAST_H
#define MODEL_SIM_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "model/k3/shape.h"
#include "model/sim/pass_clock.h"

/* What sluice batch plans with. Rows of prompts in a pass: many, since even a
 * few rows choose most of the experts. Bytes of heap for each position of a
 * sequence: its id, its text, its answer. */
enum { FORECAST_PROMPT_ROWS = 448, FORECAST_POSITION_HEAP = 32 };

/* What the machine does in a second. Compute takes the longer of two times:
 * weight bytes (one row) and operations (many rows), two a weight and row. */
struct forecast_machine {
    struct paced_drive drive[DRIVES_MAX];
    uint32_t drives; /* at least 1 */
    double trunk_bytes, trunk_ops;   /* bf16 */
    double expert_bytes, expert_ops; /* MXFP4 */
    uint32_t threads;
};

struct forecast {
    uint32_t sequences;
    bool     fits; /* the budget has room for their states and rows */
    bool     simulated; /* the rest is known, and is of */
    struct plan plan;
    struct pass_times pass;
    double   ids_per_s, bytes_per_id;
};

struct forecast_options {
    struct k3_options o;    /* as for k3_open; sequences, rows, logits and
                             * drafts are chosen for each n */
    uint32_t prompt_rows;   /* of a pass, beside one a sequence */
    uint32_t drafts;        /* draft rows a sequence */
    uint64_t sequence_heap; /* bytes the caller keeps for a sequence */
    bool     hits;          /* experts stay in frames, and are prefetched, as
                             * the options say; else neither */
    bool     one;           /* only the largest n is simulated */
    struct forecast_machine machine;
};

/* The options for a session with n sequences. */
struct k3_options forecast_session(const struct forecast_options *f,
                                   uint32_t n);
/* Fill curve[i] for i + 1 sequences. The shape stays the caller's. */
int forecast_curve(struct forecast *curve, uint32_t n, struct k3_shape *shape,
                   const struct config *c, const struct forecast_options *f,
                   struct error *error);
/* The index of the best of those simulated: within 2 % of the most ids a
 * second, the one with the most sequences, which reads the fewest bytes an id.
 * n: none fits. */
uint32_t forecast_best(const struct forecast *curve, uint32_t n);

/* Expected distinct experts a layer among the choices of `rows` rows, less
 * those of the most popular `kept` (0..1) of all. */
double forecast_distinct(uint32_t experts, uint32_t top_k, double rows,
                         double kept);

#endif

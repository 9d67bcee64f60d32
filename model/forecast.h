/* forecast.h - how many ids a second a batch of n sequences gives, for every n,
 * under one memory budget.
 *
 * More sequences share one pass over the weights, but their states take the
 * memory that would have kept weights resident. A pass reads the streamed trunk
 * once and the distinct experts of its rows once; it computes with all weights
 * once, or as long as the arithmetic of the rows takes; the longer of reads and
 * compute is its time.
 *
 * Distinct experts: of popularities that are log-normal, so that a fixed part
 * of the experts is wanted by everybody (policies.md 6.1). Expert frames hold
 * the most popular ones. A checkpoint of random weights has flatter choices.
 *
 *     k3_shape_of -> forecast_curve -> forecast_best
 *
 * Errors   -ENOMEM.
 * Cost     a plan for each n: below a millisecond.
 */
#ifndef MODEL_FORECAST_H
#define MODEL_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "model/k3_shape.h"

/* What sluice batch plans with: a large chunk of a prompt, as most experts are
 * read for a small one, too; and the heap that a position of a sequence takes:
 * its id, its text, its answer. */
enum { FORECAST_PROMPT_ROWS = 448, FORECAST_POSITION_HEAP = 32 };

/* What the machine does in a second; drives all together. Bytes of weights are
 * what one row computes with, operations what many rows do: two a weight and
 * row. */
struct forecast_machine {
    double drive_bytes;
    double trunk_bytes, trunk_ops;   /* bf16 */
    double expert_bytes, expert_ops; /* MXFP4 */
    uint32_t threads;
};

struct forecast {
    uint32_t sequences;
    bool     fits; /* the budget has room for their states and rows */
    struct plan plan;
    double trunk_bytes, expert_bytes; /* read in a pass */
    double distinct; /* experts a layer */
    double io_s, compute_s, pass_s;
    double ids_per_s, bytes_per_id;
};

struct forecast_options {
    struct k3_options o;    /* as for k3_open; sequences, rows, logits and
                             * drafts are chosen for each n */
    uint32_t prompt_rows;   /* of a pass, beside one a sequence */
    uint32_t drafts;        /* draft rows a sequence */
    uint64_t sequence_heap; /* bytes the caller keeps for a sequence */
    bool     hits;          /* count expert frames as hits */
    struct forecast_machine machine;
};

/* The options for a session with n sequences. */
struct k3_options forecast_session(const struct forecast_options *f,
                                   uint32_t n);
/* Fill curve[i] for i + 1 sequences. The shape stays the caller's. */
int forecast_curve(struct forecast *curve, uint32_t n, struct k3_shape *shape,
                   const struct config *c, const struct forecast_options *f);
/* The index of the best: the most sequences that come within one part in fifty
 * of the most ids a second, as what they read for an id is least. n: none
 * fits. */
uint32_t forecast_best(const struct forecast *curve, uint32_t n);

/* Expected distinct experts a layer among the choices of `rows` rows, less
 * those of the most popular `kept` (0..1) of all. */
double forecast_distinct(uint32_t experts, uint32_t top_k, double rows,
                         double kept);

#endif

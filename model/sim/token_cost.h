/* token_cost.h - what a decode token reads under a budget, and the least time
 * that takes on given drives.
 *
 *     config_load -> token_cost (as often as there are budgets)
 *
 * The time assumes what the engine is built for: reads and compute overlap, all
 * drives work at once, and the longer side is what is left. No expert hits are
 * counted, and no prefetches.
 *
 * Bytes    payload, as the report of a run counts it; without the pages around
 *          it, which are below half a percent.
 * Errors   those of k3_shape_of; -ENOBUFS below the floor, and then
 *          plan.floor_bytes is set all the same.
 * Cost     the table of tiles: some 10 ms for K3.
 */
#ifndef MODEL_SIM_TOKEN_COST_H
#define MODEL_SIM_TOKEN_COST_H

#include "model/k3/k3.h"

struct token_cost {
    struct plan plan;
    uint64_t trunk_bytes, expert_bytes, embed_bytes;
    uint64_t read_bytes;  /* the sum of these */
    uint64_t whole_bytes; /* read_bytes if nothing were resident */
    uint64_t decoded_bytes; /* what read_bytes stands for: the same, unless
                             * weights are coded */
    uint32_t packed_skip; /* coded weights that are not used, see k3_options */
    uint64_t trunk_stored_bytes, trunk_decoded_bytes; /* resident or not */
    uint32_t drives;      /* that o->paced names; 0: none, and no times */
    uint64_t drive_bytes[DRIVES_MAX];
    double   io_s;        /* the drive that takes longest */
};

/* Options as for k3_open, of which threads, context, rows, sequences, policy
 * and paced count; memory_bytes 0: the floor. */
int token_cost(struct token_cost *out, const struct config *c,
               const struct k3_options *o, struct error *error);

/* io_s for as many drives as the cost was made for, but of other rates. */
double token_io_s(const struct token_cost *t, const struct paced_drive *drive);

/* Weight bytes that the kernels of a decode token walk through, resident or
 * not: with a memory bandwidth, the least time of compute. */
uint64_t token_weight_bytes(const struct config *c);
/* What compute takes for them where nobody says otherwise: at a bandwidth that
 * eight channels of DDR4 have. */
#define TOKEN_MEMORY_BYTES 100e9 /* a second */
double token_compute_s(const struct config *c);

#endif

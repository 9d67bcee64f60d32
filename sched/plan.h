/* plan.h - divides the budget, before anything is allocated.
 *
 *     plan_make -> plan, or -ENOBUFS with plan->floor_bytes set
 *
 * The floor is what a row of every sequence needs: the program, the states,
 * scratch for these rows, the smallest ring, one layer's experts of one token
 * in staging frames, and the tiles that are always resident. What is left buys,
 * in this order: more rows a pass, a longer ring, more staging, the trunk, and
 * with the whole trunk resident, tiles kept decoded, then expert frames. A
 * resident trunk byte saves one byte a token; a byte of an expert frame saves
 * the chance that its expert is chosen, less than half on K3's traces (hits of
 * `dhd` in bench/results).
 *
 * Bytes    every size is in bytes of memory unless it says payload.
 * Errors   -ENOBUFS: the budget is below the floor.
 */
#ifndef SCHED_PLAN_H
#define SCHED_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "io/limits.h"

struct plan_tile {
    uint64_t frame_bytes, payload_bytes;
    uint64_t decoded_bytes; /* of a frame that keeps it decoded, above
                             * frame_bytes; 0: it is kept as it is read */
    uint32_t drive;
    bool     always; /* resident at every budget */
    bool     first;  /* resident before others when memory allows */
};

struct plan_input {
    uint64_t budget_bytes;
    uint64_t program_bytes; /* code, heap, tables: all that is not named here */
    uint64_t state_bytes;   /* one sequence */
    uint32_t sequences;     /* whose states must fit; at least 1 */
    uint64_t guest_bytes;   /* of another network's; 0: none */
    uint64_t scratch_bytes; /* with no row */
    uint64_t row_bytes;     /* of scratch, for each row */
    uint32_t rows;          /* max rows a pass; lowered, never refused */
    const struct plan_tile *tiles;
    uint32_t tile_count;
    uint64_t expert_frame_bytes;
    uint64_t frame_heap_bytes; /* of tables, for each expert frame */
    uint32_t expert_blocks; /* experts in the model */
    uint32_t expert_layers, top_k;
    uint64_t ring_min_bytes; /* of the ring, if it is needed */
    bool     keeps_experts; /* the cache policy keeps experts */
    uint32_t drives;
    double   rate[DRIVES_MAX]; /* bytes a second of each drive; 0: equal */
    double   expert_bytes[DRIVES_MAX]; /* of experts, that a row reads */
};

struct plan {
    uint64_t budget_bytes, floor_bytes;
    uint64_t program_bytes; /* with the tables of the expert frames */
    uint64_t guest_bytes;
    uint64_t state_bytes, scratch_bytes; /* as granted */
    uint64_t ring_bytes, resident_bytes, staging_bytes, cache_bytes;
    uint64_t total_bytes; /* the sum: <= budget */
    uint64_t streamed_payload_bytes, resident_payload_bytes; /* of a pass */
    uint32_t rows, sequences, staging_frames, expert_frames;
    uint32_t streamed_tiles;
    /* The first so many of the tiles with decoded_bytes are kept decoded. Their
     * memory is part of resident_bytes. */
    uint32_t decoded_tiles;
};

/* Fill *plan and resident[tile_count]. */
int plan_make(struct plan *plan, bool *resident,
              const struct plan_input *input);

#endif

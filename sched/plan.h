/* plan.h - one number divided over everything, before anything is allocated.
 *
 *     plan_make -> plan, or -ENOBUFS with plan->floor_bytes set
 *
 * The floor is what a row of every sequence needs: the program, the states,
 * scratch for these rows, the smallest ring, one layer's experts of one token
 * in staging frames, and the tiles that are always resident. What is left buys,
 * in this order: more rows a pass, a longer ring, more staging, the trunk, and
 * with the whole trunk resident, expert frames. A resident trunk byte saves one
 * byte a token; an expert frame saves less than half of that (policies.md 8).
 *
 * Bytes    every size is in bytes of memory unless it says payload.
 * Errors   -ENOBUFS: the budget is below the floor.
 */
#ifndef SCHED_PLAN_H
#define SCHED_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum { PLAN_DRIVES_MAX = 64 };

struct plan_tile {
    uint64_t frame_bytes, payload_bytes;
    uint32_t drive;
    bool     always; /* resident at every budget */
    bool     first;  /* resident before others when memory allows */
};

struct plan_input {
    uint64_t budget_bytes;
    uint64_t program_bytes; /* code, heap, tables: all that is not below */
    uint64_t state_bytes;   /* one sequence */
    uint32_t sequences;     /* that must fit; at least 1 */
    uint64_t scratch_bytes; /* with no row */
    uint64_t row_bytes;     /* of scratch, for each row */
    uint32_t rows;          /* most rows a pass; lowered, never refused */
    const struct plan_tile *tiles;
    uint32_t tile_count;
    uint64_t expert_frame_bytes;
    uint32_t expert_blocks; /* experts in the model */
    uint32_t expert_layers, top_k;
    uint64_t ring_least_bytes; /* the ring is not shorter, if it is needed */
    bool     keeps_experts; /* the policy uses frames beside staging */
    uint32_t drives;
    double   rate[PLAN_DRIVES_MAX]; /* relative speed of each drive; 0: equal */
    double   expert_bytes[PLAN_DRIVES_MAX]; /* what a row reads of experts */
};

struct plan {
    uint64_t budget_bytes, floor_bytes;
    uint64_t program_bytes, state_bytes, scratch_bytes; /* as granted */
    uint64_t ring_bytes, resident_bytes, staging_bytes, cache_bytes;
    uint64_t total_bytes; /* the sum: <= budget */
    uint64_t streamed_payload_bytes, resident_payload_bytes; /* of a pass */
    uint32_t rows, sequences, staging_frames, expert_frames;
    uint32_t streamed_tiles;
};

/* Fill *plan and resident[tile_count]. */
int plan_make(struct plan *plan, bool *resident,
              const struct plan_input *input);

#endif

/* heap.h - resident blocks in a binary heap, the smallest key on top. Private
 * to sched/cache/.
 *
 * For policies that evict the block with the smallest key. Members of the
 * present group are held outside the heap, so that they cannot be evicted. The
 * next heap_group puts them back with the keys they have then.
 *
 *     heap_open -> { heap_group, { heap_place, heap_left, heap_entered } } ->
 *     heap_close
 *
 * Threads one owner at a time. Errors: -ENOMEM from heap_open.
 */
#ifndef SCHED_CACHE_HEAP_H
#define SCHED_CACHE_HEAP_H

#include "sched/cache/policy.h"

struct heap {
    uint32_t blocks;
    uint64_t *key;   /* [blocks] the policy sets it, not while in the heap */
    uint32_t *block; /* [frames] the heap */
    uint32_t *place; /* [blocks] index in block, or HEAP_OUT or HEAP_HELD */
    uint32_t *held;  /* [frames] members of the last group */
    uint32_t count, held_count; /* entries of block and of held */
};

/* -ENOMEM. Call heap_close in any case. */
int  heap_open(struct heap *h, const struct cache_options *o);
void heap_close(struct heap *h);

/* Put the last group's members back, and hold the resident members of this one.
 * Their keys may change until the next heap_group. */
void heap_group(struct heap *h, const struct policy_group *g);
/* The block with the smallest key, which stays in; POLICY_BYPASS if the heap is
 * empty. */
uint32_t heap_top(const struct heap *h);

/* Functions for the table of a policy whose state begins with a struct heap.
 * heap_place admits every miss and evicts the block with the smallest key. */
uint32_t heap_place(void *state, const struct policy_group *g, uint32_t i);
void heap_entered(void *state, const struct policy_group *g, uint32_t block);
void heap_left(void *state, const struct policy_group *g, uint32_t block);
void heap_audit(const void *state, const uint32_t *frame_of);

#endif

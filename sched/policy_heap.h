/* policy_heap.h - resident blocks ordered by a key, the least on top. Private
 * to sched/.
 *
 * For policies that evict the least of some number. Members of the group at
 * hand are held outside, so they cannot be the top; the next group puts them
 * back with the keys they have then.
 *
 *     heap_open -> { heap_group, { heap_place, heap_left, heap_entered } } ->
 *     heap_close
 */
#ifndef SCHED_POLICY_HEAP_H
#define SCHED_POLICY_HEAP_H

#include "sched/policy.h"

struct heap {
    uint32_t blocks;
    uint64_t *key;   /* [blocks] the policy's to set, but not while inside */
    uint32_t *block; /* [frames] the heap */
    uint32_t *place; /* [blocks] index in block, or HEAP_OUT or HEAP_HELD */
    uint32_t *held;  /* [frames] members of the last group */
    uint32_t count, held_count;
};

/* -ENOMEM; heap_close is to be called all the same. */
int  heap_open(struct heap *h, const struct cache_options *o);
void heap_close(struct heap *h);

/* Put the last group's members back and hold those of this one that are
 * resident. From here to the next heap_group their keys may change. */
void heap_group(struct heap *h, const struct policy_group *g);
/* The block with the least key, still inside; POLICY_BYPASS when none is. */
uint32_t heap_top(const struct heap *h);

/* These stand in a policy's table as they are, where its state begins with the
 * heap. heap_place admits every miss, for the block with the least key. */
uint32_t heap_place(void *state, const struct policy_group *g, uint32_t i);
void heap_entered(void *state, const struct policy_group *g, uint32_t block);
void heap_left(void *state, const struct policy_group *g, uint32_t block);
void heap_audit(const void *state, const uint32_t *frame_of);

#endif

/* list.h - queues of blocks, as doubly linked rings in one array. Private to
 * sched/cache/.
 *
 * Node b < blocks is a block; node blocks + q is the head of queue q. A block
 * is in one queue or in none. The first of a queue is its oldest; push appends.
 *
 * Threads one owner at a time. Errors: list_open has no memory.
 */
#ifndef SCHED_CACHE_LIST_H
#define SCHED_CACHE_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct policy_list {
    uint32_t blocks;       /* nodes below it are blocks, the rest heads */
    uint32_t *next, *prev; /* [blocks + queues]; next[b] == b: in no queue */
};

/* false: no memory. Call list_free in any case. */
static inline bool list_open(struct policy_list *l, uint32_t blocks,
                             uint32_t queues)
{
    size_t nodes = (size_t)blocks + queues;
    l->blocks = blocks;
    l->next = malloc(nodes * sizeof *l->next);
    l->prev = malloc(nodes * sizeof *l->prev);
    if (!l->next || !l->prev)
        return false;
    for (uint32_t i = 0; i < nodes; i++)
        l->next[i] = l->prev[i] = i;
    return true;
}

static inline void list_free(struct policy_list *l)
{
    free(l->next);
    free(l->prev);
}

static inline void list_remove(struct policy_list *l, uint32_t block)
{
    uint32_t n = l->next[block], p = l->prev[block];
    l->next[p] = n;
    l->prev[n] = p;
    l->next[block] = l->prev[block] = block;
}

static inline void list_push(struct policy_list *l, uint32_t q, uint32_t block)
{
    uint32_t head = l->blocks + q, last = l->prev[head];
    assert(l->next[block] == block);
    l->next[last] = block;
    l->prev[block] = last;
    l->next[block] = head;
    l->prev[head] = block;
}

/* The oldest block of queue q; >= blocks if the queue is empty. list_after:
 * the next one; >= blocks after the last. */
static inline uint32_t list_first(const struct policy_list *l, uint32_t q)
{
    return l->next[l->blocks + q];
}

static inline uint32_t list_after(const struct policy_list *l, uint32_t block)
{
    return l->next[block];
}

static inline bool list_has(const struct policy_list *l, uint32_t block)
{
    return l->next[block] != block;
}

#endif

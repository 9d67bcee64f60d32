/* lru: evict the least recently used block. fifo: evict the block admitted
 * first. Both admit every miss.
 *
 * Decode visits the layers in a circle. With fewer frames than one token uses
 * (1,472 for K3) each block is evicted just before its next use. Both are here
 * for comparison.
 */
#include <errno.h>

#include "sched/cache/list.h"
#include "sched/cache/policy.h"

struct lru {
    struct policy_list list; /* one queue, the first is evicted next */
};

static void lru_close(void *state)
{
    struct lru *s = state;
    list_free(&s->list);
    free(s);
}

static int lru_open(void **state, const struct cache_options *o)
{
    struct lru *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    return list_open(&s->list, o->layers * o->experts, 1) ? 0 : -ENOMEM;
}

static void lru_hit(void *state, const struct policy_group *g, uint32_t block)
{
    (void)g;
    struct lru *s = state;
    list_remove(&s->list, block);
    list_push(&s->list, 0, block);
}

static uint32_t lru_place(void *state, const struct policy_group *g,
                          uint32_t i)
{
    (void)i;
    struct lru *s = state;
    if (g->free)
        return POLICY_FREE;
    uint32_t b = list_first(&s->list, 0);
    while (b < s->list.blocks && policy_member(g, b))
        b = list_after(&s->list, b);
    return b < s->list.blocks ? b : POLICY_BYPASS;
}

static void lru_entered(void *state, const struct policy_group *g,
                        uint32_t block)
{
    (void)g;
    struct lru *s = state;
    list_push(&s->list, 0, block);
}

static void lru_left(void *state, const struct policy_group *g,
                     uint32_t block)
{
    (void)g;
    struct lru *s = state;
    list_remove(&s->list, block);
}

static void lru_audit(const void *state, const uint32_t *frame_of)
{
    const struct lru *s = state;
    for (uint32_t b = 0; b < s->list.blocks; b++)
        assert(list_has(&s->list, b) == (frame_of[b] != CACHE_NONE));
}

const struct policy policy_lru = {
    .name = "lru",
    .about = "evict the least recently used of all layers",
    .open = lru_open,
    .close = lru_close,
    .hit = lru_hit,
    .place = lru_place,
    .entered = lru_entered,
    .left = lru_left,
    .audit = lru_audit,
};

const struct policy policy_fifo = {
    .name = "fifo",
    .about = "evict the first admitted of all layers",
    .open = lru_open,
    .close = lru_close,
    .place = lru_place,
    .entered = lru_entered,
    .left = lru_left,
    .audit = lru_audit,
};

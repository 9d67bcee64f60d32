/* lfu: evict the block with the fewest uses since open; of equals, the least
 * recently used. Every miss is admitted. Counts survive eviction.
 */
#include <errno.h>
#include <stdlib.h>

#include "sched/cache/heap.h"

#define LFU_COUNT_MAX ((1u << 24) - 1) /* key: 24 bits of count, 40 of clock */

struct lfu {
    struct heap heap; /* first; its key: count, then time of the last use */
    uint64_t clock;   /* uses so far */
};

static void lfu_close(void *state)
{
    struct lfu *s = state;
    heap_close(&s->heap);
    free(s);
}

static int lfu_open(void **state, const struct cache_options *o)
{
    struct lfu *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    return heap_open(&s->heap, o);
}

static void lfu_group(void *state, const struct policy_group *g)
{
    struct lfu *s = state;
    heap_group(&s->heap, g);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t block = g->layer * g->experts + g->uses[i].expert;
        uint64_t count = (s->heap.key[block] >> 40) + g->uses[i].uses;
        if (count > LFU_COUNT_MAX)
            count = LFU_COUNT_MAX;
        s->heap.key[block] = count << 40 | ++s->clock;
    }
}

const struct policy policy_lfu = {
    .name = "lfu",
    .about = "evict the least often used since the start",
    .open = lfu_open,
    .close = lfu_close,
    .group = lfu_group,
    .place = heap_place,
    .entered = heap_entered,
    .left = heap_left,
    .audit = heap_audit,
};

/* lru2: evict the block whose second last use is oldest. A block without a
 * second last use goes before the others, the oldest last use first. Every miss
 * is admitted. History survives eviction.
 */
#include <errno.h>
#include <stdlib.h>

#include "sched/cache/heap.h"

#define LRU2_TWICE (1ull << 63) /* set in the key of a block used twice */

struct lru2 {
    struct heap heap; /* first; key: the second last use, else the last */
    uint64_t clock;    /* uses so far */
    uint64_t *last;    /* [blocks] 0 never */
};

static void lru2_close(void *state)
{
    struct lru2 *s = state;
    heap_close(&s->heap);
    free(s->last);
    free(s);
}

static int lru2_open(void **state, const struct cache_options *o)
{
    struct lru2 *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->last = calloc((size_t)o->layers * o->experts, sizeof *s->last);
    return s->last ? heap_open(&s->heap, o) : -ENOMEM;
}

static void lru2_group(void *state, const struct policy_group *g)
{
    struct lru2 *s = state;
    heap_group(&s->heap, g);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t block = g->layer * g->experts + g->uses[i].expert;
        uint64_t before = s->last[block];
        s->last[block] = ++s->clock;
        s->heap.key[block] = before ? LRU2_TWICE | before : s->clock;
    }
}

const struct policy policy_lru2 = {
    .name = "lru2",
    .about = "evict the one whose second last use is oldest",
    .open = lru2_open,
    .close = lru2_close,
    .group = lru2_group,
    .place = heap_place,
    .entered = heap_entered,
    .left = heap_left,
    .audit = heap_audit,
};

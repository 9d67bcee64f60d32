/* min: Belady's optimum, which knows the future. Evict the block whose next use
 * is latest; refuse a miss whose own next use is later still. It needs a trace,
 * and no policy has more hits.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "sched/cache/heap.h"

struct min {
    struct heap heap; /* first; key: the smaller, the later the next use */
    const uint32_t *next_use;
    uint64_t next_uses, clock; /* uses so far */
};

static void min_close(void *state)
{
    struct min *s = state;
    heap_close(&s->heap);
    free(s);
}

static int min_open(void **state, const struct cache_options *o)
{
    struct min *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->next_use = o->next_use;
    s->next_uses = o->next_uses;
    return heap_open(&s->heap, o);
}

static void min_group(void *state, const struct policy_group *g)
{
    struct min *s = state;
    assert(g->n <= s->next_uses - s->clock);
    heap_group(&s->heap, g);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t block = g->layer * g->experts + g->uses[i].expert;
        uint32_t sooner = UINT32_MAX - s->next_use[s->clock++];
        s->heap.key[block] = (uint64_t)sooner << 32 | block;
    }
}

static uint32_t min_place(void *state, const struct policy_group *g,
                          uint32_t i)
{
    struct min *s = state;
    if (g->free)
        return POLICY_FREE;
    uint32_t block = g->layer * g->experts + g->uses[i].expert;
    uint32_t top = heap_top(&s->heap);
    if (top == POLICY_BYPASS || s->heap.key[top] > s->heap.key[block])
        return POLICY_BYPASS;
    return top;
}

const struct policy policy_min = {
    .name = "min",
    .about = "Belady's optimum, which knows the future: no policy hits more",
    .offline = true,
    .open = min_open,
    .close = min_close,
    .group = min_group,
    .place = min_place,
    .entered = heap_entered,
    .left = heap_left,
    .audit = heap_audit,
};

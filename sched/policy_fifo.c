/* fifo: the block that was admitted longest ago goes; every miss is admitted.
 */
#include <errno.h>

#include "sched/policy.h"
#include "sched/policy_list.h"

struct fifo {
    struct policy_list list; /* one queue, oldest first */
};

static void fifo_close(void *state)
{
    struct fifo *s = state;
    list_free(&s->list);
    free(s);
}

static int fifo_open(void **state, const struct cache_options *o)
{
    struct fifo *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    return list_open(&s->list, o->layers * o->experts, 1) ? 0 : -ENOMEM;
}

static uint32_t fifo_place(void *state, const struct policy_group *g,
                           uint32_t i)
{
    (void)i;
    struct fifo *s = state;
    if (g->free)
        return POLICY_FREE;
    uint32_t b = list_first(&s->list, 0);
    while (b < s->list.blocks && policy_member(g, b))
        b = list_after(&s->list, b);
    return b < s->list.blocks ? b : POLICY_BYPASS;
}

static void fifo_entered(void *state, const struct policy_group *g,
                         uint32_t block)
{
    (void)g;
    struct fifo *s = state;
    list_push(&s->list, 0, block);
}

static void fifo_left(void *state, const struct policy_group *g,
                      uint32_t block)
{
    (void)g;
    struct fifo *s = state;
    list_remove(&s->list, block);
}

static void fifo_audit(const void *state, const uint32_t *frame_of)
{
    const struct fifo *s = state;
    for (uint32_t b = 0; b < s->list.blocks; b++)
        assert(list_has(&s->list, b) == (frame_of[b] != CACHE_NONE));
}

const struct policy policy_fifo = {
    .name = "fifo",
    .about = "evict the first admitted of all layers",
    .open = fifo_open,
    .close = fifo_close,
    .place = fifo_place,
    .entered = fifo_entered,
    .left = fifo_left,
    .audit = fifo_audit,
};

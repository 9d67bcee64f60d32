/* static-pin: keep the blocks that a recorded trace used most, from their first
 * read on, and no others. Measure it with prompts that are not in that trace.
 */
#include <errno.h>
#include <stdlib.h>

#include "sched/cache/policy.h"
#include "sched/trace/trace.h"

struct pin {
    bool *pinned; /* [blocks] */
};

struct pin_count {
    uint32_t block;
    uint64_t uses;
};

static int by_uses(const void *a, const void *b)
{
    const struct pin_count *x = a, *y = b;
    if (x->uses != y->uses)
        return x->uses > y->uses ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* Count the uses of the trace by block. -EINVAL: another model's shape. */
static int count_uses(struct pin_count *counts, const struct cache_options *o)
{
    struct trace *t;
    struct trace_fault fault;
    struct trace_record r;
    int error = trace_open(&t, o->pin_file, false, &fault);
    if (error)
        return error;
    const struct trace_info *i = trace_info(t);
    error = i->layers == o->layers && i->experts == o->experts ? 1 : -EINVAL;
    while (error > 0 && (error = trace_next(t, &r)) > 0)
        for (uint32_t m = 0; m < i->layers; m++)
            for (uint32_t k = 0; k < i->top_k; k++)
                counts[m * i->experts + r.ids[m * i->top_k + k]].uses++;
    trace_close(t);
    return error;
}

static void pin_close(void *state)
{
    struct pin *s = state;
    free(s->pinned);
    free(s);
}

static int pin_open(void **state, const struct cache_options *o)
{
    uint32_t blocks = o->layers * o->experts;
    if (!o->pin_file)
        return -EINVAL;
    struct pin *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->pinned = calloc(blocks, sizeof *s->pinned);
    struct pin_count *counts = calloc(blocks, sizeof *counts);
    int error = s->pinned && counts ? 0 : -ENOMEM;
    for (uint32_t b = 0; !error && b < blocks; b++)
        counts[b].block = b;
    if (!error)
        error = count_uses(counts, o);
    if (!error) {
        qsort(counts, blocks, sizeof *counts, by_uses);
        for (uint32_t i = 0; i < o->frames && i < blocks; i++)
            s->pinned[counts[i].block] = counts[i].uses > 0;
    }
    free(counts);
    return error;
}

static uint32_t pin_place(void *state, const struct policy_group *g,
                          uint32_t i)
{
    struct pin *s = state;
    uint32_t block = g->layer * g->experts + g->uses[i].expert;
    return s->pinned[block] ? POLICY_FREE : POLICY_BYPASS;
}

const struct policy policy_static_pin = {
    .name = "static-pin",
    .about = "keep what a recorded trace used most, and nothing else",
    .open = pin_open,
    .close = pin_close,
    .place = pin_place,
};

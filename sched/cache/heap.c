#include "sched/cache/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define HEAP_OUT  UINT32_MAX
#define HEAP_HELD (UINT32_MAX - 1)

int heap_open(struct heap *h, const struct cache_options *o)
{
    size_t frames = o->frames ? o->frames : 1;
    h->blocks = o->layers * o->experts;
    h->key = calloc(h->blocks, sizeof *h->key);
    h->place = malloc(h->blocks * sizeof *h->place);
    h->block = malloc(frames * sizeof *h->block);
    h->held = malloc(frames * sizeof *h->held);
    if (!h->key || !h->place || !h->block || !h->held)
        return -ENOMEM;
    for (uint32_t b = 0; b < h->blocks; b++)
        h->place[b] = HEAP_OUT;
    return 0;
}

void heap_close(struct heap *h)
{
    free(h->key);
    free(h->place);
    free(h->block);
    free(h->held);
}

static void put(struct heap *h, uint32_t i, uint32_t block)
{
    h->block[i] = block;
    h->place[block] = i;
}

/* Put `block` into the hole at `i`, sifting up, then down. */
static void settle(struct heap *h, uint32_t i, uint32_t block)
{
    uint64_t key = h->key[block];
    while (i > 0 && h->key[h->block[(i - 1) / 2]] > key) {
        put(h, i, h->block[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count &&
            h->key[h->block[child + 1]] < h->key[h->block[child]])
            child++;
        if (h->key[h->block[child]] >= key)
            break;
        put(h, i, h->block[child]);
        i = child;
    }
    put(h, i, block);
}

static void take_out(struct heap *h, uint32_t block)
{
    uint32_t i = h->place[block];
    assert(h->block[i] == block);
    uint32_t last = h->block[--h->count];
    if (last != block)
        settle(h, i, last);
    h->place[block] = HEAP_OUT;
}

/* Keep a member outside the heap. */
static void hold(struct heap *h, uint32_t block)
{
    assert(h->place[block] == HEAP_OUT);
    h->held[h->held_count++] = block;
    h->place[block] = HEAP_HELD;
}

void heap_group(struct heap *h, const struct policy_group *g)
{
    while (h->held_count > 0) {
        uint32_t block = h->held[--h->held_count];
        settle(h, h->count++, block);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        if (!g->hit[i])
            continue;
        uint32_t block = g->layer * g->experts + g->uses[i].expert;
        take_out(h, block);
        hold(h, block);
    }
}

uint32_t heap_top(const struct heap *h)
{
    return h->count ? h->block[0] : POLICY_BYPASS;
}

uint32_t heap_place(void *state, const struct policy_group *g, uint32_t i)
{
    (void)i;
    return g->free ? POLICY_FREE : heap_top(state);
}

void heap_entered(void *state, const struct policy_group *g, uint32_t block)
{
    (void)g;
    hold(state, block);
}

void heap_left(void *state, const struct policy_group *g, uint32_t block)
{
    (void)g;
    take_out(state, block);
}

void heap_audit(const void *state, const uint32_t *frame_of)
{
    const struct heap *h = state;
    for (uint32_t b = 0; b < h->blocks; b++)
        assert((h->place[b] != HEAP_OUT) == (frame_of[b] != CACHE_NONE));
    for (uint32_t i = 1; i < h->count; i++)
        assert(h->key[h->block[(i - 1) / 2]] <= h->key[h->block[i]]);
    for (uint32_t i = 0; i < h->count; i++)
        assert(h->place[h->block[i]] == i);
}

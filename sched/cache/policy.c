#include "sched/cache/policy.h"

#include <stddef.h>

/* Shellsort, since qsort may allocate. */
void policy_sort(const struct policy_group *g, policy_before_fn *before,
                 const void *state)
{
    static const uint32_t gaps[] = { 301, 132, 57, 23, 10, 4, 1 };
    for (size_t pass = 0; pass < sizeof gaps / sizeof *gaps; pass++) {
        uint32_t gap = gaps[pass];
        for (uint32_t i = gap; i < g->n; i++) {
            uint32_t x = g->order[i], k = i;
            for (; k >= gap && before(state, g, x, g->order[k - gap]); k -= gap)
                g->order[k] = g->order[k - gap];
            g->order[k] = x;
        }
    }
}

static bool better_rank(const void *state, const struct policy_group *g,
                        uint32_t i, uint32_t k)
{
    (void)state;
    if (g->uses[i].rank != g->uses[k].rank)
        return g->uses[i].rank < g->uses[k].rank;
    return i < k;
}

static bool worse_rank(const void *state, const struct policy_group *g,
                       uint32_t i, uint32_t k)
{
    (void)state;
    if (g->uses[i].rank != g->uses[k].rank)
        return g->uses[i].rank > g->uses[k].rank;
    return i < k;
}

void policy_order_by_rank(const struct policy_group *g, bool best_first)
{
    policy_sort(g, best_first ? better_rank : worse_rank, NULL);
}

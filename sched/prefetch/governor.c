#include "sched/prefetch/governor.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct governor {
    uint32_t layers;
    uint64_t read_bytes, wasted_bytes;
    float all[GOVERNOR_WIDTH_MAX];         /* by rank, mean over the layers */
    float precision[][GOVERNOR_WIDTH_MAX]; /* [layers] negative: no result */
};

int governor_open(struct governor **out, uint32_t layers)
{
    struct governor *g =
        malloc(sizeof *g + (size_t)layers * sizeof *g->precision);
    *out = g;
    if (!g)
        return -ENOMEM;
    g->layers = layers;
    g->read_bytes = g->wasted_bytes = 0;
    for (uint32_t i = 0; i < GOVERNOR_WIDTH_MAX; i++) {
        g->all[i] = GOVERNOR_START;
        for (uint32_t m = 0; m < layers; m++)
            g->precision[m][i] = -1;
    }
    return 0;
}

void governor_close(struct governor *g)
{
    free(g);
}

uint32_t governor_width(const struct governor_now *now)
{
    if (now->prefetch_bytes >= now->prefetch_bytes_max || !now->expert_bytes ||
        !(now->read_s > 0))
        return 0;
    double reads = now->idle_s / now->read_s;
    uint32_t width = GOVERNOR_WIDTH_MAX;
    if (reads < width)
        width = reads >= 1 ? (uint32_t)reads : 0;
    uint64_t room =
        (now->prefetch_bytes_max - now->prefetch_bytes) / now->expert_bytes;
    return room < width ? (uint32_t)room : width;
}

bool governor_allows(const struct governor *g, const struct governor_now *now,
                     uint32_t layer, uint32_t rank)
{
    assert(layer < g->layers);
    assert(rank > 0);
    if (rank > GOVERNOR_WIDTH_MAX || governor_width(now) == 0)
        return false;
    float precision = governor_precision(g, layer, rank);
    if (!now->disk_bound)
        return precision > GOVERNOR_IDLE;
    /* At worst all prefetches in flight and this one are wasted. */
    uint64_t worst = g->wasted_bytes + now->prefetch_bytes + now->expert_bytes;
    return precision > GOVERNOR_BOUND &&
           (double)worst <= GOVERNOR_WASTE * (double)g->read_bytes;
}

void governor_saw(struct governor *g, uint32_t layer, uint32_t rank,
                  bool useful)
{
    assert(layer < g->layers);
    assert(rank > 0);
    if (rank > GOVERNOR_WIDTH_MAX)
        return;
    float chosen = useful ? 1.0f : 0.0f;
    float *all = &g->all[rank - 1], *p = &g->precision[layer][rank - 1];
    if (*p < 0)
        *p = *all;
    *p += GOVERNOR_RATE * (chosen - *p);
    *all += GOVERNOR_RATE_ALL * (chosen - *all);
}

float governor_precision(const struct governor *g, uint32_t layer,
                         uint32_t rank)
{
    assert(layer < g->layers);
    assert(rank > 0 && rank <= GOVERNOR_WIDTH_MAX);
    float p = g->precision[layer][rank - 1];
    return p < 0 ? g->all[rank - 1] : p;
}

void governor_count(struct governor *g, uint64_t bytes, uint64_t wasted)
{
    g->read_bytes += bytes;
    g->wasted_bytes += wasted;
}

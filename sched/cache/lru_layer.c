/* lru-layer: lru within each layer's share of the frames, so that the circle
 * over the layers does no harm. A share below top-k keeps the best ranks of the
 * newest token: a miss whose rank is beyond the share is refused.
 */
#include <errno.h>

#include "sched/cache/list.h"
#include "sched/cache/policy.h"

struct lru_layer {
    uint32_t layers, frames, top_k;
    struct policy_list list; /* a queue a layer, oldest use first */
    uint32_t *count;         /* [layers] residents */
};

static void lru_layer_close(void *state)
{
    struct lru_layer *s = state;
    list_free(&s->list);
    free(s->count);
    free(s);
}

static int lru_layer_open(void **state, const struct cache_options *o)
{
    struct lru_layer *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->layers = o->layers;
    s->frames = o->frames;
    s->top_k = o->top_k;
    s->count = calloc(o->layers, sizeof *s->count);
    if (!s->count ||
        !list_open(&s->list, o->layers * o->experts, o->layers))
        return -ENOMEM;
    return 0;
}

/* If the group fits: worst rank first, so that the best is the newest in the
 * list. If not: best first, so that the best get the frames. */
static void lru_layer_group(void *state, const struct policy_group *g)
{
    struct lru_layer *s = state;
    bool fits = g->n <= policy_share(s->frames, s->layers, g->layer);
    policy_order_by_rank(g, !fits);
}

static void lru_layer_hit(void *state, const struct policy_group *g,
                          uint32_t block)
{
    struct lru_layer *s = state;
    list_remove(&s->list, block);
    list_push(&s->list, g->layer, block);
}

static uint32_t lru_layer_place(void *state, const struct policy_group *g,
                                uint32_t i)
{
    struct lru_layer *s = state;
    uint32_t share = policy_share(s->frames, s->layers, g->layer);
    if (share == 0 || (share < s->top_k && g->uses[i].rank > share))
        return POLICY_BYPASS;
    if (s->count[g->layer] < share)
        return POLICY_FREE;
    uint32_t b = list_first(&s->list, g->layer);
    while (b < s->list.blocks && policy_member(g, b))
        b = list_after(&s->list, b);
    return b < s->list.blocks ? b : POLICY_BYPASS;
}

static void lru_layer_entered(void *state, const struct policy_group *g,
                              uint32_t block)
{
    struct lru_layer *s = state;
    list_push(&s->list, g->layer, block);
    s->count[g->layer]++;
}

static void lru_layer_left(void *state, const struct policy_group *g,
                           uint32_t block)
{
    (void)g;
    struct lru_layer *s = state;
    list_remove(&s->list, block);
    s->count[block / (s->list.blocks / s->layers)]--;
}

static void lru_layer_audit(const void *state, const uint32_t *frame_of)
{
    const struct lru_layer *s = state;
    for (uint32_t b = 0; b < s->list.blocks; b++)
        assert(list_has(&s->list, b) == (frame_of[b] != CACHE_NONE));
    for (uint32_t m = 0; m < s->layers; m++)
        assert(s->count[m] <= policy_share(s->frames, s->layers, m));
}

const struct policy policy_lru_layer = {
    .name = "lru-layer",
    .about = "lru within each layer's share of the frames",
    .open = lru_layer_open,
    .close = lru_layer_close,
    .group = lru_layer_group,
    .hit = lru_layer_hit,
    .place = lru_layer_place,
    .entered = lru_layer_entered,
    .left = lru_layer_left,
    .audit = lru_layer_audit,
};

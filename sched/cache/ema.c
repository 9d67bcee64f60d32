/* ema: each layer has its share of the frames and evicts the expert with the
 * lowest score. A score grows by 1 with each pass that uses the expert and
 * halves every 16 passes of the layer. A share below top-k keeps the best
 * ranks, as in lru-layer. The best simple policy if a layer has room for a
 * token's experts or more.
 */
#include <errno.h>
#include <math.h>

#include "sched/cache/list.h"
#include "sched/cache/policy.h"

#define EMA_DECAY 0.95760328069857365 /* 2^(-1/16) */
#define EMA_TICKS 512                 /* older uses count as this old: 2^-32 */

struct ema {
    uint32_t layers, experts, frames, top_k;
    struct policy_list list; /* a queue a layer, in no order */
    uint32_t *count;         /* [layers] resident blocks */
    uint32_t *tick, *step;   /* [layers] and the step of that tick */
    float *score;            /* [blocks] at its last use */
    uint32_t *used_at;       /* [blocks] tick of that use */
    float decay[EMA_TICKS];
};

static void ema_close(void *state)
{
    struct ema *s = state;
    list_free(&s->list);
    free(s->count);
    free(s->tick);
    free(s->step);
    free(s->score);
    free(s->used_at);
    free(s);
}

static int ema_open(void **state, const struct cache_options *o)
{
    size_t blocks = (size_t)o->layers * o->experts;
    struct ema *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->layers = o->layers;
    s->experts = o->experts;
    s->frames = o->frames;
    s->top_k = o->top_k;
    s->count = calloc(o->layers, sizeof *s->count);
    s->tick = calloc(o->layers, sizeof *s->tick);
    s->step = calloc(o->layers, sizeof *s->step);
    s->score = calloc(blocks, sizeof *s->score);
    s->used_at = calloc(blocks, sizeof *s->used_at);
    if (!s->count || !s->tick || !s->step || !s->score || !s->used_at ||
        !list_open(&s->list, o->layers * o->experts, o->layers))
        return -ENOMEM;
    for (uint32_t m = 0; m < o->layers; m++)
        s->step[m] = UINT32_MAX;
    double d = 1;
    for (uint32_t t = 0; t < EMA_TICKS; t++, d *= EMA_DECAY)
        s->decay[t] = (float)d;
    return 0;
}

static float score_now(const struct ema *s, uint32_t block)
{
    uint32_t ticks = s->tick[block / s->experts] - s->used_at[block];
    return s->score[block] * s->decay[ticks < EMA_TICKS ? ticks
                                                        : EMA_TICKS - 1];
}

static void ema_group(void *state, const struct policy_group *g)
{
    struct ema *s = state;
    s->tick[g->layer] += s->step[g->layer] != g->step;
    s->step[g->layer] = g->step;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t block = g->layer * s->experts + g->uses[i].expert;
        s->score[block] = score_now(s, block) + 1;
        s->used_at[block] = s->tick[g->layer];
    }
    policy_order_by_rank(g, true);
}

static uint32_t ema_place(void *state, const struct policy_group *g,
                          uint32_t i)
{
    struct ema *s = state;
    uint32_t share = policy_share(s->frames, s->layers, g->layer);
    if (share == 0 || (share < s->top_k && g->uses[i].rank > share))
        return POLICY_BYPASS;
    if (s->count[g->layer] < share)
        return POLICY_FREE;
    float min = INFINITY;
    uint32_t victim = POLICY_BYPASS;
    for (uint32_t b = list_first(&s->list, g->layer); b < s->list.blocks;
         b = list_after(&s->list, b)) {
        float score = score_now(s, b);
        if (score > min || (score == min && b > victim) || policy_member(g, b))
            continue;
        min = score;
        victim = b;
    }
    return victim;
}

static void ema_entered(void *state, const struct policy_group *g,
                        uint32_t block)
{
    struct ema *s = state;
    list_push(&s->list, g->layer, block);
    s->count[g->layer]++;
}

static void ema_left(void *state, const struct policy_group *g,
                     uint32_t block)
{
    (void)g;
    struct ema *s = state;
    list_remove(&s->list, block);
    s->count[block / s->experts]--;
}

static void ema_audit(const void *state, const uint32_t *frame_of)
{
    const struct ema *s = state;
    for (uint32_t b = 0; b < s->list.blocks; b++)
        assert(list_has(&s->list, b) == (frame_of[b] != CACHE_NONE));
    for (uint32_t m = 0; m < s->layers; m++)
        assert(s->count[m] <= policy_share(s->frames, s->layers, m));
}

const struct policy policy_ema = {
    .name = "ema",
    .about = "evict the lowest decayed use count within each layer's share",
    .open = ema_open,
    .close = ema_close,
    .group = ema_group,
    .place = ema_place,
    .entered = ema_entered,
    .left = ema_left,
    .audit = ema_audit,
};

/* dhd: dual EMA over distance. The default.
 *
 * Each expert, resident or not, has two scores that decay by half in 1 and in
 * 32 ticks and grow when it is used: one knows what this stretch of text wants,
 * the other what text at large wants. A tick is one pass through the layer.
 *
 *     w     = r sqrt(uses), r from 1.5 for the router's first choice to 0.5 for
 *             its last (1 when ranks are unknown)
 *     s1    = s1 2^-ticks + w 2^-age         age: rows since, in this pass
 *     s32   = s32 2^-(ticks/32) + w
 *     p     = (s1 (1 - 2^-1) + s32 (1 - 2^-1/32)) / 2
 *     value = p / distance^(1/4)
 *
 * p ranks the chances that the next visit of the layer uses the expert. On K3 a
 * first choice comes back in the next token with 67 %, a last one with 19 %; of
 * a five-token prompt, the experts of the last token with 37 %, those of the
 * first with 1 %. distance is the number of layers until that visit: a frame is
 * rented for so long to win p hits. The lowest value goes, and a miss is
 * admitted only if its own value, at the distance of a whole cycle, is above
 * it. That refusal is what a recency list lacks below one token's working set.
 *
 * The plain quotient p / distance lets a frame move only between neighbouring
 * layers, so a cache that was filled by the first layers of a prompt needs
 * tens of tokens to spread. Any power from 1/4 to 1 gives the same hits on long
 * traces, the fourth root gives up to three points more in the first ten.
 *
 * p of a resident changes only when its own layer runs. So each layer keeps the
 * p of its residents and the least of them, and an eviction compares one
 * number a layer.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "sched/policy.h"

#define DHD_DECAY_FAST 0.5
#define DHD_DECAY_SLOW 0.97857206208770013 /* 2^(-1/32) */
#define DHD_TICKS      1024 /* 2^-32: what is older counts as that old */

struct score {
    float fast, slow;
    uint32_t tick; /* of its layer, when they were true */
};

struct dhd_layer {
    uint32_t tick;
    uint32_t step;      /* that made the tick */
    uint32_t count;     /* residents */
    uint32_t *resident; /* [experts] blocks, in no order */
    float *p;           /* [experts] of resident[i] */
};

struct dhd {
    uint32_t layers, experts, top_k;
    uint32_t layer;      /* that runs now, or ran last */
    bool refusing;       /* a miss was refused: those that follow in the group
                          * are less likely, so they are refused as well */
    struct score *score; /* [blocks] */
    uint32_t *place;     /* [blocks] index in its layer's residents */
    struct dhd_layer *at;  /* [layers] */
    uint32_t *block_store; /* [blocks] behind at[].resident */
    float *p_store;        /* [blocks] behind at[].p */
    float *least;          /* [layers] smallest p that may go; INFINITY */
    uint32_t *least_block; /* [layers] and whose it is, the lowest key */
    float *rent;           /* [layers + 1] distance^(-1/4) */
    float fast[DHD_TICKS], slow[DHD_TICKS]; /* decay over so many ticks */
    float *wish;    /* [experts] p of a group's members, by index in uses */
};

static void dhd_close(void *state)
{
    struct dhd *s = state;
    free(s->score);
    free(s->place);
    free(s->at);
    free(s->block_store);
    free(s->p_store);
    free(s->least);
    free(s->least_block);
    free(s->rent);
    free(s->wish);
    free(s);
}

static int dhd_open(void **state, const struct cache_options *o)
{
    size_t blocks = (size_t)o->layers * o->experts;
    struct dhd *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->layers = o->layers;
    s->experts = o->experts;
    s->top_k = o->top_k;
    s->score = calloc(blocks, sizeof *s->score);
    s->place = calloc(blocks, sizeof *s->place);
    s->at = calloc(o->layers, sizeof *s->at);
    s->block_store = calloc(blocks, sizeof *s->block_store);
    s->p_store = calloc(blocks, sizeof *s->p_store);
    s->least = calloc(o->layers, sizeof *s->least);
    s->least_block = calloc(o->layers, sizeof *s->least_block);
    s->rent = calloc(o->layers + 1, sizeof *s->rent);
    s->wish = calloc(o->experts, sizeof *s->wish);
    if (!s->score || !s->place || !s->at || !s->block_store || !s->p_store ||
        !s->least || !s->least_block || !s->rent || !s->wish)
        return -ENOMEM;
    for (uint32_t m = 0; m < o->layers; m++) {
        s->at[m].resident = s->block_store + (size_t)m * o->experts;
        s->at[m].p = s->p_store + (size_t)m * o->experts;
        s->at[m].step = UINT32_MAX;
        s->least[m] = INFINITY;
    }
    for (uint32_t d = 1; d <= o->layers; d++)
        s->rent[d] = 1.0f / sqrtf(sqrtf((float)d));
    double fast = 1, slow = 1;
    for (uint32_t t = 0; t < DHD_TICKS; t++) {
        s->fast[t] = (float)fast;
        s->slow[t] = (float)slow;
        fast *= DHD_DECAY_FAST;
        slow *= DHD_DECAY_SLOW;
    }
    return 0;
}

static uint32_t capped(uint32_t ticks)
{
    return ticks < DHD_TICKS ? ticks : DHD_TICKS - 1;
}

static float chance(const struct dhd *s, uint32_t block, uint32_t tick)
{
    const struct score *k = &s->score[block];
    uint32_t ticks = capped(tick - k->tick);
    return k->fast * s->fast[ticks] * (float)(0.5 * (1 - DHD_DECAY_FAST)) +
           k->slow * s->slow[ticks] * (float)(0.5 * (1 - DHD_DECAY_SLOW));
}

static float weight(const struct dhd *s, const struct cache_use *use)
{
    float r = 1;
    if (use->rank > 0 && s->top_k > 1)
        r = 1.5f - (float)(use->rank - 1) / (float)(s->top_k - 1);
    return r * sqrtf((float)use->uses);
}

static void used(struct dhd *s, uint32_t block, uint32_t tick,
                 const struct cache_use *use)
{
    struct score *k = &s->score[block];
    uint32_t ticks = capped(tick - k->tick);
    float w = weight(s, use);
    k->fast = k->fast * s->fast[ticks] + w * s->fast[capped(use->age)];
    k->slow = k->slow * s->slow[ticks] + w;
    k->tick = tick;
}

/* The least p of layer m, members of group `g` (NULL: none) left out. */
static void find_least(struct dhd *s, uint32_t m, const struct policy_group *g)
{
    const struct dhd_layer *at = &s->at[m];
    float least = INFINITY;
    uint32_t block = 0;
    for (uint32_t i = 0; i < at->count; i++) {
        uint32_t b = at->resident[i];
        if (at->p[i] > least || (at->p[i] == least && b > block))
            continue;
        if (g && policy_member(g, b))
            continue;
        least = at->p[i];
        block = b;
    }
    s->least[m] = least;
    s->least_block[m] = block;
}

/* Best first, so that a group that does not fit keeps the likeliest. */
static bool likelier(const void *state, const struct policy_group *g,
                     uint32_t i, uint32_t k)
{
    const struct dhd *s = state;
    if (s->wish[i] != s->wish[k])
        return s->wish[i] > s->wish[k];
    return g->uses[i].expert < g->uses[k].expert;
}

static void dhd_group(void *state, const struct policy_group *g)
{
    struct dhd *s = state;
    struct dhd_layer *at = &s->at[g->layer];
    find_least(s, s->layer, NULL); /* the last group's members may go now */
    s->layer = g->layer;
    s->refusing = false;
    at->tick += at->step != g->step;
    at->step = g->step;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t block = g->layer * s->experts + g->uses[i].expert;
        used(s, block, at->tick, &g->uses[i]);
        s->wish[i] = chance(s, block, at->tick);
    }
    for (uint32_t i = 0; i < at->count; i++)
        at->p[i] = chance(s, at->resident[i], at->tick);
    find_least(s, g->layer, g);
    policy_sort(g, likelier, s);
}

/* Lower *best to the lowest value among layers [begin, end), whose distances
 * follow each other from rent[0] on; the layer goes to *found. */
static void lowest(const struct dhd *s, uint32_t begin, uint32_t end,
                   const float *rent, float *best, uint32_t *found)
{
    const float *least = s->least + begin;
    for (uint32_t i = 0; i < end - begin; i++) {
        float v = least[i] * rent[i];
        if (v < *best) {
            *best = v;
            *found = begin + i;
        }
    }
}

static uint32_t dhd_place(void *state, const struct policy_group *g, uint32_t i)
{
    struct dhd *s = state;
    if (g->free)
        return POLICY_FREE;
    if (s->refusing)
        return POLICY_BYPASS;
    float best = INFINITY;
    uint32_t m = 0, next = s->layer + 1;
    lowest(s, 0, next, s->rent + s->layers - s->layer, &best, &m);
    lowest(s, next, s->layers, s->rent + 1, &best, &m);
    if (best < INFINITY && s->wish[i] * s->rent[s->layers] > best)
        return s->least_block[m];
    s->refusing = true;
    return POLICY_BYPASS;
}

static void dhd_entered(void *state, const struct policy_group *g,
                        uint32_t block)
{
    struct dhd *s = state;
    struct dhd_layer *at = &s->at[g->layer];
    s->place[block] = at->count;
    at->resident[at->count] = block;
    at->p[at->count] = chance(s, block, at->tick);
    at->count++; /* a member: no victim before the next group */
}

static void dhd_left(void *state, const struct policy_group *g,
                     uint32_t block)
{
    struct dhd *s = state;
    uint32_t m = block / s->experts, i = s->place[block];
    struct dhd_layer *at = &s->at[m];
    assert(at->resident[i] == block);
    at->count--;
    at->resident[i] = at->resident[at->count];
    at->p[i] = at->p[at->count];
    s->place[at->resident[i]] = i;
    if (s->least_block[m] == block)
        find_least(s, m, g);
}

static void dhd_audit(const void *state, const uint32_t *frame_of)
{
    const struct dhd *s = state;
    for (uint32_t b = 0; b < s->layers * s->experts; b++) {
        const struct dhd_layer *at = &s->at[b / s->experts];
        uint32_t i = s->place[b];
        bool here = i < at->count && at->resident[i] == b;
        assert(here == (frame_of[b] != CACHE_NONE));
        assert(!here || at->p[i] == chance(s, b, at->tick));
    }
}

const struct policy policy_dhd = {
    .name = "dhd",
    .about = "least chance of use per layer of waiting; refuses the unlikely",
    .open = dhd_open,
    .close = dhd_close,
    .group = dhd_group,
    .place = dhd_place,
    .entered = dhd_entered,
    .left = dhd_left,
    .audit = dhd_audit,
};

/* dhd: distance-discounted history. The default.
 *
 * Each expert, resident or not, has two decaying scores. s1 halves every tick
 * and follows the last tokens; s32 halves every 32 ticks and follows the whole
 * text. A tick is one pass through the layer. When rows of a pass use it:
 *
 *     s1  <- s1 2^-ticks + w 2^-age       ticks: since its last use
 *     s32 <- s32 2^-(ticks/32) + w        age:   rows since, in this pass
 *     w   =  r sqrt(uses)                 uses:  rows of this pass that use it
 *
 * r falls linearly from 1.5 for the router's first choice to 0.5 for its last;
 * it is 1 if ranks are unknown. The value of keeping an expert is
 *
 *     p     = (s1 (1 - 2^-1) + s32 (1 - 2^(-1/32))) / 2
 *     value = p / distance^(1/4)
 *
 * p estimates the chance that the next visit of its layer uses the expert;
 * distance is the number of layers until that visit, the time for which the
 * frame is taken. The lowest value is evicted. A miss is admitted only if its
 * own value, at the distance of a whole pass, is higher. Without that refusal
 * a cache smaller than one token's experts gets no hits, as lru shows.
 *
 * Why ranks and age: on K3 the next token uses the router's first choice again
 * with 67 %, the last with 19 %; after a prompt of five tokens it uses the
 * experts of the last one with 37 %, of the first with 1 %. Why the fourth
 * root: with p / distance a frame moves only between neighbouring layers, so a
 * cache that the first layers of a prompt filled needs tens of tokens to
 * spread. Powers from 1/4 to 1 give the same hits on long traces; 1/4 gives up
 * to three points more in the first ten tokens.
 *
 * p of a resident block changes only when its own layer runs. So each layer
 * keeps the p of its resident blocks and their minimum, and an eviction
 * compares one number a layer.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "sched/cache/policy.h"

#define DHD_DECAY_FAST 0.5
#define DHD_DECAY_SLOW 0.97857206208770013 /* 2^(-1/32) */
#define DHD_TICKS      1024 /* older uses count as this old: 2^-32 */

struct score {
    float fast, slow;
    uint32_t tick; /* of its layer, at the last use */
};

struct dhd_layer {
    uint32_t tick;
    uint32_t step;      /* of that tick */
    uint32_t count;     /* resident blocks */
    uint32_t *resident; /* [experts] blocks, in no order */
    float *p;           /* [experts] of resident[i] */
};

struct dhd {
    uint32_t layers, experts, top_k;
    uint32_t layer;      /* of the last group */
    bool refusing;       /* a miss of the group was refused: so are the rest,
                          * which are less likely */
    struct score *score; /* [blocks] */
    uint32_t *place;     /* [blocks] index in resident of its layer */
    struct dhd_layer *at;  /* [layers] */
    uint32_t *block_store; /* [blocks] behind at[].resident */
    float *p_store;        /* [blocks] behind at[].p */
    float *min;            /* [layers] lowest p to evict; INFINITY: none */
    uint32_t *min_block;   /* [layers] whose p it is; the lowest block number */
    float *discount;       /* [layers + 1] distance^(-1/4) */
    float fast[DHD_TICKS], slow[DHD_TICKS]; /* decay over that many ticks */
    float *wanted;  /* [experts] p of the group's members, by index in uses */
};

static void dhd_close(void *state)
{
    struct dhd *s = state;
    free(s->score);
    free(s->place);
    free(s->at);
    free(s->block_store);
    free(s->p_store);
    free(s->min);
    free(s->min_block);
    free(s->discount);
    free(s->wanted);
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
    s->min = calloc(o->layers, sizeof *s->min);
    s->min_block = calloc(o->layers, sizeof *s->min_block);
    s->discount = calloc(o->layers + 1, sizeof *s->discount);
    s->wanted = calloc(o->experts, sizeof *s->wanted);
    if (!s->score || !s->place || !s->at || !s->block_store || !s->p_store ||
        !s->min || !s->min_block || !s->discount || !s->wanted)
        return -ENOMEM;
    for (uint32_t m = 0; m < o->layers; m++) {
        s->at[m].resident = s->block_store + (size_t)m * o->experts;
        s->at[m].p = s->p_store + (size_t)m * o->experts;
        s->at[m].step = UINT32_MAX;
        s->min[m] = INFINITY;
    }
    for (uint32_t d = 1; d <= o->layers; d++)
        s->discount[d] = 1.0f / sqrtf(sqrtf((float)d));
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

/* Find the lowest p of layer m, without members of group `g` (may be NULL). */
static void find_min(struct dhd *s, uint32_t m, const struct policy_group *g)
{
    const struct dhd_layer *at = &s->at[m];
    float min = INFINITY;
    uint32_t block = 0;
    for (uint32_t i = 0; i < at->count; i++) {
        uint32_t b = at->resident[i];
        if (at->p[i] > min || (at->p[i] == min && b > block))
            continue;
        if (g && policy_member(g, b))
            continue;
        min = at->p[i];
        block = b;
    }
    s->min[m] = min;
    s->min_block[m] = block;
}

/* The likeliest first: they get the frames if not all members fit. */
static bool likelier(const void *state, const struct policy_group *g,
                     uint32_t i, uint32_t k)
{
    const struct dhd *s = state;
    if (s->wanted[i] != s->wanted[k])
        return s->wanted[i] > s->wanted[k];
    return g->uses[i].expert < g->uses[k].expert;
}

static void dhd_group(void *state, const struct policy_group *g)
{
    struct dhd *s = state;
    struct dhd_layer *at = &s->at[g->layer];
    find_min(s, s->layer, NULL); /* the last group may be evicted now */
    s->layer = g->layer;
    s->refusing = false;
    at->tick += at->step != g->step;
    at->step = g->step;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t block = g->layer * s->experts + g->uses[i].expert;
        used(s, block, at->tick, &g->uses[i]);
        s->wanted[i] = chance(s, block, at->tick);
    }
    for (uint32_t i = 0; i < at->count; i++)
        at->p[i] = chance(s, at->resident[i], at->tick);
    find_min(s, g->layer, g);
    policy_sort(g, likelier, s);
}

/* Lower *best to the lowest value in layers [begin, end) and set *found to its
 * layer. discount[i] belongs to layer begin + i. */
static void lowest(const struct dhd *s, uint32_t begin, uint32_t end,
                   const float *discount, float *best, uint32_t *found)
{
    const float *min = s->min + begin;
    for (uint32_t i = 0; i < end - begin; i++) {
        float v = min[i] * discount[i];
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
    lowest(s, 0, next, s->discount + s->layers - s->layer, &best, &m);
    lowest(s, next, s->layers, s->discount + 1, &best, &m);
    if (best < INFINITY && s->wanted[i] * s->discount[s->layers] > best)
        return s->min_block[m];
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
    at->count++; /* not in min: a member is not evicted */
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
    if (s->min_block[m] == block)
        find_min(s, m, g);
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
    .about = "distance-discounted history: evict what is least likely to be "
             "used soon, admit only what is likelier",
    .open = dhd_open,
    .close = dhd_close,
    .group = dhd_group,
    .place = dhd_place,
    .entered = dhd_entered,
    .left = dhd_left,
    .audit = dhd_audit,
};

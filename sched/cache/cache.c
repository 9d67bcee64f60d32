#include "sched/cache/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/cache/policy.h"

static const struct policy *const policies[] = {
    &policy_dhd,
    &policy_lru,
    &policy_lru_layer,
    &policy_ema,
    &policy_lfu,
    &policy_lru2,
    &policy_s3fifo,
    &policy_fifo,
    &policy_static_pin,
    &policy_none,
    &policy_min,
};

#define POLICIES (sizeof policies / sizeof *policies)

struct cache {
    const struct policy *policy;
    void *state; /* the policy's */
    uint32_t layers, experts, frames;
    uint32_t *frame_of;   /* [layers * experts] */
    uint32_t *block_of;   /* [frames] CACHE_NONE: free */
    uint32_t *free_frame; /* [frames] a stack, the lowest number on top */
    uint32_t free;        /* entries of free_frame */
    uint32_t *mark;       /* [experts] number of the last group that chose it */
    uint32_t now;         /* number of the present group, never 0 */
    bool     *hit;        /* [experts] scratch of cache_group */
    uint32_t *order;      /* [experts] scratch of cache_group */
    struct cache_use *use; /* [experts] the group that cache_row collects */
    uint32_t uses;         /* entries of use */
    uint32_t *use_of;      /* [experts] index into use, or CACHE_NONE */
    struct cache_counters counters;
};

const char *cache_policy_name(uint32_t i, const char **about, bool *offline)
{
    if (i >= POLICIES)
        return NULL;
    if (about)
        *about = policies[i]->about;
    if (offline)
        *offline = policies[i]->offline;
    return policies[i]->name;
}

static const struct policy *find_policy(const char *name)
{
    for (size_t i = 0; i < POLICIES; i++)
        if (!strcmp(policies[i]->name, name))
            return policies[i];
    return NULL;
}

static int allocate(struct cache *c)
{
    size_t blocks = (size_t)c->layers * c->experts;
    size_t frames = c->frames ? c->frames : 1; /* malloc(0) may be NULL */
    c->frame_of = malloc(blocks * sizeof *c->frame_of);
    c->block_of = malloc(frames * sizeof *c->block_of);
    c->free_frame = malloc(frames * sizeof *c->free_frame);
    c->mark = calloc(c->experts, sizeof *c->mark);
    c->hit = calloc(c->experts, sizeof *c->hit);
    c->order = calloc(c->experts, sizeof *c->order);
    c->use = calloc(c->experts, sizeof *c->use);
    c->use_of = malloc(c->experts * sizeof *c->use_of);
    if (!c->frame_of || !c->block_of || !c->free_frame || !c->mark ||
        !c->hit || !c->order || !c->use || !c->use_of)
        return -ENOMEM;
    memset(c->use_of, 0xff, c->experts * sizeof *c->use_of);
    for (size_t b = 0; b < blocks; b++)
        c->frame_of[b] = CACHE_NONE;
    for (uint32_t f = 0; f < c->frames; f++) {
        c->block_of[f] = CACHE_NONE;
        c->free_frame[f] = c->frames - 1 - f;
    }
    c->free = c->frames;
    return 0;
}

int cache_open(struct cache **out, const struct cache_options *options)
{
    *out = NULL;
    const struct policy *policy =
        options->policy ? find_policy(options->policy) : NULL;
    if (!policy || !options->layers || !options->experts || !options->top_k ||
        options->top_k > options->experts ||
        (uint64_t)options->layers * options->experts >= POLICY_BYPASS)
        return -EINVAL;
    if (policy->offline && !options->next_use)
        return -EINVAL;
    struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->policy = policy;
    c->layers = options->layers;
    c->experts = options->experts;
    c->frames = options->frames;
    int error = allocate(c);
    if (!error && policy->open)
        error = policy->open(&c->state, options);
    if (error) {
        cache_close(c);
        return error;
    }
    *out = c;
    return 0;
}

void cache_close(struct cache *c)
{
    if (!c)
        return;
    if (c->policy->close && c->state)
        c->policy->close(c->state);
    free(c->frame_of);
    free(c->block_of);
    free(c->free_frame);
    free(c->mark);
    free(c->hit);
    free(c->order);
    free(c->use);
    free(c->use_of);
    free(c);
}

void cache_row(struct cache *c, const uint32_t *ids, uint32_t k, bool ranked,
               uint32_t age)
{
    for (uint32_t i = 0; i < k; i++) {
        assert(ids[i] < c->experts);
        uint32_t rank = ranked ? i + 1 : 0;
        uint32_t *of = &c->use_of[ids[i]];
        if (*of == CACHE_NONE) {
            *of = c->uses++;
            c->use[*of] = (struct cache_use){ ids[i], rank, 1, age };
            continue;
        }
        struct cache_use *use = &c->use[*of];
        use->uses++;
        use->rank = rank < use->rank ? rank : use->rank;
        use->age = age < use->age ? age : use->age;
    }
}

const struct cache_use *cache_uses(struct cache *c, uint32_t *n)
{
    for (uint32_t i = 0; i < c->uses; i++)
        c->use_of[c->use[i].expert] = CACHE_NONE;
    *n = c->uses;
    c->uses = 0;
    return c->use;
}

/* Start the next group and mark its members with its number. */
static void mark_members(struct cache *c, uint32_t layer,
                         const struct cache_use *uses, uint32_t n)
{
    if (++c->now == 0) { /* old marks would look new after 2^32 groups */
        memset(c->mark, 0, c->experts * sizeof *c->mark);
        c->now = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t e = uses[i].expert;
        assert(e < c->experts);
        assert(c->mark[e] != c->now); /* each expert once a group */
        assert(uses[i].uses > 0);
        c->mark[e] = c->now;
        c->hit[i] = c->frame_of[layer * c->experts + e] != CACHE_NONE;
        c->order[i] = i;
        c->counters.requests += uses[i].uses;
        c->counters.loads += !c->hit[i];
    }
}

static uint32_t vacate(struct cache *c, const struct policy_group *g,
                       uint32_t block)
{
    uint32_t frame = c->frame_of[block];
    assert(frame != CACHE_NONE);
    c->frame_of[block] = CACHE_NONE;
    c->block_of[frame] = CACHE_NONE;
    if (c->policy->left)
        c->policy->left(c->state, g, block);
    return frame;
}

/* Give uses[i], which is not resident, a frame or none. */
static struct cache_verdict place(struct cache *c, struct policy_group *g,
                                  uint32_t i)
{
    uint32_t block = g->layer * c->experts + g->uses[i].expert;
    struct cache_verdict v = { CACHE_NONE, CACHE_BYPASS, CACHE_NONE };
    uint32_t answer = c->policy->place(c->state, g, i);
    if (answer == POLICY_BYPASS) {
        c->counters.bypassed++;
        return v;
    }
    if (answer == POLICY_FREE) {
        assert(c->free > 0);
        v.frame = c->free_frame[--c->free];
        g->free = c->free;
    } else {
        assert(!policy_member(g, answer));
        v.frame = vacate(c, g, answer);
        v.evicted_block = answer;
        c->counters.evictions++;
    }
    v.answer = CACHE_ADMIT;
    c->frame_of[block] = v.frame;
    c->block_of[v.frame] = block;
    c->counters.admitted++;
    if (c->policy->entered)
        c->policy->entered(c->state, g, block);
    return v;
}

void cache_group(struct cache *c, uint32_t step, uint32_t layer,
                 const struct cache_use *uses, uint32_t n,
                 struct cache_verdict *out)
{
    assert(layer < c->layers);
    assert(n <= c->experts);
    mark_members(c, layer, uses, n);
    struct policy_group g = {
        .step = step,       .layer = layer, .experts = c->experts, .n = n,
        .free = c->free,    .uses = uses,   .hit = c->hit,
        .order = c->order,  .mark = c->mark, .now = c->now,
    };
    if (c->policy->group)
        c->policy->group(c->state, &g);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = c->order[k];
        uint32_t block = layer * c->experts + uses[i].expert;
        if (!c->hit[i]) {
            out[i] = place(c, &g, i);
            continue;
        }
        out[i] = (struct cache_verdict){ c->frame_of[block], CACHE_HIT,
                                         CACHE_NONE };
        if (c->policy->hit)
            c->policy->hit(c->state, &g, block);
    }
}

uint32_t cache_frame(const struct cache *c, uint32_t layer, uint32_t expert)
{
    assert(layer < c->layers);
    assert(expert < c->experts);
    return c->frame_of[layer * c->experts + expert];
}

bool cache_resident(const struct cache *c, uint32_t layer, uint32_t expert)
{
    return cache_frame(c, layer, expert) != CACHE_NONE;
}

void cache_counters(const struct cache *c, struct cache_counters *out)
{
    *out = c->counters;
}

void cache_audit(const struct cache *c)
{
    uint32_t taken = 0, indexed = 0;
    for (uint32_t f = 0; f < c->frames; f++) {
        if (c->block_of[f] == CACHE_NONE)
            continue;
        taken++;
        assert(c->frame_of[c->block_of[f]] == f);
    }
    for (uint32_t b = 0; b < c->layers * c->experts; b++)
        indexed += c->frame_of[b] != CACHE_NONE;
    assert(indexed == taken);
    assert(taken + c->free == c->frames);
    for (uint32_t i = 0; i < c->free; i++)
        assert(c->block_of[c->free_frame[i]] == CACHE_NONE);
    assert(c->counters.loads == c->counters.admitted + c->counters.bypassed);
    assert(c->counters.evictions <= c->counters.admitted);
    if (c->policy->audit)
        c->policy->audit(c->state, c->frame_of);
}

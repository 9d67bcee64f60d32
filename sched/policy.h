/* policy.h - the table that a cache policy fills. Private to sched/.
 *
 * The cache owns the directory (which block is in which frame); a policy owns
 * its history and the order of eviction, and sees blocks only. For each group
 * the cache calls, in this order:
 *
 *     group       once: the group is known, and who of it is resident
 *     hit         for each member that is resident  } in the order in which
 *     place       for each member that is not       } `group` left g->order
 *     entered     after place, unless it bypassed   }
 *
 * and `left` for the block that place named, before `entered`. A block between
 * entered and left is resident, no other is.
 *
 * To add a policy: one file policy_NAME.c that defines `const struct policy
 * policy_NAME`, one line below, one row of the table in cache.c.
 */
#ifndef SCHED_POLICY_H
#define SCHED_POLICY_H

#include "sched/cache.h"

/* What `place` returns beside the block that goes. */
#define POLICY_FREE   (UINT32_MAX - 1) /* take a free frame */
#define POLICY_BYPASS (UINT32_MAX - 2) /* do not keep it */

struct policy_group {
    uint32_t step, layer;
    uint32_t experts; /* a layer: block = layer * experts + expert */
    uint32_t n;
    uint32_t free; /* frames that hold nothing, up to date at each call */
    const struct cache_use *uses; /* [n] */
    const bool *hit;              /* [n] */
    uint32_t *order;       /* [n] indexes into uses, 0 .. n-1 at first */
    const uint32_t *mark;  /* [experts] equal to `now` for members */
    uint32_t now;
};

struct policy {
    const char *name;
    const char *about;
    bool offline; /* needs options.next_use */
    int  (*open)(void **state, const struct cache_options *options);
    void (*close)(void *state);
    /* May be NULL: group, hit, entered, left, audit. */
    void (*group)(void *state, const struct policy_group *g);
    void (*hit)(void *state, const struct policy_group *g, uint32_t block);
    /* A resident block that is no member of the group, POLICY_FREE (only if
     * g->free > 0) or POLICY_BYPASS. uses[i] is the one to place. */
    uint32_t (*place)(void *state, const struct policy_group *g, uint32_t i);
    void (*entered)(void *state, const struct policy_group *g, uint32_t block);
    void (*left)(void *state, const struct policy_group *g, uint32_t block);
    /* Asserts that the policy knows exactly the resident blocks:
     * frame_of[block] is CACHE_NONE for the others. */
    void (*audit)(const void *state, const uint32_t *frame_of);
};

static inline bool policy_member(const struct policy_group *g, uint32_t block)
{
    return block / g->experts == g->layer &&
           g->mark[block % g->experts] == g->now;
}

/* The frames of layer m when each layer has its own. */
static inline uint32_t policy_share(uint32_t frames, uint32_t layers,
                                    uint32_t m)
{
    return frames / layers + (m < frames % layers);
}

/* Whether uses[i] is to be placed before uses[k]: a strict order of all. */
typedef bool policy_before_fn(const void *state, const struct policy_group *g,
                              uint32_t i, uint32_t k);
/* Sort g->order; without allocation. */
void policy_sort(const struct policy_group *g, policy_before_fn *before,
                 const void *state);
/* Sort g->order by rank, equal ranks in the order of the group. */
void policy_order_by_rank(const struct policy_group *g, bool best_first);

extern const struct policy policy_dhd;
extern const struct policy policy_ema;
extern const struct policy policy_fifo;
extern const struct policy policy_lfu;
extern const struct policy policy_lru;
extern const struct policy policy_lru2;
extern const struct policy policy_lru_layer;
extern const struct policy policy_min;
extern const struct policy policy_none;
extern const struct policy policy_s3fifo;
extern const struct policy policy_static_pin;

#endif

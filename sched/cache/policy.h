/* policy.h - the functions of a cache policy. Private to sched/cache/.
 *
 * The cache knows which block is in which frame. A policy keeps the history and
 * the order of eviction, and sees blocks only. For each group the cache calls,
 * in this order:
 *
 *     group       once: the group is known, and which members are resident
 *     hit         for each member that is resident  } in the order in which
 *     place       for each member that is not       } `group` left g->order
 *     left        for the block that place evicts   }
 *     entered     unless place bypassed             }
 *
 * A block is resident between entered and left.
 *
 * Threads one owner at a time. Errors: only from open, -EINVAL or -ENOMEM.
 * Cost    no allocation after open.
 *
 * To add a policy: a file NAME.c that defines `const struct policy
 * policy_NAME`, a line below, a row of the table in cache.c, its definition in
 * README.md.
 */
#ifndef SCHED_CACHE_POLICY_H
#define SCHED_CACHE_POLICY_H

#include "sched/cache/cache.h"

/* What `place` returns if not a block to evict. */
#define POLICY_FREE   (UINT32_MAX - 1) /* take a free frame */
#define POLICY_BYPASS (UINT32_MAX - 2) /* do not keep it */

struct policy_group {
    uint32_t step, layer;
    uint32_t experts; /* in a layer: block = layer * experts + expert */
    uint32_t n;       /* members of the group */
    uint32_t free;    /* frames that hold nothing, up to date at each call */
    const struct cache_use *uses; /* [n] */
    const bool *hit;              /* [n] uses[i] is resident */
    uint32_t *order;       /* [n] indexes into uses, 0 .. n-1 at first */
    const uint32_t *mark;  /* [experts] equal to `now` for members */
    uint32_t now;          /* number of this group */
};

struct policy {
    const char *name;
    const char *about; /* what it does, in one line, for --help */
    bool offline;      /* needs options.next_use */
    int  (*open)(void **state, const struct cache_options *options);
    void (*close)(void *state);
    /* May be NULL: group, hit, entered, left, audit. */
    void (*group)(void *state, const struct policy_group *g);
    void (*hit)(void *state, const struct policy_group *g, uint32_t block);
    /* Where uses[i] goes: into the frame of the resident block returned, which
     * is no member of the group; POLICY_FREE, only if g->free > 0; or
     * POLICY_BYPASS. */
    uint32_t (*place)(void *state, const struct policy_group *g, uint32_t i);
    void (*entered)(void *state, const struct policy_group *g, uint32_t block);
    void (*left)(void *state, const struct policy_group *g, uint32_t block);
    /* Assert that the policy knows the resident blocks and no others:
     * frame_of[block] is CACHE_NONE for those that are not resident. */
    void (*audit)(const void *state, const uint32_t *frame_of);
};

static inline bool policy_member(const struct policy_group *g, uint32_t block)
{
    return block / g->experts == g->layer &&
           g->mark[block % g->experts] == g->now;
}

/* Frames of layer m, for policies that divide the frames among the layers. */
static inline uint32_t policy_share(uint32_t frames, uint32_t layers,
                                    uint32_t m)
{
    return frames / layers + (m < frames % layers);
}

/* Whether uses[i] is placed before uses[k]: a strict total order. */
typedef bool policy_before_fn(const void *state, const struct policy_group *g,
                              uint32_t i, uint32_t k);
/* Sort g->order, without allocation. */
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

/* cache.h - which experts stay in memory, and who leaves when one comes.
 *
 * A block is one expert of one MoE layer, a frame is room for one block. The
 * cache moves no bytes: for each layer of each pass it is told which experts
 * the rows chose and answers, for every one of them, whether it is here, which
 * frame it gets, or that it must pass through staging. The engine obeys, and
 * `sluice replay` counts; both see the same answers for the same calls.
 *
 *     cache_open -> { cache_group } -> cache_close
 *
 * The experts of one (step, layer) are looked up together. Hits are decided
 * before anything is admitted, and no member of the group can be evicted for
 * another. All decisions fall inside cache_group, from the history alone, so
 * nothing depends on which read arrives first.
 *
 *   frame     holds               leaves by
 *   free      nothing             cache_group (CACHE_ADMIT)
 *   taken     exactly one block   cache_group (evicted)
 *
 * Guesses are not admitted: a guess that turns out to be wanted is one of the
 * group's misses like any other, and only then gets a frame or does not.
 *
 * Bytes   none. Threads: one owner at a time. Errors: only from cache_open.
 * Cost    no allocation after cache_open; cache_group is about 0.1 us an
 *         expert at 6,000 frames.
 */
#ifndef SCHED_CACHE_H
#define SCHED_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define CACHE_NONE UINT32_MAX

struct cache;

struct cache_options {
    const char *policy;  /* a name of cache_policy_name */
    uint32_t    layers;  /* MoE layers, 0 .. layers-1 in the order they run */
    uint32_t    experts; /* a layer */
    uint32_t    top_k;   /* experts a row chooses */
    uint32_t    frames;  /* without staging; may be 0 */
    const char *pin_file; /* static-pin: a trace to count; else unused */
    /* min: for each use, in the order in which cache_group will be given
     * them, the number of the use that asks for the same block next, or
     * UINT32_MAX. Borrowed until cache_close. Else NULL. */
    const uint32_t *next_use;
    uint64_t        next_uses; /* entries of next_use */
};

/* One expert that the rows of a pass chose, each expert once a group. */
struct cache_use {
    uint32_t expert;
    uint32_t rank; /* the best it had in any row, 1 = first; 0 unknown */
    uint32_t uses; /* rows that chose it, at least 1 */
    uint32_t age;  /* rows of the same sequence after the last that chose it;
                    * the least over the sequences */
};

enum cache_what {
    CACHE_HIT,    /* it is in `frame` */
    CACHE_ADMIT,  /* read it into `frame`, whose former block is gone */
    CACHE_BYPASS, /* read it into staging and drop it after use */
};

struct cache_verdict {
    uint32_t frame;         /* CACHE_NONE for CACHE_BYPASS */
    uint8_t  what;          /* enum cache_what */
    uint32_t evicted_block; /* layer * experts + expert, or CACHE_NONE */
};

struct cache_counters {
    uint64_t requests;  /* sum of uses */
    uint64_t loads;     /* distinct experts that were not here */
    uint64_t admitted;  /* loads that got a frame */
    uint64_t bypassed;  /* loads that did not: loads - admitted */
    uint64_t evictions; /* admitted loads that took a block's frame */
};

/* -EINVAL: unknown policy, no layers or experts, top_k above experts, or an
 * option that the policy needs is missing. -ENOMEM. static-pin also returns
 * what trace_open does for its file. */
int  cache_open(struct cache **out, const struct cache_options *options);
void cache_close(struct cache *c);

/* Collect a group, row after row, in the order that cache_group wants: the
 * `k` ids of one row in rank order (`ranked`: else their order says nothing)
 * and the number of rows of its sequence that come after it in the pass.
 * Ids are below `experts` and distinct in a row. cache_uses hands out the
 * group and starts the next; it is good until the next cache_row. */
void cache_row(struct cache *c, const uint32_t *ids, uint32_t k, bool ranked,
               uint32_t age);
const struct cache_use *cache_uses(struct cache *c, uint32_t *n);

/* Look up the `n` distinct experts that pass `step` chose in `layer`, and
 * decide. `uses` is in order of first appearance (row, then rank); out[i]
 * answers uses[i]. Steps never decrease; several rows of one pass are one
 * step, and a step is one tick of every policy's clock, whatever its rows. */
void cache_group(struct cache *c, uint32_t step, uint32_t layer,
                 const struct cache_use *uses, uint32_t n,
                 struct cache_verdict *out);

/* The frame that holds the expert, or CACHE_NONE. */
uint32_t cache_frame(const struct cache *c, uint32_t layer, uint32_t expert);
bool     cache_resident(const struct cache *c, uint32_t layer, uint32_t expert);
void     cache_counters(const struct cache *c, struct cache_counters *out);

/* The i-th policy and one line about it; NULL past the last. The first is the
 * default. `offline` policies need next_use: replay only. */
const char *cache_policy_name(uint32_t i, const char **about, bool *offline);

/* Asserts the table above over every frame, and the policy's own. For tests;
 * slow. */
void cache_audit(const struct cache *c);

#endif

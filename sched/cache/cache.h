/* cache.h - which experts stay in memory, and which one is evicted for another.
 *
 * A block is one expert of one MoE layer; a frame is room for one block. The
 * cache moves no bytes. For each layer of each pass it is told which experts
 * the rows chose. For each of them it answers: a hit in this frame, read it
 * into this frame, or read it into staging. The engine does that; `sluice
 * replay` only counts. The same calls give both the same answers.
 *
 *     cache_open -> { cache_group } -> cache_close
 *
 * The distinct experts of one step and layer are a group, and are looked up
 * together. Hits are decided before anything is admitted, and no member of the
 * group is evicted for another. Every decision is made inside cache_group, from
 * the history alone. So none depends on which read arrives first.
 *
 *   frame     holds               changed by
 *   free      nothing             cache_group (CACHE_ADMIT)
 *   taken     exactly one block   cache_group (evicted)
 *
 * A prefetch is not admitted when it is read. If its expert is chosen, it is a
 * miss of its group like any other, and gets a frame or staging then.
 *
 * Bytes   the cache counts frames and moves nothing. Memory: 29 bytes an
 *         expert of one layer, 4 a block, 8 a frame, and the policy's history.
 * Threads one owner at a time.
 * Errors  only from cache_open.
 * Cost    no allocation after cache_open; cache_group takes about 0.1 us an
 *         expert at 6,000 frames.
 */
#ifndef SCHED_CACHE_CACHE_H
#define SCHED_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define CACHE_NONE UINT32_MAX

struct cache;

struct cache_options {
    const char *policy;  /* a name of cache_policy_name */
    uint32_t    layers;  /* MoE layers, numbered 0 .. layers-1 as they run */
    uint32_t    experts; /* in a layer */
    uint32_t    top_k;   /* experts that a row chooses in a layer */
    uint32_t    frames;  /* of the cache, staging not counted; may be 0 */
    const char *pin_file; /* static-pin: path of a trace; else not read */
    /* min: for each use, in the order in which cache_group will be given
     * them, the index of the next use of the same block, or UINT32_MAX.
     * Borrowed until cache_close. NULL for the other policies. */
    const uint32_t *next_use;
    uint64_t        next_uses; /* entries of next_use */
};

/* One expert of a group. */
struct cache_use {
    uint32_t expert; /* 0 .. experts-1 */
    uint32_t rank; /* its best place in a row's choice, 1 first; 0 unknown */
    uint32_t uses; /* rows that chose it, at least 1 */
    uint32_t age;  /* rows of its sequence after the last one that chose it;
                    * of several sequences, the smallest such count */
};

enum cache_answer {
    CACHE_HIT,    /* it is in `frame` */
    CACHE_ADMIT,  /* read it into `frame`; the block there was evicted */
    CACHE_BYPASS, /* read it into staging and drop it after use */
};

struct cache_verdict {
    uint32_t frame;         /* 0 .. frames-1; CACHE_NONE for CACHE_BYPASS */
    uint8_t  answer;        /* enum cache_answer */
    uint32_t evicted_block; /* layer * experts + expert, or CACHE_NONE */
};

/* Counts since cache_open. */
struct cache_counters {
    uint64_t requests;  /* uses of all groups, summed over rows */
    uint64_t loads;     /* members of groups that were not resident */
    uint64_t admitted;  /* loads that got a frame */
    uint64_t bypassed;  /* loads that got none: loads - admitted */
    uint64_t evictions; /* admitted loads that took another block's frame */
};

/* -EINVAL: unknown policy, no layers or experts, top_k above experts, or an
 * option that the policy needs is missing. -ENOMEM. static-pin also returns
 * the errors of trace_open for its file. */
int  cache_open(struct cache **out, const struct cache_options *options);
void cache_close(struct cache *c);

/* Collect a group row by row, in the order that cache_group needs. `ids` are
 * the k experts that one row chose, best first if `ranked`, below `experts` and
 * distinct. `age` is the number of rows of its sequence that follow in the
 * pass. cache_uses returns the group, valid until the next cache_row, and
 * starts another. */
void cache_row(struct cache *c, const uint32_t *ids, uint32_t k, bool ranked,
               uint32_t age);
const struct cache_use *cache_uses(struct cache *c, uint32_t *n);

/* Look up the `n` distinct experts that pass `step` chose in `layer`, and
 * decide. `uses` is in order of first appearance (row, then rank); out[i]
 * answers uses[i]. Steps never decrease. All rows of a pass are one step, and
 * a step is one tick of the policy's clock, however many rows it has. */
void cache_group(struct cache *c, uint32_t step, uint32_t layer,
                 const struct cache_use *uses, uint32_t n,
                 struct cache_verdict *out);

/* The frame that holds the expert, or CACHE_NONE. */
uint32_t cache_frame(const struct cache *c, uint32_t layer, uint32_t expert);
bool     cache_resident(const struct cache *c, uint32_t layer, uint32_t expert);
void     cache_counters(const struct cache *c, struct cache_counters *out);

/* The i-th policy and one line about it; NULL past the last. The first is the
 * default. `offline`: it needs next_use, so only replay can use it. */
const char *cache_policy_name(uint32_t i, const char **about, bool *offline);

/* Assert the table above for every frame, and the policy's audit. For tests;
 * slow. */
void cache_audit(const struct cache *c);

#endif

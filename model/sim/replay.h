/* replay.h - what a cache and a prefetcher would have done on a recorded trace.
 *
 * The same cache, prefetcher and governor as the engine's, fed with the passes
 * of a trace: counts equal the engine's own, exactly, for the same trace,
 * policy and frames. There is no clock: a prefetch that the governor allows is
 * read in time, `width` of them at most a layer, on a drive that has room.
 *
 *     replay_run -> replay_free
 *
 * Memory  a cache for each policy and number of frames, a prefetcher for each
 *         prefetch, 8 bytes a pass; with policy `min` 8 bytes a request.
 */
#ifndef MODEL_SIM_REPLAY_H
#define MODEL_SIM_REPLAY_H

#include "model/ckpt/error.h"
#include "model/sim/passes.h"

struct replay_options {
    const char *const *policy;   /* [policies] */
    const char *const *prefetch; /* [prefetches] */
    const uint32_t *frames;      /* [frame_counts] without staging */
    uint32_t policies, prefetches, frame_counts;
    const char *pin_file; /* for static-pin */
    uint32_t width;       /* most prefetches a layer, 0 .. 16 */
    bool repair;          /* use what is whole of a truncated trace */
};

struct replay_count {
    uint64_t requests;  /* rows x top-k x layers */
    uint64_t loads;     /* distinct (pass, layer, expert) not resident */
    uint64_t prefetched;    /* experts read before their layer's router */
    uint64_t prefetch_hits; /* that were among the loads */
};

/* One policy with one number of frames and one prefetch. */
struct replay_result {
    const char *policy, *prefetch;
    uint32_t frames;
    struct replay_count all, decode; /* decode: passes with a decode row */
    uint64_t evictions, bypassed;
    const uint32_t *step_loads; /* [passes] looked up in groups */
    /* [passes] for lru, fifo and min each request looked up on its own, one
     * row after the other; for the others requests - loads. */
    const uint64_t *step_hits;
};

struct replay {
    struct passes_facts facts;
    uint32_t results;
    struct replay_result *result; /* policy by policy, then prefetch, then
                                   * frames, as the options have them */
    uint32_t *loads_store; /* behind step_loads */
    uint64_t *hits_store;  /* behind step_hits */
};

/* Prefetch names are those of predict.h but `gate`, whose names are not in a
 * trace, and `perfect`, which names what will be chosen. */
int replay_run(struct replay **out, const char *path,
               const struct replay_options *options, struct error *error);
void replay_free(struct replay *r);

#endif

/* replay_timed.h - sluice replay with a clock: what a machine would take for
 * the passes of a trace. */
#ifndef BIN_REPLAY_TIMED_H
#define BIN_REPLAY_TIMED_H

#include <stdbool.h>

#include "bin/opt.h"
#include "bin/session.h"
#include "model/replay.h"

enum { TIMED_MEMORIES_MOST = 64 };

struct timed_args {
    struct session_args s; /* of which the drives and threads */
    uint64_t    memory[TIMED_MEMORIES_MOST];
    uint32_t    memories;
    const char *compute, *model, *html;
    bool        json, csv;
};

opt_call_fn timed_memory;

#define TIMED_OPTIONS(a) \
    { "device", 0, OPT_CALL, &(a)->s, "GBPS[,US]", \
      "with time, on such a drive; repeat for more", session_device }, \
    { "memory", 'm', OPT_CALL, (a), "SIZE,SIZE", \
      "budgets to simulate; default: that of the run", timed_memory }, \
    { "compute", 0, OPT_TEXT, &(a)->compute, "SECONDS|REPORT", \
      "of a pass, or the report of a run to take it from", NULL }, \
    { "model", 0, OPT_TEXT, &(a)->model, "DIR", \
      "whose config; default: the one in the trace", NULL }

/* All policies but min x prefetches x memories (x frames, if there are any:
 * else as many as the memory holds) over each trace. Prints; returns the exit
 * status. */
int replay_timed(const struct timed_args *a, const struct replay_options *r,
                 const char *const *paths, int count);

#endif

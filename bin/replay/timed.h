/* timed.h - sluice replay with simulated drives: the time that a machine would
 * take for the passes of a trace.
 *
 * Errors   replay_timed prints a sentence and returns 1. Threads: one caller.
 */
#ifndef BIN_REPLAY_TIMED_H
#define BIN_REPLAY_TIMED_H

#include <stdbool.h>

#include "bin/cli/opt.h"
#include "bin/cli/packed.h"
#include "bin/cli/session.h"
#include "model/sim/replay.h"

enum { TIMED_MEMORIES_MAX = 64 };

struct timed_args {
    struct session_args s; /* the drives and threads are used */
    uint64_t memory[TIMED_MEMORIES_MAX]; /* [memories] bytes */
    uint32_t    memories;
    const char *compute, *model, *html; /* the options; NULL: not given */
    bool        json, csv;
};

opt_call_fn timed_memory;

#define TIMED_OPTIONS(a) \
    { "simulate-drive", 0, OPT_CALL, &(a)->s, "GBPS[,US]", \
      "also compute the time, with a drive of GBPS GB/s and US microseconds " \
      "of latency; repeat for more", session_drive }, \
    { "device", 0, OPT_CALL, &(a)->s, "GBPS[,US]", NULL, session_drive }, \
    { "memory", 'm', OPT_CALL, (a), "SIZE,SIZE", \
      "memory budgets to simulate; default: that of the run", timed_memory }, \
    { "compute", 0, OPT_TEXT, &(a)->compute, "SECONDS|REPORT", \
      "compute time of a pass, or the report of a run that has it; default: " \
      "as plan, a token's weights at 100 GB/s", NULL }, \
    { "model", 0, OPT_TEXT, &(a)->model, "DIR", \
      "folder whose config.json is used, and coded weights; default: the " \
      "config in the trace", NULL }, \
    PARTS_OPTION(&(a)->s.parts), \
    { "packed", 0, OPT_TEXT, &(a)->s.packed, "auto|off|require|DIR", \
      "with --model: coded weights, as in sluice run; default auto", NULL }, \
    { "resident", 0, OPT_CALL, &(a)->s, "auto|coded|decoded", \
      "how resident coded weights are kept, as in sluice run; default auto", \
      session_resident }

/* Simulate each trace with every combination of policy (but min), prefetcher,
 * memory and number of frames; without numbers of frames, as many as the memory
 * holds. Prints the results; returns the exit status. */
int replay_timed(const struct timed_args *a, const struct replay_options *r,
                 const char *const *paths, int count);

#endif

/* replay_page.h - the results of sluice replay as curves on a page.
 *
 * Errors   both functions print a sentence and return 1. Threads: one caller.
 */
#ifndef BIN_HTML_REPLAY_PAGE_H
#define BIN_HTML_REPLAY_PAGE_H

#include <stdint.h>

#include "model/sim/replay.h"

enum { REPLAY_METRICS_MAX = 8 };

/* One result: a policy and a prefetcher at one x. */
struct replay_point {
    const char *policy, *prefetch;
    double x;                          /* in x_unit of the curves */
    double metric[REPLAY_METRICS_MAX]; /* in the units of the metrics */
};

struct replay_metric {
    const char *title, *unit;
};

/* One trace. */
struct replay_curves {
    const char *trace;
    char        about[256];
    const char *x_unit;
    struct replay_point *point; /* [points] */
    uint32_t points;
};

/* Write the page: for each trace a chart for each metric [count], with a line
 * for each policy and prefetcher. Returns the exit status. */
int replay_page(const char *path, const char *about,
                const struct replay_curves *curves, uint32_t traces,
                const struct replay_metric *metrics, uint32_t count);
/* The same for results without times. */
int replay_page_counts(const char *path, const char *const *traces,
                       struct replay *const *replays, uint32_t count);

#endif

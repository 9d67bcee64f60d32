/* replay_page.h - the results of sluice replay as curves on a page. */
#ifndef BIN_REPLAY_PAGE_H
#define BIN_REPLAY_PAGE_H

#include <stdint.h>

#include "model/replay.h"

enum { REPLAY_METRICS_MOST = 8 };

/* One result: a policy and prefetch at a place on the axis. */
struct replay_point {
    const char *policy, *prefetch;
    double x;
    double metric[REPLAY_METRICS_MOST];
};

struct replay_metric {
    const char *title, *unit;
};

/* One trace. */
struct replay_curves {
    const char *trace;
    char        about[256];
    const char *x_unit;
    struct replay_point *point;
    uint32_t points;
};

/* A chart for each metric of each trace, a line for each policy with each
 * prefetch. 0, or 1 after a sentence on stderr. */
int replay_page(const char *path, const char *about,
                const struct replay_curves *curves, uint32_t traces,
                const struct replay_metric *metrics, uint32_t count);
/* The same for results without a clock. */
int replay_page_counts(const char *path, const char *const *traces,
                       struct replay *const *replays, uint32_t count);

#endif

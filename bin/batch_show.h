/* batch_show.h - what a batch says: the progress line, the summary, its part of
 * the report. */
#ifndef BIN_BATCH_SHOW_H
#define BIN_BATCH_SHOW_H

#include <jansson.h>

#include "bin/batch_feed.h"
#include "model/batch.h"
#include "model/forecast.h"

/* The line on a terminal: as of the last pass. */
struct batch_show {
    bool     on;
    struct k3 *k;
    int64_t  begin_ns, shown_ns;
    uint64_t lines; /* 0: not known */
    uint64_t done, before; /* lines; before: without this process */
    uint32_t running, layer, layers;
    uint64_t ids, bytes;
};

void batch_show_begin(struct batch_show *s, struct k3 *k);
void batch_show_pass(struct batch_show *s, const struct batch_feed *f,
                     const struct batch_counts *counts);
/* k3_options.progress. */
void batch_show_layer(void *show, uint32_t layer, uint32_t layers);
void batch_show_end(struct batch_show *s);

/* The object "batch" of the report. `given`: new ids that an earlier process
 * had found. */
json_t *batch_show_report(const struct batch_feed *f, uint64_t given,
                          const struct batch_counts *counts,
                          const struct forecast *forecast, struct k3 *k,
                          double wall_seconds);
/* What became of the lines; `cut`: the job is not at its end. */
void batch_show_summary(const struct batch_feed *f, bool cut);
/* The command that goes on with the job. */
void batch_show_again(int argc, char **argv);

#endif

/* show.h - what a batch says: the progress line, the summary, its part of
 * the report.
 *
 * Threads  the one that steps the session.
 * Errors   none: a report that has no memory is NULL.
 */
#ifndef BIN_BATCH_SHOW_H
#define BIN_BATCH_SHOW_H

#include <jansson.h>

#include "bin/batch/feed.h"
#include "model/knobs.h"
#include "model/sim/forecast.h"

/* The line on a terminal, which is written over, or lines for a file or a
 * journal: as of the last pass. */
struct batch_show {
    bool     on, terminal;
    int64_t  every_ns;
    struct sluice *session;
    int64_t  begin_ns, shown_ns;
    uint64_t lines; /* 0: not known */
    uint64_t done, before; /* lines; before: without this process */
    uint32_t running, layer, layers;
    uint64_t ids, bytes;
};

/* --progress: "off"; "auto": several times a second on a terminal, else once a
 * minute; "N" or "Ns": every N seconds. NULL, or what is wrong with it. */
const char *batch_show_every(int64_t *every_ns, const char *value);
/* every_ns as from batch_show_every. */
void batch_show_begin(struct batch_show *s, struct sluice *session,
                      int64_t every_ns);
void batch_show_pass(struct batch_show *s, const struct batch_feed *f);
/* sluice_options.progress. */
void batch_show_layer(void *show, uint32_t layer, uint32_t layers);
void batch_show_end(struct batch_show *s);

/* The object "batch" of the report:
 *   answered, errors, duplicates, finished_before   lines
 *   prompt_tokens, new_tokens  of those answered here: the sums of their usage
 *   prompt_tokens_read         rows of prompts that passes read
 *   elapsed_s, requests_per_s  answered a second
 *   ids_per_s                  new ids that this process made, a second
 *   seconds_per_token, cpu_seconds_per_token, bytes_per_token
 *                              what one of these ids cost, prompts included;
 *                              missing if there is none
 * `given`: new ids that an earlier process had found. */
json_t *batch_show_report(const struct batch_feed *f, uint64_t given,
                          const struct forecast *forecast,
                          struct sluice *session, double wall_seconds,
                          double cpu_seconds);
/* What became of the lines; `cut`: the job is not at its end. */
void batch_show_summary(const struct batch_feed *f, bool cut);
/* The exit status of a job at its end: 0, or that not every line has an
 * answer, or none has. */
enum { BATCH_STATUS_ERRORS = 3 };
int batch_show_status(const struct batch_feed *f);
/* The command that goes on with the job. */
void batch_show_again(int argc, char **argv);

#endif

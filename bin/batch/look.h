/* look.h - what the lines of a file will need, before the first is answered.
 *
 * Bytes    those of the longest line, as batch_feed_bytes counts them; all are
 *          free again.
 * Threads  one.
 * Errors   of the file.
 * Cost     its JSON; only lines that could be too long are encoded.
 */
#ifndef BIN_BATCH_LOOK_H
#define BIN_BATCH_LOOK_H

#include "bin/batch/job.h"

struct batch_need {
    uint64_t positions; /* the longest prompt with its new ids */
    bool     forms;     /* a line wants its text in a form */
};

/* Look at a regular file; a pipe has no needs that are known. Lines that will
 * be refused count for nothing. `rules` as they will be, but for the context:
 * what fits into that need not be counted exactly. */
int batch_look(struct batch_need *need, const char *path,
               const struct batch_rules *rules, struct error *error);

#endif

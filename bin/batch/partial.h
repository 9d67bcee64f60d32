/* partial.h - what unfinished requests have so far, for the next process.
 *
 * With the real model an answer may take hours. About every second, and when
 * the job is interrupted, the new ids of all running requests are written to
 * OUT.partial. The next process reads them as a part of the prompt and goes on
 * from there, to the same bits. An entry is for exactly one request: model, id,
 * prompt and sampling. An entry for no request is ignored.
 *
 *     batch_partial_open -> { batch_partial_give, batch_partial_save }
 *     -> batch_partial_close
 *
 * Bytes    the ids of the file.
 * Threads  one.
 * Errors   none: without the file only time is lost. That it cannot be written
 *          is said once, on stderr. A file of that name that no batch wrote,
 *          and a link, are left as they are; that is said, too.
 */
#ifndef BIN_BATCH_PARTIAL_H
#define BIN_BATCH_PARTIAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bin/batch/job.h"

struct batch_partial_entry {
    uint64_t  name[2]; /* a hash of the request */
    uint32_t *ids; /* [count] */
    uint32_t  count;
};

struct batch_partial {
    char     path[4096]; /* "": none */
    struct batch_partial_entry *entry; /* [count], for no job so far */
    uint32_t count;
    int64_t  next_ns; /* when it is written next */
    bool     failed, written; /* the last time; ever */
    bool     foreign; /* somebody else's file is there */
    dev_t    dev;     /* of the file as it was last written, or read */
    ino_t    ino;
};

/* `out` is the file of the answers. */
void batch_partial_open(struct batch_partial *p, const char *out);
/* Name the job, and give it the new ids that an earlier process found: ids,
 * count and reply. */
void batch_partial_give(struct batch_partial *p, struct batch_job *j,
                        const struct batch_rules *rules, double latent_eps);
/* Write the new ids of a chain of jobs, and the entries that no job has taken.
 * Does so when a second has passed, or `now`. */
void batch_partial_save(struct batch_partial *p, const struct batch_job *jobs,
                        bool now);
/* `complete`: the file is not needed any more. */
void batch_partial_close(struct batch_partial *p, bool complete);

#endif

/* batch_partial.h - what unfinished requests have so far, for the next process.
 *
 * With the real model an answer may take hours. Every second or so, and when
 * the job is interrupted, the new ids of all requests that are running go to
 * OUT.partial; the next process reads them like a part of the prompt and goes
 * on from there, to the same bits. An entry belongs to exactly what was asked:
 * model, id, prompt and sampling; one that belongs to nothing does nothing.
 *
 *     batch_partial_open -> { batch_partial_give, batch_partial_save }
 *     -> batch_partial_close
 *
 * Errors   none: the file can be lost, and only time is. What cannot be written
 *          is said once, on stderr.
 */
#ifndef BIN_BATCH_PARTIAL_H
#define BIN_BATCH_PARTIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "bin/batch_job.h"

struct batch_partial_entry {
    uint64_t  name[2];
    uint32_t *ids; /* [count] */
    uint32_t  count;
};

struct batch_partial {
    char     path[4096]; /* "": none */
    struct batch_partial_entry *entry; /* [count], not given yet */
    uint32_t count;
    int64_t  next_ns; /* not before */
    bool     failed, written;
};

/* `out` is the file of the answers. */
void batch_partial_open(struct batch_partial *p, const char *out);
/* Name the job, and give it what is known of its text: r.given, `count`, and
 * `reply`. */
void batch_partial_give(struct batch_partial *p, struct batch_job *j,
                        const struct batch_rules *rules, double latent_eps);
/* Write down what the jobs of a chain and the entries that were not given have;
 * if it is time for that, or `now`. */
void batch_partial_save(struct batch_partial *p, const struct batch_job *jobs,
                        bool now);
/* `complete`: the file is of no use any more. */
void batch_partial_close(struct batch_partial *p, bool complete);

#endif

/* batch_feed.h - the two files of a batch: lines in, one answer each out, and
 * which of them have one already.
 *
 * A line is known by its custom_id. Where it has none, or that of an earlier
 * line, it gets an error and is known by its number. What the output holds at
 * the start is finished: its lines are passed over.
 *
 *     batch_feed_open -> { batch_feed_next -> job -> batch_feed_answer,
 *     batch_feed_flush } -> batch_feed_close
 */
#ifndef BIN_BATCH_FEED_H
#define BIN_BATCH_FEED_H

#include "bin/batch_in.h"
#include "bin/batch_job.h"
#include "bin/batch_keys.h"
#include "bin/batch_out.h"

struct batch_feed {
    struct batch_in   in;
    struct batch_out *out;
    struct batch_keys keys;
    struct batch_rules rules; /* the caller's, set before the first next */
    struct batch_job  job;    /* being read */
    /* lines: with an answer from now, with an error, of these duplicates;
     * finished before */
    uint64_t answered, refused, duplicates, before;
    uint64_t blank; /* lines without anything */
    uint64_t puts;  /* since the last flush */
};

int batch_feed_open(struct batch_feed *f, const char *in, const char *out,
                    bool in_order, struct why *why);
/* `complete`: the input came to its end and all was answered. */
void batch_feed_close(struct batch_feed *f, bool complete);

/* 1: a request; *job is the caller's, to answer and free. 0: none now; with
 * `wait`, only after a signal. -ENODATA: the end. Lines that ask for nothing
 * that can be done are answered on the way. */
int batch_feed_next(struct batch_feed *f, bool wait, struct batch_job **job,
                    struct why *why);
int batch_feed_answer(struct batch_feed *f, const struct batch_job *job,
                      uint32_t count, enum batch_reason reason,
                      struct why *why);
int batch_feed_flush(struct batch_feed *f, struct why *why);

/* Heap that this takes, beside what is kept for each sequence. */
uint64_t batch_feed_bytes(const struct batch_feed *f);

#endif

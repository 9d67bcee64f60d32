/* feed.h - the two files of a batch: lines in, one answer each out, and
 * which of them have one already.
 *
 * A line is known by its custom_id. A line without one, or with that of an
 * earlier line, is answered by an error and known by its number. Lines that the
 * output answers already are skipped.
 *
 *     batch_feed_open -> { batch_feed_next -> job -> batch_feed_answer,
 *     batch_feed_flush } -> batch_feed_close
 *
 * Bytes    batch_feed_bytes.
 * Threads  one.
 * Errors   a sentence that names the file; -ENOMEM.
 */
#ifndef BIN_BATCH_FEED_H
#define BIN_BATCH_FEED_H

#include "bin/batch/in.h"
#include "bin/batch/job.h"
#include "bin/batch/keys.h"
#include "bin/batch/out.h"

struct batch_feed {
    struct batch_in   in;
    struct batch_out *out;
    struct batch_keys keys;
    struct batch_rules rules; /* the caller's, set before the first next */
    struct batch_job  job;    /* being read */
    struct batch_job *others; /* of the line that was read last */
    /* Lines that this process answered, and answered with an error; of those,
     * duplicates. Lines that the output had answered at the start. */
    uint64_t answered, refused, duplicates, before;
    /* Of those answered here, as their usage says. */
    uint64_t prompt_tokens, new_tokens;
    uint64_t hashed, unhashed; /* answers of the output, by sluice_hash */
    /* Texts of those that came to their limit; of these, still in their
     * thoughts. Of the lines answered before, those with an error. */
    uint64_t cut, thinking, errors_before;
    uint64_t retried; /* errors that left the output */
    const char *text; /* [text_bytes] the line at hand; NULL: too long */
    size_t   text_bytes;
    uint64_t blank;   /* empty lines */
    uint64_t ignored; /* fields that --lenient ignored */
    uint64_t puts;    /* answers since the last flush */
    bool     strict;  /* an answer to another request is an error */
    bool     unfinished; /* the input ends in the middle of a line */
};

int batch_feed_open(struct batch_feed *f, const char *in, const char *out,
                    bool in_order, struct error *error);
/* `complete`: the input ended and every line has its answer. */
void batch_feed_close(struct batch_feed *f, bool complete);

/* Take errors that are to be asked again out of the output (retry.h). After
 * the rules. */
int batch_feed_retry(struct batch_feed *f, const char *out, bool in_order,
                     bool all, struct error *error);
/* Do all answers of the output answer the lines of the input as they are now?
 * Reads a file once more; lines of a pipe are compared as they come. Needs
 * `strict` and rules.identity. */
int batch_feed_check(struct batch_feed *f, struct error *error);
/* Every line has its answer: was the input whole, and is it as it was? */
int batch_feed_ended(struct batch_feed *f, struct error *error);

/* The next line that asks for something. 1: *job is the caller's, to answer and
 * to free. 0: no line is there; with `wait`, not for a while. -ENODATA: the
 * input has ended. Lines with an error are answered here. */
int batch_feed_next(struct batch_feed *f, bool wait, struct batch_job **job,
                    struct error *error);
/* A job has ended, with `count` new ids; with the last of a line's, the line is
 * answered. */
int batch_feed_answer(struct batch_feed *f, struct batch_job *job,
                      uint32_t count, enum sluice_finish finish,
                      struct error *error);
/* What was answered is on the drive when this returns. */
int batch_feed_flush(struct batch_feed *f, struct error *error);

/* Requests in the file, if every line has as many prompts as the last that was
 * read; 0: not known, it is a pipe. */
uint64_t batch_feed_requests(const struct batch_feed *f);

/* Bound what a pipe may bring, of which nobody knows how much it is; and what a
 * request holds while it runs, its id and its stop strings. After the rules,
 * before the first line. */
void batch_feed_limit(struct batch_feed *f, uint64_t memory_bytes);
/* Of a job: its id and its stop strings. */
uint64_t batch_feed_job_bytes(const struct batch_feed *f);
/* Heap bytes that the feed takes at most, jobs left out. */
uint64_t batch_feed_bytes(const struct batch_feed *f);

#endif

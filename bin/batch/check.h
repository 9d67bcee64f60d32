/* check.h - what a job will do, before it does: which lines are refused, how
 * many passes the others take.
 *
 *     { 0 } -> batch_check_lines -> batch_check_passes -> batch_check_free
 *
 * Bytes    8 a request; 32 to 96 a line; those of the longest line.
 * Threads  one.
 * Errors   a sentence that names the file; -ENOMEM.
 */
#ifndef BIN_BATCH_CHECK_H
#define BIN_BATCH_CHECK_H

#include "bin/batch/job.h"

struct batch_check_request {
    uint32_t prompt, max; /* ids */
};

struct batch_check {
    struct batch_check_request *request; /* [requests], in order */
    uint64_t requests, capacity;
    uint64_t lines, refused, blank; /* without those that are answered */
    uint64_t answered;              /* lines that `out` answers */
    uint64_t prompt_ids, max_ids;
};

/* Read all lines of `in`, and print to stdout, a line each, what will be
 * refused. `out`: NULL, or the output that is continued. */
int batch_check_lines(struct batch_check *c, const char *in, const char *out,
                      const struct batch_rules *rules, struct error *error);
/* The passes of all requests with so many sequences and rows, each request to
 * its limit, nothing shared; *weight: their sum by the rows of each pass, as
 * `cost` of a pass with so many rows. */
uint64_t batch_check_passes(const struct batch_check *c, uint32_t sequences,
                            uint32_t rows, double (*cost)(void *, uint32_t),
                            void *arg, double *weight, struct error *error);
void batch_check_free(struct batch_check *c);

#endif

/* job_internal.h - how a line becomes a job: what job.c and wishes.c share. */
#ifndef BIN_BATCH_JOB_INTERNAL_H
#define BIN_BATCH_JOB_INTERNAL_H

#include "bin/batch/job.h"
#include "model/chat/request.h"

/* All three return a negative errno, with the sentence in *error. */
int job_refuse(struct batch_job *j, const char *code, struct error *error,
               const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int job_no_memory(const struct batch_job *j, struct error *error);
int job_refused(struct batch_job *j, int err, const struct refusal *r,
                struct error *error);

/* The request of a line that was read. */
int job_request(struct batch_job *j, const struct batch_rules *rules,
                struct request *q, struct error *error);
/* The ids of its longest prompt. */
int job_longest(struct batch_job *j, const struct batch_rules *rules,
                const struct request *q, uint64_t *ids, struct error *error);
/* Before the prompt is encoded: samplers, limit, form, stop ids. */
int job_take_options(struct batch_job *j, const struct batch_rules *rules,
                     const struct request *q, struct error *error);
/* The reply's reader with its stop strings, and what else is wanted of the
 * text: echo, logprobs. */
int job_begin_reply(struct batch_job *j, const struct batch_rules *rules,
                    const struct request *q, struct error *error);

#endif

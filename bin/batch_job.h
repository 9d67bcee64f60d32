/* batch_job.h - one line of a batch: from JSON to a request, and from what was
 * generated to the line that answers it.
 *
 * A line is an OpenAI batch request (custom_id, method, url, body), or the body
 * itself with an `id` beside its fields. A field that would change the text and
 * is not served is an error, and so is one that nobody knows: no line is
 * answered as if it had asked for something else.
 *
 *     batch_job_read -> batch_job_body -> { reply_push ... } ->
 *     batch_job_answer -> batch_job_free
 */
#ifndef BIN_BATCH_JOB_H
#define BIN_BATCH_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/batch.h"
#include "model/config.h"
#include "model/reply.h"
#include "model/tok.h"
#include "model/why.h"

/* What holds for all lines, and what a line does not say. */
struct batch_rules {
    const char *model; /* the folder, as it was given */
    const char *name;  /* its last part: what answers call the model */
    const struct tok *tok; /* NULL: prompts are ids, answers have no text */
    uint32_t vocab, context;
    uint32_t most; /* new ids, where a line has no max_tokens */
    struct sample_options sample;
    bool     ignore_end;
};

struct batch_job {
    struct batch_job *after; /* the caller's */
    uint64_t name[2];        /* of what is asked; batch_partial.h */
    uint32_t count;          /* new ids so far */
    uint64_t line;
    json_t  *root;   /* until batch_job_body */
    json_t  *id;     /* custom_id: text or a whole number; NULL: none */
    json_t  *stop;   /* keeps the stop strings of `reply` */
    const char *code; /* of the error, when there is one */
    bool     chat, want_ids;
    struct batch_request r; /* r.ids is ours */
    struct reply reply;
};

/* Parse a line and find its id. On an error with `why` set, -EINVAL, the line
 * gets an error for an answer; -ENOMEM. */
int batch_job_read(struct batch_job *j, uint64_t line, const char *text,
                   size_t bytes, struct why *why);
/* What is asked for, to j->r and j->reply. Errors as above. */
int batch_job_body(struct batch_job *j, const struct batch_rules *rules,
                   struct why *why);
/* The answers, as JSON on one line; the caller frees them. NULL: no memory. */
char *batch_job_answer(const struct batch_job *j,
                       const struct batch_rules *rules, uint32_t count,
                       enum batch_reason reason);
char *batch_job_error(const struct batch_job *j, const struct why *why);
void  batch_job_free(struct batch_job *j);

#define BATCH_DUPLICATE "duplicate_custom_id"

#endif

/* job.h - one line of a batch: from JSON to a request, and from what was
 * generated to the line that answers it.
 *
 * A line is an OpenAI batch request (custom_id, method, url, body), or the body
 * itself with an `id` beside its fields (model/chat/request.h). A completion
 * may have several prompts: then the line is as many jobs, which share a group,
 * and the last to end has the answers of all.
 *
 *     batch_job_read -> batch_job_body -> { batch_job_push ... } ->
 *     batch_job_end -> batch_job_answer -> batch_job_free
 *
 * Threads  one caller a job, and one a group.
 * Errors   -EINVAL with a sentence for the answer; -ENOMEM.
 */
#ifndef BIN_BATCH_JOB_H
#define BIN_BATCH_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "bin/cli/samplers.h"
#include "model/chat/answer.h"
#include "model/chat/reply.h"
#include "model/ckpt/config.h"
#include "model/ckpt/error.h"
#include "model/json/jv.h"
#include "model/sluice.h"
#include "model/text/tok.h"

/* What holds for all lines, and what a line does not say. */
struct batch_rules {
    const char *model; /* the folder, as it was given */
    const char *name;  /* its last part: what answers call the model */
    const struct tok *tok; /* NULL: prompts are ids, answers have no text */
    uint32_t vocab, context;
    uint32_t held_max; /* bytes of a request's stop strings; 0: any */
    uint32_t max; /* new ids, where a line has no max_tokens */
    /* For sluice_hash; NULL: answers have none. identity.h; the epsilon of the
     * latent norms. */
    const char *identity;
    double   latent_eps;
    const struct samplers_args *samplers; /* where a line says nothing */
    bool     no_forms; /* the session cannot keep a text to a form */
    bool     lenient; /* unknown fields are ignored */
    bool     one_prompt; /* a line with several is refused */
    /* What a request may call the model, ended by NULL. NULL: the folder, its
     * name, and whatever says K3. */
    const char *const *served;
};

enum { BATCH_PROMPTS_MAX = 2048 }; /* of a line */

/* The jobs of one line. */
struct batch_group;

struct batch_job {
    struct batch_job *after; /* the caller's */
    void    *owner;          /* the same */
    uint64_t name[2];        /* of what is asked; partial.h */
    uint32_t *ids;           /* ours: the prompt, then new ids */
    uint32_t prompt_count, count; /* count: new ids so far */
    enum sluice_finish finish;    /* after batch_job_end */
    uint64_t line;
    uint32_t index;            /* of the choice in its line */
    uint32_t choices;          /* of its prompt */
    struct batch_group *group; /* NULL: the line's only prompt */
    struct batch_job *next;    /* with the next prompt, from malloc; the caller
                                * of batch_job_body takes it */
    uint32_t ignored;          /* fields that were ignored */
    struct jv_doc doc;   /* until batch_job_body */
    const struct jv *id; /* in `doc`: custom_id, a text or a whole number */
    struct buffer id_text; /* the same as JSON; empty: none */
    struct buffer stop;  /* the stop strings of `reply` */
    const char *code;    /* of the error, when there is one */
    char     field[160]; /* that it is about; "": none */
    bool     chat, prefill, want_ids;
    bool     stream, stream_usage;
    uint32_t stop_id[REQUEST_STOPS_MAX], stop_ids;
    struct sluice_bias *bias;    /* ours; of `r` */
    struct buffer form;          /* the same: a schema or a pattern */
    struct buffer tools;         /* the same: tools whose calls are kept to
                                  * their schemas */
    struct buffer echo;          /* the prompt, if its text is wanted */
    struct answer_score *score;  /* [count], if they are wanted */
    struct answer_logprob *top;  /* [r.max_ids][r.logprobs - 1] */
    struct sluice_request r; /* sampling, form and max_ids */
    struct reply reply;
};

/* Parse a line and find its id. On an error with `why` set, -EINVAL, the line
 * gets an error for an answer; -ENOMEM. */
int batch_job_read(struct batch_job *j, uint64_t line, const char *text,
                   size_t bytes, struct error *error);
/* What is asked for, to j->ids, j->r and j->reply, and those of j->next.
 * Errors as above. */
int batch_job_body(struct batch_job *j, const struct batch_rules *rules,
                   struct error *error);
/* Both for a body alone, which is no line of a file: it has no id. */
int batch_job_request(struct batch_job *j, uint64_t number, const char *text,
                      size_t bytes, const struct batch_rules *rules,
                      struct error *error);
/* A new id of the text. 1: it is the last. -ENOMEM. */
int  batch_job_push(struct batch_job *j, uint32_t id);
/* The same, into j->ids, with what the session says of it. */
int  batch_job_token(struct batch_job *j, const struct sluice_token *t);
/* No more ids. 1: the line can be answered. 0: others of its group have not
 * ended; `j` has nothing any more. -ENOMEM. */
int  batch_job_end(struct batch_job *j, uint32_t count,
                   enum sluice_finish finish);
/* Of all jobs of a line, after batch_job_end has been 1: a prompt counts once
 * for all its choices. */
void batch_job_usage(const struct batch_job *j, uint64_t *prompt_tokens,
                     uint64_t *new_tokens);
/* The answers, as JSON on one line; the caller frees them. NULL: no memory. */
char *batch_job_answer(const struct batch_job *j,
                       const struct batch_rules *rules);
/* `hash`: batch_hash_error; NULL or "": none. */
char *batch_job_error(const struct batch_job *j, const struct error *error,
                      const char *hash);
/* The answer's body alone; `number` stands in its id. */
void batch_job_answer_body(struct buffer *out, const struct batch_job *j,
                           const struct batch_rules *rules,
                           const char *number, int64_t created);
/* The value of "logprobs" of one of batch_job_parts. */
void batch_job_logprobs(struct buffer *out, const struct batch_job *part,
                        const struct batch_rules *rules);
/* Not j->next. */
void  batch_job_free(struct batch_job *j);
/* The ended jobs of a line, by their prompts: `*count` of them. */
const struct batch_job *batch_job_parts(const struct batch_job *j,
                                        uint32_t *count);

#define BATCH_DUPLICATE "duplicate_custom_id"

#endif

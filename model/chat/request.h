/* request.h - the body of a completion or chat request, as programs send it.
 *
 * One reader for every door: files of requests, a server, the command line.
 * null and what is empty mean that a field is absent. A number is its value:
 * 3.0 is 3. Of equal keys the last counts; of two names of one field the newer.
 * A field that would change the answer and is not supported is refused, so is
 * one that nobody knows and that has a value: nothing is answered as if it had
 * asked for something else.
 *
 *     request_read -> { chat_encode | request_prompt } -> ...
 *
 * Bytes    points into the body's values, which must stay.
 * Threads  any number.
 * Errors   -EINVAL with the field, -ENOMEM.
 */
#ifndef MODEL_CHAT_REQUEST_H
#define MODEL_CHAT_REQUEST_H

#include "model/chat/chat.h"
#include "model/chat/request_sampling.h"

enum {
    REQUEST_STOPS_MAX = 16,
    REQUEST_CHOICES_MAX = 128,
    REQUEST_LOGPROBS_MAX = 20,
};

/* What the text of an answer has to be. */
enum request_form {
    REQUEST_FREE,
    REQUEST_JSON,   /* a JSON object */
    REQUEST_SCHEMA, /* JSON of a schema */
    REQUEST_PATTERN /* all of it matches a regular expression */
};

struct request {
    bool is_chat;
    struct chat chat;
    const struct jv *prompt;  /* of a completion: text, ids, or a list of
                               * several of them */
    uint32_t prompts;         /* how many; 1 for a chat */
    const struct jv *model;   /* a text, or NULL */
    uint32_t max;             /* new ids; 0: not said */
    uint32_t choices;         /* of each prompt, from 1 */
    struct request_sampling sampling;
    const struct jv *bias;    /* for request_biases, or NULL */
    const struct jv *stop[REQUEST_STOPS_MAX]; /* texts, none empty */
    uint32_t stops;
    uint32_t stop_id[REQUEST_STOPS_MAX];
    uint32_t stop_ids;
    enum request_form form;
    const struct jv *form_value; /* of a schema, JSON or a text of it; of a
                                  * pattern, a text */
    bool     logprobs;    /* of each id, and of so many likeliest ones */
    uint32_t top_logprobs;
    bool     echo;        /* the text begins with the prompt */
    bool     has_ignore_end, ignore_end; /* go on past end ids */
    bool     want_ids;    /* the answer has the ids, too */
    bool     stream, stream_usage;
    uint32_t ignored;     /* unknown fields that were ignored */
};

/* `defaults`: the sampling of a request that says nothing; NULL: the likeliest
 * id. `beside`: names of other fields that stand in the same object, ended by
 * NULL; or NULL. `lenient` ignores unknown fields and those that are not
 * supported. */
int request_read(struct request *q, const struct jv *body,
                 const struct request_sampling *defaults,
                 const char *const *beside, bool lenient, struct refusal *r);

/* Append the ids of prompt number `which` of a completion. `t` may be NULL:
 * then only ids can be read. */
int request_prompt(const struct request *q, uint32_t which,
                   const struct tok *t, uint32_t vocab, struct id_list *out,
                   struct refusal *r);

#endif

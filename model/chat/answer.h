/* answer.h - replies to the body of a response, as the API's types have it.
 *
 * All fields that strict clients demand are there. Nothing depends on the time
 * but `created`, so that the same job gives the same bytes but for it. A call's
 * id is made of the prompt and the call's place: other turns of a conversation
 * have others.
 *
 * Logprobs are of the ids that the content is made of: not of thoughts, tags
 * and calls. A piece that is no UTF-8 by itself is spelt bytes:\xE2\x82.
 *
 * Threads  any number.
 * Errors   the buffer's.
 */
#ifndef MODEL_CHAT_ANSWER_H
#define MODEL_CHAT_ANSWER_H

#include "model/chat/reply.h"
#include "model/json/buffer.h"

struct answer_logprob {
    uint32_t id;
    double   logprob; /* natural */
};

/* Of a new id. */
struct answer_score {
    struct answer_logprob own;
    enum reply_region region; /* reply_place before the id was pushed */
    const struct answer_logprob *top; /* [tops] the likeliest, best first */
    uint32_t tops;
};

struct answer_choice {
    const struct reply *reply; /* ended */
    const char *echo;          /* [echo_bytes] before the text; NULL: none */
    size_t      echo_bytes;
    const struct answer_score *score; /* [scores] of the first new ids; NULL:
                                       * not asked for */
    uint32_t    scores;
    const uint32_t     *ids;   /* to be listed; NULL: not asked for */
    uint32_t            count; /* of them */
};

struct answer {
    bool        is_chat;
    const char *number; /* the response's own, behind chatcmpl- or cmpl- */
    const char *model;
    const struct tok *tok; /* of scores; NULL: ids have no text */
    int64_t     created; /* seconds since 1970 */
    uint64_t    prompt_ids, new_ids; /* for usage; of all choices */
    uint64_t    prompt_hash;         /* answer_hash of the prompt's ids */
    const struct answer_choice *choice;
    uint32_t    choices;
};

void answer_body(struct buffer *out, const struct answer *a);
/* The value of a choice's "logprobs": null when none were asked for. */
void answer_logprobs(struct buffer *out, const struct answer *a,
                     const struct answer_choice *c);

uint64_t answer_hash(const uint32_t *ids, size_t count);

#endif

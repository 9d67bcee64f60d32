/* request_sampling.h - how a request wants its ids to be chosen.
 *
 * What a request does not say stays as it is: the caller's defaults. A value
 * that means "off" in one API or another (top_k -1, repetition_penalty 1)
 * counts, so that a request can switch a default off.
 *
 *     { defaults } -> request_sampling -> { request_biases }
 *
 * Threads  any number.
 * Errors   -EINVAL with the field.
 */
#ifndef MODEL_CHAT_REQUEST_SAMPLING_H
#define MODEL_CHAT_REQUEST_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "model/chat/refusal.h"
#include "model/json/jv.h"

struct request_sampling {
    double   temperature; /* 0: the likeliest id */
    double   top_p;       /* 1: all */
    uint32_t top_k;       /* 0: all */
    double   min_p;       /* of the likeliest one's probability; 0: all */
    double   presence, frequency; /* 0: nothing */
    double   repetition;  /* 1: nothing */
    uint64_t seed;
    bool     has_seed;    /* the request has said it */
};

enum { REQUEST_BIASES_MAX = 1024 };

struct request_bias {
    uint32_t id;
    float    add;
};

/* Put what the body says over *s. */
int request_sampling(struct request_sampling *s, const struct jv *body,
                     struct refusal *r);

/* logit_bias: an object from ids, as text, to numbers from -100 to 100. Fills
 * out[REQUEST_BIASES_MAX] with `*count` biases in the order of their ids; of
 * equal ids the last counts. `bias` may be NULL. */
int request_biases(const struct jv *bias, uint32_t vocab,
                   struct request_bias *out, uint32_t *count,
                   struct refusal *r);

#endif

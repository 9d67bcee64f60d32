/* sample.h - one id from one row of logits.
 *
 * The random number of a position is f(seed, sequence, position) and nothing
 * else, so a token does not depend on drafts, batching or restarts.
 */
#ifndef MODEL_DECODE_SAMPLE_H
#define MODEL_DECODE_SAMPLE_H

#include <stdint.h>

enum { SAMPLE_ID_BYTES = 20 }; /* of scratch for an id of the vocabulary */

struct sample_bias {
    uint32_t id;
    float    add; /* to its logit */
};

/* All zero but top_p = 1: the likeliest id. */
struct sample_options {
    double   temperature; /* 0: greedy */
    double   top_p;       /* 1: all */
    uint64_t seed;
    uint32_t top_k;       /* 0: all */
    double   min_p;       /* of the likeliest one's probability; 0: all */
    double   presence, frequency; /* taken off for new ids; 0: nothing */
    double   repetition;  /* divides logits above 0 of all ids so far, and
                           * multiplies those below; 0 or 1: nothing */
    const struct sample_bias *bias; /* [biases] ids below the vocabulary's
                                     * size */
    uint32_t biases;
};

/* What stands before the position, and what may come. */
struct sample_context {
    const uint32_t *ids;  /* the prompt, then new ids */
    uint32_t prompt, fresh; /* how many of each */
    const uint64_t *mask; /* bit id % 64 of word id / 64: it may come; NULL:
                           * every id may */
};

/* The id with the largest logit, the lowest on equal ones. */
uint32_t sample_greedy(const float *logits, uint32_t vocab);

/* One id, in this order: biases are added; repetition, then frequency and
 * presence penalties; ids that the mask leaves out are gone. Greedy, or:
 * softmax at `temperature`; ids below min_p; the top_k likeliest; of those the
 * smallest set of likeliest ids whose share reaches top_p; and of it the id at
 * the position's number. Of equally likely ids the lower comes first. `scratch`
 * is vocab x SAMPLE_ID_BYTES bytes, and nothing is allocated. The mask allows
 * at least one id. */
uint32_t sample(const float *logits, uint32_t vocab,
                const struct sample_options *o,
                const struct sample_context *context, uint64_t sequence,
                uint64_t position, void *scratch);

/* The position's number, in [0, 1). */
double sample_number(uint64_t seed, uint64_t sequence, uint64_t position);

#endif

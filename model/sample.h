/* sample.h - one id from one row of logits.
 *
 * The random number of a position is f(seed, sequence, position) and nothing
 * else, so a token does not depend on drafts, batching or restarts.
 */
#ifndef MODEL_SAMPLE_H
#define MODEL_SAMPLE_H

#include <stdint.h>

struct sample_options {
    double   temperature; /* 0: greedy */
    double   top_p;       /* 1: all */
    uint64_t seed;
};

/* The id with the largest logit, the lowest on equal ones. */
uint32_t sample_greedy(const float *logits, uint32_t vocab);

/* Greedy, or: softmax at `temperature`, the smallest set of most likely ids
 * (lower id first on equal ones) whose probability reaches top_p, and of it
 * the id at the position's number. `scratch` is vocab x 16 bytes, and
 * nothing is allocated. */
uint32_t sample(const float *logits, uint32_t vocab,
                const struct sample_options *o, uint64_t sequence,
                uint64_t position, void *scratch);

/* The position's number, in [0, 1). */
double sample_number(uint64_t seed, uint64_t sequence, uint64_t position);

#endif

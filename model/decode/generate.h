/* generate.h - one prompt to new ids on a bare engine: a batch of one, for
 * benches and tests. The library's callers have sluice_generate.
 *
 *     generate -> 0, ids in result
 *
 * Threads  one; callbacks come from it.
 * Errors   -EINVAL: the request is not one that batch_check lets through;
 *          -ENOMEM; those of k3_pass and of the logits callback. What was
 *          generated before a failure is in result.
 */
#ifndef MODEL_DECODE_GENERATE_H
#define MODEL_DECODE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/decode/batch.h"

struct generate_options {
    const uint32_t *prompt;
    uint32_t prompt_count; /* >= 1 */
    uint32_t max;          /* new ids; 0: the prompt alone */
    struct sample_options sample;
    bool     ignore_end;   /* go on past end ids */
    bool   (*is_end)(void *arg, uint32_t id); /* or NULL */
    void    *is_end_arg;
    /* NULL, or the logits of every position, in order; the engine then has
     * options.logits 0. Not 0: an error, which ends it. */
    int    (*logits)(void *arg, const float *row);
    void    *arg;
    struct draft_options draft;
};

struct generate_result {
    uint32_t *ids; /* the caller's, room for `max` */
    uint32_t  count;
    bool      ended; /* by an end id, which is not among them */
    uint64_t  drafted, accepted; /* draft rows */
};

int generate(struct k3 *k, const struct generate_options *o,
             struct generate_result *result, struct error *error);

#endif

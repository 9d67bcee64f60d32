/* generate.h - one prompt to new ids: prefill in chunks, then decode.
 *
 *     generate -> 0, ids in result
 *
 * The prompt goes through the model in passes of as many rows as the plan
 * allows; then comes a row a pass, and with it draft rows, whose number never
 * changes an id or a logit. Look-ahead of the trunk ends with the last pass
 * that is sure to come unless an end id does.
 */
#ifndef MODEL_GENERATE_H
#define MODEL_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/draft.h"
#include "model/k3.h"
#include "model/sample.h"

struct generate_options {
    const uint32_t *prompt;
    uint32_t prompt_count; /* >= 1 */
    uint32_t most;         /* new ids; 0: the prompt alone */
    struct sample_options sample;
    bool     ignore_end;   /* go on past end ids */
    bool   (*is_end)(void *arg, uint32_t id);
    void    *is_end_arg;
    bool     all_logits;   /* hand out a row for every position; the session
                            * then has options.logits 0 */
    /* Both may be NULL. The logits of positions in order; of each new id. */
    int    (*logits)(void *arg, const float *row);
    void   (*token)(void *arg, uint32_t id);
    void    *arg;
    struct draft_options draft;
};

struct generate_result {
    uint32_t *ids; /* the caller's, room for `most` */
    uint32_t  count;
    bool      ended; /* by an end id, which is not among them */
    uint64_t  drafted, accepted;
};

/* The prompt and new ids must fit the context. Errors of k3_pass, of the logits
 * callback, -EINVAL, -ENOMEM. What was generated before a failure is in
 * result. */
int generate(struct k3 *k, const struct generate_options *o,
             struct generate_result *result, struct why *why);

#endif

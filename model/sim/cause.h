/* cause.h - what a pass spends its time on, in one word: the verdict that plan,
 * doctor and profile give.
 *
 * Threads  any. Errors: none.
 */
#ifndef MODEL_SIM_CAUSE_H
#define MODEL_SIM_CAUSE_H

#include <stdbool.h>
#include <stdint.h>

enum cause {
    CAUSE_NONE,      /* reads and compute take about as long */
    CAUSE_COMPUTE,   /* it hardly waits */
    CAUSE_BYTES,     /* the drives have no time left */
    CAUSE_ROUTER,    /* waits for experts, while the drives have time */
    CAUSE_TURNS,     /* one drive at a time is at work */
    CAUSE_ONE_DRIVE, /* one drive works much longer than the others */
    CAUSE_EMBEDDING, /* waits for rows of the embedding */
    CAUSE_COLD,      /* reads experts into a cache that was never full */
};

struct cause_input {
    double seconds;
    double wait_trunk_s, wait_expert_s, wait_embed_s; /* apart */
    uint32_t drives;
    double used_share; /* bytes a second as a share of the drives' rates */
    double busiest_share, others_share; /* of the time, the busiest drive is at
                                         * work, and the others on average */
    double any_share;  /* of the time, a read is on some drive */
    double at_once;    /* drives with a read, on average over the time */
    bool   cold;          /* the cache has room left, and experts are most of
                           * the bytes */
};

enum cause cause_of(const struct cause_input *in);
/* "one drive at a time" */
const char *cause_name(enum cause cause);

#endif

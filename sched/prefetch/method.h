/* method.h - the functions of a prefetcher. Private to sched/prefetch/.
 *
 * Errors  open returns -ENOMEM; close is called for what it set in that case
 *         too. Nothing else fails.
 * Threads one owner at a time.
 *
 * To add one: a file NAME.c that defines `const struct prefetch_method
 * prefetch_NAME`, a line below, a row of the table in prefetcher.c.
 */
#ifndef SCHED_PREFETCH_METHOD_H
#define SCHED_PREFETCH_METHOD_H

#include "sched/prefetch/prefetcher.h"

struct prefetch_shape {
    uint32_t layers, experts; /* MoE layers, experts in each */
    uint32_t top_k;           /* experts that a row chooses in a layer */
    uint32_t sequences;       /* slots */
};

/* What one row chose in one layer. */
struct prefetch_seen {
    uint32_t sequence, step, layer;
    uint32_t row; /* number among the sequence's rows of this step and layer */
    const uint32_t *ids; /* [k] best first */
    uint32_t k;
};

/* Where the names go. */
struct prefetch_names {
    uint32_t *ids;     /* [max] */
    float *confidence; /* [max] chances, 0 .. 1, not increasing */
    uint32_t max;
};

/* As prefetcher.h has them. saw, next and forget may be NULL. */
struct prefetch_method {
    const char *name;
    const char *about; /* what it does, in one line, for --help */
    int (*open)(void **state, const struct prefetch_shape *shape);
    void (*close)(void *state);
    void (*saw)(void *state, const struct prefetch_seen *seen);
    uint32_t (*next)(void *state, uint32_t sequence, uint32_t layer,
                     const struct prefetch_names *out);
    void (*forget)(void *state, uint32_t sequence);
};

/* Name the experts with the highest scores above 0, of equals the lower id
 * first. confidence = score * scale, at most 1. Returns how many. */
uint32_t prefetch_best(const float *score, uint32_t experts, float scale,
                       const struct prefetch_names *out);

extern const struct prefetch_method prefetch_ema;
extern const struct prefetch_method prefetch_path;
extern const struct prefetch_method prefetch_prev;
extern const struct prefetch_method prefetch_table;

#endif

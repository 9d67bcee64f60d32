/* predictor.h - the table that a predictor fills. Private to sched/.
 *
 * To add one: a file predict_NAME.c that defines `const struct predictor
 * predictor_NAME`, one line below, one row of the table in predict.c.
 */
#ifndef SCHED_PREDICTOR_H
#define SCHED_PREDICTOR_H

#include "sched/predict.h"

struct predict_shape {
    uint32_t layers, experts, top_k, sequences;
};

/* One row's choice. */
struct predict_seen {
    uint32_t sequence, step, layer;
    uint32_t row; /* number among the sequence's rows of this step, layer */
    const uint32_t *ids;
    uint32_t k;
};

/* Where names go. */
struct predict_names {
    uint32_t *ids;
    float *confidence;
    uint32_t most;
};

struct predictor {
    const char *name;
    const char *about;
    int  (*open)(void **state, const struct predict_shape *shape);
    void (*close)(void *state);
    void (*saw)(void *state, const struct predict_seen *seen);
    uint32_t (*next)(void *state, uint32_t sequence, uint32_t layer,
                     const struct predict_names *out);
    void (*forget)(void *state, uint32_t sequence);
};

/* The names with the highest scores above 0, the lower id first among equals;
 * confidence = score * scale, at most 1. */
uint32_t predict_best(const float *score, uint32_t experts, float scale,
                      const struct predict_names *out);

extern const struct predictor predictor_ema;
extern const struct predictor predictor_path;
extern const struct predictor predictor_prev;
extern const struct predictor predictor_table;

#endif

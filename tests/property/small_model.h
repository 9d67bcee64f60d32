/* small_model.h - a checkpoint of a megabyte or two in a temporary folder, for
 * tests that run the model many times.
 *
 *     small_model_make -> { small_model_open ... k3_close }
 *     -> small_model_remove
 */
#ifndef TESTS_PROPERTY_SMALL_MODEL_H
#define TESTS_PROPERTY_SMALL_MODEL_H

#include <stdint.h>

#include "model/k3/k3.h"

struct small_model {
    char dir[64];
};

/* Write it; `echo` is the length of the cycle that greedy output is, or 0. All
 * failures end the test program. */
void small_model_make(struct small_model *m, uint32_t echo);
/* Wider, with weights as in trained models: one worth coding and cutting. */
void small_model_make_wide(struct small_model *m);
void small_model_remove(struct small_model *m);
/* The options that tests start from: 2 threads, context 256, pread. */
struct k3_options small_model_options(uint64_t memory_bytes);
/* The least memory these options work with. */
uint64_t small_model_floor(const struct small_model *m, struct k3_options o);
struct k3 *small_model_open(const struct small_model *m,
                            const struct k3_options *o);

enum { SMALL_MODEL_ROWS = 32 };
/* The logits after each of the ids, a line of `vocab` numbers each, or as many
 * as the model has; `rows` a pass, at most SMALL_MODEL_ROWS. */
int small_model_logits(float *logits, uint32_t vocab, struct k3 *k,
                       const uint32_t *ids, uint32_t count, uint32_t rows,
                       struct error *error);

/* The next number of a sequence that is the same on every machine. */
uint32_t small_model_random(uint64_t *state);

#endif

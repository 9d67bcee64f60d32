/* plan_batch.h - the --batch part of sluice plan: the forecast for 1 to 256
 * sequences under one budget, as sluice batch makes it.
 *
 * Errors   -ENOMEM; those of k3_shape_of. Threads: one caller.
 */
#ifndef BIN_REPORT_PLAN_BATCH_H
#define BIN_REPORT_PLAN_BATCH_H

#include <jansson.h>

#include "model/sim/forecast.h"

enum { PLAN_BATCH_MAX = 256 };

struct plan_batch {
    struct forecast curve[PLAN_BATCH_MAX]; /* [i]: i + 1 sequences */
    uint32_t best; /* index, or PLAN_BATCH_MAX: none fits */
};

/* `o` is as for k3_open with one sequence, with drives and their layout;
 * compute_s is the time of compute of a pass of one row. */
int plan_batch_fill(struct plan_batch *b, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    struct error *error);
/* A pass of `rows` rows, each of another text, with no experts kept; otherwise
 * the same. */
int plan_batch_pass(struct pass_times *out, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    uint32_t rows, struct error *error);
/* Print a table for 1, 2, 4, ... sequences and the best. */
void plan_batch_print(const struct plan_batch *b);
/* An object with the whole curve, which the caller decrefs. */
json_t *plan_batch_json(const struct plan_batch *b);

#endif

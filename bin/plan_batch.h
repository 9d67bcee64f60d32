/* plan_batch.h - the part of sluice plan that is about many sequences: what a
 * batch of 1 to 256 would give under the same budget, as sluice batch sees
 * it. */
#ifndef BIN_PLAN_BATCH_H
#define BIN_PLAN_BATCH_H

#include <jansson.h>

#include "model/forecast.h"

enum { PLAN_BATCH_MOST = 256 };

struct plan_batch {
    struct forecast curve[PLAN_BATCH_MOST]; /* [i]: i + 1 sequences */
    uint32_t best; /* index, or PLAN_BATCH_MOST: none fits */
};

/* `o` as for k3_open, for one sequence; compute_s is what a pass of one row
 * computes, drive_bytes what all drives read a second. */
int plan_batch_fill(struct plan_batch *b, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    double drive_bytes, struct why *why);
/* A table on stdout, for some of the numbers of sequences. */
void plan_batch_print(const struct plan_batch *b);
/* An object with the whole curve, which the caller decrefs. */
json_t *plan_batch_json(const struct plan_batch *b);

#endif

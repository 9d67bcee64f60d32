/* plan_drafter.h - the --drafter part of sluice plan: what a trained drafter is
 * worth, if each of its ids is right with the same chance, given that those
 * before it are.
 *
 * A pass with r rows reads the streamed trunk, the distinct experts of r rows,
 * and for a draft the drafter's weights and K3's head once more, as far as they
 * are not in memory. It takes the longer of bytes over the
 * drives' rate and compute, which walks through these weights at 100 GB/s. It
 * gives 1 + p + p^2 + .. ids. The best number of drafts is taken.
 *
 * Errors   those of token_cost and k3_shape_of. Threads: one caller.
 */
#ifndef BIN_REPORT_PLAN_DRAFTER_H
#define BIN_REPORT_PLAN_DRAFTER_H

#include <jansson.h>

#include "model/dspark/dspark.h"
#include "model/k3/k3.h"

enum { PLAN_DRAFTER_CHANCES = 3, PLAN_DRAFTER_RATES = 3,
       PLAN_DRAFTER_BUDGETS = 6 };

struct plan_drafter_cell {
    uint32_t drafts; /* 0: it is not run */
    double   ids;    /* a pass */
    double   bytes;  /* an id */
    double   seconds, gain; /* an id; over none */
};

struct plan_drafter_line {
    uint64_t budget_bytes;
    bool     resident; /* the drafter's weights */
    double   none_bytes, none_s[PLAN_DRAFTER_RATES]; /* without it */
    struct plan_drafter_cell cell[PLAN_DRAFTER_CHANCES][PLAN_DRAFTER_RATES];
};

struct plan_drafter {
    const char *kind;
    double   draft_bytes;    /* its weights, for a draft, without the head */
    uint64_t memory_bytes;   /* least */
    uint64_t resident_bytes; /* with its weights */
    uint32_t rates;
    double   rate[PLAN_DRAFTER_RATES]; /* bytes a second */
    uint32_t lines;
    struct plan_drafter_line line[PLAN_DRAFTER_BUDGETS];
};

/* The chances of the table. */
extern const double plan_drafter_chances[PLAN_DRAFTER_CHANCES];

/* `o` is as for k3_open, with the drafter as its guest; rate[rates] in bytes a
 * second. compute_s is the compute of a pass of one row. */
int plan_drafter_fill(struct plan_drafter *out, const struct config *c,
                      const struct k3_options *o, const struct dspark *d,
                      const double *rate, uint32_t rates, double compute_s,
                      struct error *error);
void plan_drafter_print(const struct plan_drafter *d);
json_t *plan_drafter_json(const struct plan_drafter *d);

#endif

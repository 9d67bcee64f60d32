/* plan_nodes.h - the --nodes part of sluice plan: one model in N processes,
 * each on its machine, beside as many copies of the program.
 *
 * The first of the machines is simulated, with its rows of the weights and with
 * the time of every gather (model/machines/README.md); the others do the same.
 * A gather takes time as compute does: reads go on.
 *
 * Errors   -ENOMEM; those of k3_shape_of. Threads: one caller.
 */
#ifndef BIN_REPORT_PLAN_NODES_H
#define BIN_REPORT_PLAN_NODES_H

#include <jansson.h>
#include <stdbool.h>

#include "model/k3/k3.h"
#include "model/sim/pass_clock.h"

enum { PLAN_NODES_LINES = 3 };

struct plan_nodes {
    uint32_t nodes; /* 0: not asked for */
    struct k3_network network;
    struct plan_nodes_line {
        uint32_t rows; /* of all machines, in a pass */
        bool     fits;
        struct pass_times shared, copy; /* a copy has rows / nodes of them */
    } line[PLAN_NODES_LINES];
};

/* Fill the lines. Options as for plan_batch_pass, of one machine. */
int plan_nodes_fill(struct plan_nodes *n, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    struct error *error);
void plan_nodes_print(const struct plan_nodes *n);
/* An object, which the caller decrefs. */
json_t *plan_nodes_json(const struct plan_nodes *n);

#endif

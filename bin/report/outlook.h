/* outlook.h - what sluice plan knows of a model, a budget and some drives: the
 * plan, a ladder of budgets, what would help. All times come from one simulated
 * clock (pass_clock.h).
 *
 *     outlook_fill -> { print, outlook_json } -> outlook_free
 *
 * Threads  one caller; the ladder is simulated in parallel.
 * Errors   a negative errno and a sentence; outlook_free in any case.
 * Cost     up to two seconds for K3.
 */
#ifndef BIN_REPORT_OUTLOOK_H
#define BIN_REPORT_OUTLOOK_H

#include <jansson.h>

#include "bin/cli/session.h"
#include "bin/report/plan_batch.h"
#include "bin/report/plan_drafter.h"
#include "bin/report/plan_nodes.h"
#include "bin/report/plan_state.h"
#include "model/k3/rates.h"
#include "model/pack/sidecars.h"
#include "model/sim/pass_clock.h"
#include "model/sim/token_cost.h"

enum { OUTLOOK_COLUMNS = 4, OUTLOOK_RUNGS = 16, OUTLOOK_NOTES = 12 };

/* Drives that the forecast is made for. */
struct outlook_drives {
    char     name[48];
    struct paced_drive drive[SESSION_DRIVES_MAX + 1];
    uint32_t drives;
    enum k3_layout layout;
};

struct outlook_rung {
    struct token_cost cost; /* with the drives of the first column */
    double   seconds[OUTLOOK_COLUMNS]; /* negative: below the floor */
};

struct outlook_args {
    struct session_args s;
    double compute_s; /* a token; 0: from the weights */
    enum k3_layout layout;
    bool   batch, json;
    uint64_t nodes; /* 0: not asked for */
    struct k3_network network;
};

struct outlook {
    struct config     c;
    struct sidecars   sidecars;
    struct parts     *parts; /* or NULL */
    struct k3_options o; /* memory_bytes: what a run would take by itself */
    uint64_t          budget_bytes; /* planned with; 0: the floor */
    bool              small; /* which is more than o.memory_bytes */
    double            compute_s;
    struct decode_time decode; /* of coded weights, on this machine */
    struct pass_clock    *clock; /* of one row */
    struct simulate_cost *cost;
    struct outlook_drives     column[OUTLOOK_COLUMNS];
    uint32_t          columns;
    struct token_cost now; /* with the drives of `here` */
    struct outlook_drives     here;
    struct pass_times now_is;
    struct outlook_rung       rung[OUTLOOK_RUNGS];
    uint32_t          rungs;
    /* Seconds a token that more memory would save, another drive, the model in
     * parts over these drives, and both. */
    uint64_t          more_bytes;
    double            more_s, drive_s, parts_s, drive_parts_s;
    double            mirrors_s; /* a copy of the model on each drive */
    struct plan_batch *batch; /* NULL: not asked for */
    struct plan_nodes  nodes;
    struct dspark     *drafter; /* the same */
    struct plan_drafter drafting;
    struct plan_state state;
    char              note[OUTLOOK_NOTES][160];
    uint32_t          notes;
};

enum { OUTLOOK_LAYOUTS = K3_MIRRORS + 1 };
/* "parts" */
const char *outlook_layout(enum k3_layout layout);
int  outlook_fill(struct outlook *l, const char *model,
                  const struct outlook_args *a, struct error *error);
void outlook_free(struct outlook *l);
/* All of it, as plan --json prints it; the caller decrefs. */
json_t *outlook_json(const struct outlook *l);

#endif

/* drafted.h - a recorded trace as it would have been with drafts: how many ids
 * and distinct experts a pass would have had.
 *
 * Each draft is right with one chance, given that those before it are. A pass
 * takes a row of a sequence and up to seven after it; every row in turn begins
 * one, and the mean counts. So a draft that is wrong counts with the experts
 * that the row of the right id chose.
 *
 * Bytes    2 bytes a choice of every row that gave an id.
 * Errors   those of passes_open; -ENOMEM; -ENODATA: no sequence has two rows.
 */
#ifndef MODEL_SIM_DRAFTED_H
#define MODEL_SIM_DRAFTED_H

#include "model/ckpt/error.h"
#include "sched/trace/trace.h"

enum { DRAFTED_MAX = 7 };

struct drafted {
    struct trace_info info;
    uint64_t rows; /* of the trace, that are used */
    /* By the number of drafts, of a pass: ids, and experts over all layers. */
    double ids[DRAFTED_MAX + 1], experts[DRAFTED_MAX + 1];
};

int drafted_run(struct drafted *out, const char *path, bool repair,
                double chance, struct error *error);
/* Bytes that an id reads if nothing is in memory; 0: the trace does not say. */
double drafted_bytes(const struct drafted *d, uint32_t drafts);

#endif

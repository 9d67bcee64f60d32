/* plan_state.h - what a saved sequence takes, and what reading it costs against
 * computing it again. */
#ifndef BIN_REPORT_PLAN_STATE_H
#define BIN_REPORT_PLAN_STATE_H

#include <jansson.h>
#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/sim/pass_clock.h"

struct plan_state {
    uint32_t positions, rows; /* rows of a pass */
    uint64_t file_bytes;
    double   read_s;
    uint64_t passes;        /* that compute it */
    double   compute_bytes; /* that they read */
    double   compute_s;     /* that they take */
};

enum { PLAN_STATE_TEXT = 400 };

/* `pass` is of the budget at hand and of as many rows as its plan has. The file
 * is on one drive, which reads bytes_per_s. */
void plan_state_fill(struct plan_state *out, const struct config *c,
                     const struct pass_times *pass, uint32_t positions,
                     double bytes_per_s);
void plan_state_text(char out[PLAN_STATE_TEXT], const struct plan_state *s);
json_t *plan_state_json(const struct plan_state *s);

#endif

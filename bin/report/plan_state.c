#include "bin/report/plan_state.h"

#include <inttypes.h>
#include <stdio.h>

#include "model/ckpt/figure.h"
#include "model/state/state_file.h"

void plan_state_fill(struct plan_state *s, const struct config *c,
                     const struct pass_times *pass, uint32_t positions,
                     double bytes_per_s)
{
    struct state_shape shape;
    uint32_t rows = pass->plan.rows ? pass->plan.rows : 1;
    state_shape(&shape, c, positions);
    *s = (struct plan_state){ .positions = positions, .rows = rows };
    s->file_bytes = state_file_bytes(&shape, positions);
    s->read_s = (double)s->file_bytes / bytes_per_s;
    s->passes = ((uint64_t)positions + rows - 1) / rows;
    s->compute_bytes = (double)s->passes * pass->read_bytes;
    s->compute_s = (double)s->passes * pass->seconds;
}

void plan_state_text(char out[PLAN_STATE_TEXT], const struct plan_state *s)
{
    snprintf(out, PLAN_STATE_TEXT,
             "a saved sequence of %s (--state, "
             "--prefix-cache) takes\n%s GB, read in %s s; computing it "
             "reads %s GB, %s\nof %s, and takes %s s",
             figure_count(s->positions, "position").text,
             figure((double)s->file_bytes / 1e9).text,
             figure(s->read_s).text, figure(s->compute_bytes / 1e9).text,
             figure_count(s->passes, "pass").text,
             figure_count(s->rows, "row").text, figure(s->compute_s).text);
}

json_t *plan_state_json(const struct plan_state *s)
{
    return json_pack("{s:i, s:I, s:f, s:I, s:f, s:f}", "positions",
                     (int)s->positions, "file_bytes",
                     (json_int_t)s->file_bytes, "read_s", s->read_s, "passes",
                     (json_int_t)s->passes, "compute_read_bytes",
                     s->compute_bytes, "compute_s", s->compute_s);
}

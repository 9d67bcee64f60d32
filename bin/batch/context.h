/* context.h - the context of a job that was given none. */
#ifndef BIN_BATCH_CONTEXT_H
#define BIN_BATCH_CONTEXT_H

#include "model/sim/forecast.h"

/* The positions that one sequence can have, at most `wanted` and at least
 * `least`, while the plan has BATCH_CONTEXT_ROWS rows a pass: with fewer, a
 * prompt as long would take days. `f` as for forecast_curve; f->o.context is
 * not looked at. -ENOMEM, or what k3_shape_of says. */
int batch_context(uint32_t *out, uint64_t wanted, uint32_t least,
                  const struct config *c, const struct forecast_options *f,
                  struct error *error);

enum { BATCH_CONTEXT_ROWS = 64 };

#endif

/* choose.h - how many requests run at one time: what gives most ids a second.
 *
 *     choose_measure -> choose_sequences
 *
 * Threads  one caller.
 * Errors   a negative errno, or 0 sequences, with a sentence.
 */
#ifndef BIN_BATCH_CHOOSE_H
#define BIN_BATCH_CHOOSE_H

#include <stdint.h>

#include "bin/cli/session.h"
#include "model/sim/forecast.h"

enum { CHOOSE_MAX = 256 }; /* sequences that are chosen; more if asked for */

/* Fill f->machine: the kernels, over as many weights as a token of `c` takes,
 * and the drives of this machine, or the simulated drives of `a`. */
int choose_measure(struct forecast_options *f, const struct session_args *a,
                   const char *model, const struct config *c,
                   struct error *error);
/* The best number of sequences for the budget and machine of `f` and so many
 * requests (0: not known), or `asked` if it is not 0 and fits. *out is its
 * forecast. `one` is the session's options with one sequence. */
uint32_t choose_sequences(struct forecast *out,
                          const struct forecast_options *f,
                          const struct config *c, struct k3_options *one,
                          uint64_t requests, uint64_t asked,
                          struct error *error);

#endif

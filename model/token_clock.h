/* token_clock.h - how long a decode token takes, by simulation.
 *
 * Two passes of one row, with experts chosen at random, run through simulate.h,
 * and the second is taken: the first leaves the ring as every pass does. No
 * expert is resident and none is guessed. Where a trace cannot hold the model
 * (no experts, or more than 65,536), the longer of reads and compute is taken.
 *
 *     token_clock_open -> { token_clock_seconds ... } -> token_clock_close
 *
 * Threads  token_clock_seconds: any number at once.
 * Errors   -ENOBUFS below the floor; -ENOMEM, and errnos of a file in memory
 *          from open.
 * Cost     0.07 s a call where all of K3's trunk streams.
 */
#ifndef MODEL_TOKEN_CLOCK_H
#define MODEL_TOKEN_CLOCK_H

#include "model/k3.h"

struct token_clock;

/* `compute_s` is what a pass computes with its weights resident. The config is
 * the caller's and outlives the clock. */
int token_clock_open(struct token_clock **out, const struct config *c,
                     double compute_s, struct why *why);
/* Options as for token_cost; memory_bytes and paced are given. */
int token_clock_seconds(double *out, const struct token_clock *t,
                        const struct k3_options *o, struct why *why);
void token_clock_close(struct token_clock *t);

#endif

/* recorder.h - a session's routing, as a trace that `sluice replay` reads.
 *
 *     recorder_open -> k3_open { recorder_planned } -> passes -> recorder_close
 *
 * The recorder is told of every choice by k3_options.routed and of the end of
 * every pass by .passed, and writes whole passes: a trace that ends with a
 * crash is good up to the last of them. A pass with draft rows is written when
 * it is known which came true. Nothing that it does can change a result.
 *
 * Sequences of the trace are numbered in the order in which they began: a slot
 * of the session that starts again at position 0 is another sequence.
 *
 * The JSON object in the trace has the config and the options that made the
 * plan, so that replay can make the same one.
 */
#ifndef BIN_RECORDER_H
#define BIN_RECORDER_H

#include "model/k3.h"

struct recorder;

/* Make `o` the options of a session that is recorded. `dir` is the model. */
int recorder_open(struct recorder **out, const char *path, const char *dir,
                  struct k3_options *o, struct why *why);
/* From the planned callback of k3_open: creates the file. */
int recorder_planned(struct recorder *r, const struct k3 *k, struct why *why);
/* Write what waits and the counts. NULL is fine. An error is the first that
 * the file had. */
int recorder_close(struct recorder *r, struct why *why);

#endif

/* recorder.h - a session's routing, as a trace that `sluice replay` reads.
 *
 *     recorder_open -> k3_open { recorder_planned } -> recorder_begun -> passes
 *     -> recorder_close
 *
 * The session calls it for every choice (k3_options.routed) and after every
 * pass (.passed). It writes whole passes, so a crash leaves a trace that is
 * good up to the last of them. A pass with draft rows is written once it is
 * known which were accepted. It cannot change a result.
 *
 * Sequences are numbered in the order in which they began. A slot of the
 * session that starts again at position 0 is another sequence.
 *
 * The JSON object in the trace has the config and the options of the session,
 * so that replay can make the same plan.
 *
 * Bytes    the buffer of one pass, counted in the plan.
 * Threads  the session's caller.
 * Errors   the errno of the file; -ENOMEM.
 */
#ifndef BIN_REPORT_RECORDER_H
#define BIN_REPORT_RECORDER_H

#include "model/k3/k3.h"

struct recorder;

/* Set the callbacks of `o` and add the memory of the recorder. `dir` is the
 * folder of the model. */
int recorder_open(struct recorder **out, const char *path, const char *dir,
                  struct k3_options *o, struct error *error);
/* Call it from the planned callback of k3_open. Begins the file, aside. */
int recorder_planned(struct recorder *r, const struct k3 *k,
                     struct error *error);
/* The session is open: the file takes its place, and grows there. NULL is
 * fine. */
int recorder_begun(struct recorder *r, struct error *error);
/* Write the last pass and the counts. NULL is fine. Returns the first error of
 * the file. */
int recorder_close(struct recorder *r, struct error *error);

#endif

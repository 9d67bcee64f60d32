/* trace_error.h - the sentence for a trace that cannot be used. */
#ifndef MODEL_SIM_TRACE_ERROR_H
#define MODEL_SIM_TRACE_ERROR_H

#include "model/ckpt/error.h"
#include "sched/trace/trace.h"

#define TRACE_NO_PIPE "a trace is read more than once: it must be a file"

/* "PATH: record 5 (byte 1234): an expert id is out of range (found 900 ...)".
 * Returns `error`, so that it can be returned in turn. */
int trace_error(struct error *error, int code, const char *path,
                const struct trace_fault *fault);

#endif

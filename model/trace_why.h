/* trace_why.h - the sentence for a trace that cannot be used. */
#ifndef MODEL_TRACE_WHY_H
#define MODEL_TRACE_WHY_H

#include "model/why.h"
#include "sched/trace.h"

/* "PATH: record 5 (byte 1234): an expert id is out of range (found 900 ...)".
 * Returns `error`, so that it can be returned in turn. */
int trace_why(struct why *why, int error, const char *path,
              const struct trace_fault *fault);

#endif

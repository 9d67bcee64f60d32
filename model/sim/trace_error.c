#include "model/sim/trace_error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* " (found 7, expected 8)", or nothing where numbers say nothing. */
static void numbers(char *out, size_t n, const struct trace_fault *f)
{
    out[0] = 0;
    switch (f->problem) {
    case TRACE_HEADER_CRC:
    case TRACE_RECORD_CRC:
        snprintf(out, n, " (%08" PRIx64 ", it says %08" PRIx64 ")", f->found,
                 f->expected);
        break;
    case TRACE_VERSION:
        snprintf(out, n, " (%" PRIu64 ", this program reads %" PRIu64 ")",
                 f->found, f->expected);
        break;
    case TRACE_FLAGS:
        snprintf(out, n, " (flags %#" PRIx64 ")", f->found);
        break;
    case TRACE_ID:
        snprintf(out, n, " (%" PRIu64 " of %" PRIu64 ")", f->found,
                 f->expected);
        break;
    case TRACE_ID_TWICE:
    case TRACE_PHASE:
        snprintf(out, n, " (%" PRIu64 ")", f->found);
        break;
    case TRACE_STEP:
        snprintf(out, n, " (%" PRIu64 " after %" PRIu64 ")", f->found,
                 f->expected);
        break;
    case TRACE_TRUNCATED:
        snprintf(out, n, " (%" PRIu64 " of %" PRIu64 " records)", f->found,
                 f->expected);
        break;
    case TRACE_NO_HEADER:
    case TRACE_RECORD_SIZE:
    case TRACE_ROWS:
        snprintf(out, n, " (%" PRIu64 ", expected %" PRIu64 ")", f->found,
                 f->expected);
        break;
    default:
        break;
    }
}

int trace_error(struct error *error, int code, const char *path,
                const struct trace_fault *fault)
{
    char found[96];
    if (fault->problem == TRACE_FINE)
        return error_set(error, code, "%s: %s", path,
                         code == -ESPIPE ? TRACE_NO_PIPE : strerror(-code));
    const char *text = trace_problem_text(fault->problem);
    numbers(found, sizeof found, fault);
    switch (fault->problem) {
    case TRACE_NO_HEADER:
    case TRACE_MAGIC:
    case TRACE_VERSION:
    case TRACE_HEADER_CRC:
    case TRACE_FLAGS:
    case TRACE_SHAPE:
    case TRACE_TRUNCATED:
        return error_set(error, code, "%s: not a usable routing trace: %s%s",
                         path, text, found);
    default:
        return error_set(error, code,
                         "%s: record %" PRIu64 " (byte %" PRIu64 "): %s%s",
                         path, fault->record, fault->offset, text, found);
    }
}

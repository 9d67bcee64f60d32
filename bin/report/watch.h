/* watch.h - the files that run and batch write during a session: --timeline and
 * --trace.
 *
 *     watch_open -> k3_open -> watch_begun -> { ... } -> k3_close
 *     -> watch_close
 *
 * Threads  the session's caller. Errors: those of timeline.h and recorder.h.
 */
#ifndef BIN_REPORT_WATCH_H
#define BIN_REPORT_WATCH_H

#include "model/k3/k3.h"

enum { WATCH_RUN_BYTES = 33 };

/* NULL: not asked for. */
struct watch_files {
    char run[WATCH_RUN_BYTES]; /* of this run alone: hexadecimal digits */
    struct timeline *timeline;
    struct recorder *recorder;
};

/* A path may be NULL: no such file. Sets the callbacks of `o`, which point to
 * *w. Call watch_close also if this or k3_open fails. */
int watch_open(struct watch_files *w, const char *timeline, const char *trace,
               const char *model, struct k3_options *o, struct error *error);
/* The session is open: from now on the files of an earlier run are gone. */
int watch_begun(struct watch_files *w, struct k3 *k, struct error *error);
/* Returns the first error of a file; *error says which. */
int watch_close(struct watch_files *w, struct error *error);

#endif

/* watch.h - the files that a session writes while it runs: --timeline and
 * --trace. For run and batch alike.
 *
 *     watch_open -> k3_open -> { ... } -> k3_close -> watch_close
 */
#ifndef BIN_WATCH_H
#define BIN_WATCH_H

#include "model/k3.h"

struct watch_files {
    struct timeline *timeline;
    struct recorder *recorder;
};

/* Paths may be NULL: no such file. Sets what `o` needs; *w stays where it is
 * until watch_close, which is called also when this or k3_open fails. */
int watch_open(struct watch_files *w, const char *timeline, const char *trace,
               const char *model, struct k3_options *o, struct why *why);
/* The first error of a file; then *why says which. */
int watch_close(struct watch_files *w, struct why *why);

#endif

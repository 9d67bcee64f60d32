/* batch_in.h - lines of a file or of a pipe, one at a time.
 *
 *     batch_in_open -> { batch_in_next ... } -> batch_in_close
 */
#ifndef BIN_BATCH_IN_H
#define BIN_BATCH_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/why.h"

enum { BATCH_LINE_MAX = 16 << 20 }; /* bytes; longer lines are refused */

struct batch_in {
    int      fd;
    const char *path;
    uint64_t line;  /* number of the last one, from 1 */
    uint64_t lines; /* in the file; 0: not known, it is a pipe */
    uint64_t longest_bytes;
    char    *buffer;
    size_t   used, begin, capacity; /* bytes there; of the next line */
    bool     skipping; /* a line that is too long */
    bool     ended;
};

/* "-" is stdin. A file is read once to count its lines. */
int  batch_in_open(struct batch_in *in, const char *path, struct why *why);
void batch_in_close(struct batch_in *in);
/* 1: the next line, without its end, good until the next call. 0: nothing is
 * there now; with `wait`, only after a signal. -ENODATA: the end. -EMSGSIZE: a
 * line that is too long, which is passed over. */
int  batch_in_next(struct batch_in *in, bool wait, const char **text,
                   size_t *bytes);

#endif

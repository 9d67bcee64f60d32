/* outputs.h - no file that a command writes is one that it reads, or one that
 * it writes already.
 *
 * Asked before the first of them is opened, since opening empties them: the
 * weights of a model are days of download.
 */
#ifndef BIN_OUTPUTS_H
#define BIN_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "model/why.h"

struct output_file {
    const char *option; /* "--report" */
    const char *path;   /* NULL: not wanted */
    bool        read;   /* it is read, not written */
};

/* Each against each, whatever links lead there, and against the files that make
 * up the folder `model` (NULL: none). Pipes and devices are free. 0 or
 * -EINVAL. */
int outputs_check(const struct output_file *files, size_t count,
                  const char *model, struct why *why);
/* Can a file ("the report") be written there? Asked before a run of hours.
 * NULL: none is wanted. Leaves the folder as it was. 0 or a negative errno. */
int outputs_writable(const char *path, const char *what, struct why *why);

#endif

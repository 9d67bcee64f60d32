/* slurp.h - a whole small file into memory, with a limit.
 *
 * Errors   the errno of the open or read; -EBADMSG when it is not a regular
 *          file or longer than the limit; -ENOMEM. The sentence names the
 *          path.
 */
#ifndef MODEL_SLURP_H
#define MODEL_SLURP_H

#include <stddef.h>
#include <stdint.h>

#include "model/why.h"

/* Open for reading without ever waiting for a writer of a FIFO, and refuse
 * what is not a regular file. Returns the descriptor, which is the caller's,
 * or a negative errno. */
int slurp_open(const char *path, uint64_t *size_bytes, struct why *why);
/* Read exactly `length` bytes at `offset`: short reads and EINTR go on,
 * -ENODATA when the file ends before. */
int slurp_at(int fd, void *target, size_t length, uint64_t offset,
             const char *path, struct why *why);
/* The file in a malloc'ed block with a NUL after it; free() it. */
int slurp_file(char **out, size_t *length, const char *path, size_t limit_bytes,
               struct why *why);

#endif

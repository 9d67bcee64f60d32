/* slurp.h - read a whole small file into memory.
 *
 * Threads  any.
 * Errors   errnos of the file; -EBADMSG: not a regular file, or longer than the
 *          limit; -ENODATA: it ends too early; -ENOMEM. The sentence names the
 *          path.
 */
#ifndef MODEL_CKPT_SLURP_H
#define MODEL_CKPT_SLURP_H

#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"

/* Open a regular file; never wait for the writer of a FIFO. Returns the
 * descriptor, which the caller closes, or a negative errno. */
int slurp_open(const char *path, uint64_t *size_bytes, struct error *error);
/* Read exactly `length` bytes at `offset`, over short reads and EINTR. */
int slurp_at(int fd, void *target, size_t length, uint64_t offset,
             const char *path, struct error *error);
/* Read the file into a block with a NUL after it, for free(). */
int slurp_file(char **out, size_t *length, const char *path, size_t limit_bytes,
               struct error *error);

#endif

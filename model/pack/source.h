/* source.h - ranges of a shard, from memory where the kernel has them there,
 * else past its cache: a pass over 200 GB should not wipe it.
 *
 * Threads  source_read from any; the buffer is the caller's.
 * Errors   -ENODATA, errnos of the file, with a sentence.
 */
#ifndef MODEL_PACK_SOURCE_H
#define MODEL_PACK_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "io/file.h"
#include "model/ckpt/error.h"

struct source {
    const char    *path; /* the caller's */
    struct io_file file; /* direct, if that works */
    int            cached; /* the same file through the cache */
    uint64_t       size_bytes;
};

int  source_open(struct source *s, const char *path, struct error *error);
void source_close(struct source *s);
/* Room for reads of so many bytes: what it takes; and it, for free(), or
 * NULL. */
uint64_t source_pages_bytes(uint64_t bytes);
uint8_t *source_pages(uint64_t bytes);
/* Read [at, at + bytes) into `pages`, of source_pages; *out is where they
 * begin. */
int  source_read(const struct source *s, uint8_t *pages, uint64_t at,
                 uint64_t bytes, const uint8_t **out, struct error *error);
/* The same from the drive, whatever the kernel has. */
int  source_read_drive(const struct source *s, uint8_t *pages, uint64_t at,
                       uint64_t bytes, const uint8_t **out,
                       struct error *error);
/* Is the file at the path another, or was it changed since? A negative errno
 * where that cannot be told. */
int  source_changed(const struct source *s, const char *path,
                    int64_t mtime_ns, bool *changed);

#endif

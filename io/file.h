/* file.h - one shard, opened for direct reads if its file system really does.
 *
 * O_DIRECT can be refused at open, accepted and then refused by the first
 * read, or ask for more alignment than the reader gives. So the alignment is
 * asked of statx, and the first page is read. A file that fails is read through
 * the page cache, and what was read is dropped from there.
 *
 *     file_open -> { reads on fd ... file_demote at most once } -> file_close
 *
 * Threads  one; reads on fd from anywhere.
 * Errors   0 or a negative errno.
 */
#ifndef IO_FILE_H
#define IO_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Offsets, lengths and addresses of direct reads are multiples of this. */
#define FILE_ALIGN 4096u

struct io_file {
    int      fd;
    bool     direct;
    uint32_t align_bytes; /* what the file system asks for, 1 if buffered */
    uint64_t size_bytes;  /* when it was opened */
    dev_t    dev;
    int      refused;     /* why not direct: a negative errno, or 0 */
};

/* -EISDIR or -EINVAL: not a regular file; else what open or statx said. On
 * failure fd is -1. */
int file_open(struct io_file *f, const char *path);

/* Turn a direct file into a buffered one. The descriptor stays the same, and
 * with it the reads in flight and the registration in a ring. */
int file_demote(struct io_file *f, int refused);

/* Exactly so many bytes, of a buffered file. -ENODATA: it ends before. */
int file_read_all(int fd, void *to, uint64_t bytes, uint64_t at);
/* -EIO: the file takes nothing. Part of it may be written. */
int file_write_all(int fd, const void *from, uint64_t bytes, uint64_t at);
/* The same where the descriptor stands. */
int file_append_all(int fd, const void *from, uint64_t bytes);

/* The first bytes of a regular file; returns how many it has, `bytes` at most.
 * -EINVAL: it is none; or what open, with more `flags`, or the read said. */
int file_first(const char *path, int flags, void *to, uint32_t bytes);

/* Forget the pages of a range that was read through the page cache. */
void file_drop(const struct io_file *f, uint64_t offset, uint64_t bytes);

/* Fine on a file that was never opened, if fd is -1. */
void file_close(struct io_file *f);

/* Allow as many descriptors as the hard limit does: a model has 96 shards. */
void file_raise_limit(void);

#endif

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Without statx, which a container may refuse: the usual alignment. */
static int look_plainly(struct io_file *f, const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    f->size_bytes = (uint64_t)st.st_size;
    f->dev = st.st_dev;
    f->align_bytes = FILE_ALIGN;
    return 0;
}

static int look(struct io_file *f, const char *path)
{
    struct statx sx;
    unsigned want = STATX_TYPE | STATX_SIZE;
    uint32_t align = FILE_ALIGN;
#ifdef STATX_DIOALIGN
    want |= STATX_DIOALIGN;
#endif
    if (statx(AT_FDCWD, path, 0, want, &sx) < 0)
        return look_plainly(f, path); /* which knows what is really wrong */
    if (S_ISDIR(sx.stx_mode))
        return -EISDIR;
    if (!S_ISREG(sx.stx_mode)) /* opening a pipe would wait for a writer */
        return -EINVAL;
#ifdef STATX_DIOALIGN
    if (sx.stx_mask & STATX_DIOALIGN) {
        align = sx.stx_dio_offset_align; /* 0: no direct reads at all */
        if (align > 0 && align < sx.stx_dio_mem_align)
            align = sx.stx_dio_mem_align;
    }
#endif
    f->size_bytes = sx.stx_size;
    f->dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
    f->align_bytes = align;
    return 0;
}

/* Whether a direct read works is known after a direct read. */
static int try_read(int fd)
{
    void *page = aligned_alloc(FILE_ALIGN, FILE_ALIGN);
    if (!page)
        return -ENOMEM;
    ssize_t n;
    do
        n = pread(fd, page, FILE_ALIGN, 0);
    while (n < 0 && errno == EINTR);
    int err = n < 0 ? -errno : 0;
    free(page);
    return err;
}

int file_open(struct io_file *f, const char *path)
{
    *f = (struct io_file){ .fd = -1 };
    int err = look(f, path);
    if (err < 0)
        return err;
    if (f->align_bytes > 0 && f->align_bytes <= FILE_ALIGN) {
        f->fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (f->fd < 0 && errno != EINVAL)
            return -errno;
        f->direct = f->fd >= 0;
    }
    if (!f->direct) {
        f->refused = -EINVAL;
        f->align_bytes = 1;
        f->fd = open(path, O_RDONLY | O_CLOEXEC);
        return f->fd < 0 ? -errno : 0;
    }
    err = try_read(f->fd);
    if (err == -EINVAL || err == -EOPNOTSUPP)
        err = file_demote(f, err);
    else if (err == -EIO) /* the read that needs this page will tell */
        err = 0;
    if (err < 0)
        file_close(f);
    return err;
}

int file_demote(struct io_file *f, int refused)
{
    int flags = fcntl(f->fd, F_GETFL);
    if (flags < 0 || fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) < 0)
        return -errno;
    f->direct = false;
    f->align_bytes = 1;
    f->refused = refused;
    return 0;
}

int file_read_all(int fd, void *to, uint64_t bytes, uint64_t at)
{
    for (char *next = to; bytes;) {
        ssize_t n = pread(fd, next, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        next += n;
        bytes -= (size_t)n;
        at += (size_t)n;
    }
    return 0;
}

/* At a place, or where the descriptor stands. */
static int write_all(int fd, const char *next, uint64_t bytes,
                     const uint64_t *at)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = at ? pwrite(fd, next + done, bytes - done,
                                (off_t)(*at + done))
                       : write(fd, next + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (uint64_t)n;
    }
    return 0;
}

int file_write_all(int fd, const void *from, uint64_t bytes, uint64_t at)
{
    return write_all(fd, from, bytes, &at);
}

int file_append_all(int fd, const void *from, uint64_t bytes)
{
    return write_all(fd, from, bytes, NULL);
}

int file_first(const char *path, int flags, void *to, uint32_t bytes)
{
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    if (fd < 0)
        return -errno;
    int err = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    do
        n = err ? 0 : pread(fd, to, bytes, 0);
    while (n < 0 && errno == EINTR);
    err = n < 0 ? -errno : err;
    close(fd);
    return err ? err : (int)n;
}

void file_drop(const struct io_file *f, uint64_t offset, uint64_t bytes)
{
    posix_fadvise(f->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

void file_close(struct io_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

void file_raise_limit(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        setrlimit(RLIMIT_NOFILE, &lim);
    }
}

#include "model/pack/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int source_open(struct source *s, const char *path, struct error *error)
{
    memset(s, 0, sizeof *s);
    s->path = path;
    s->cached = -1;
    int code = file_open(&s->file, path);
    if (code < 0)
        return error_set(error, code, "%s: %s", path, strerror(-code));
    s->size_bytes = s->file.size_bytes;
    s->cached = open(path, O_RDONLY | O_CLOEXEC);
    if (s->cached < 0) {
        code = error_set(error, -errno, "%s: %s", path, strerror(errno));
        file_close(&s->file);
        return code;
    }
    return 0;
}

void source_close(struct source *s)
{
    file_close(&s->file);
    if (s->cached >= 0)
        close(s->cached);
    s->cached = -1;
}

/* The first and the last page are read whole. */
uint64_t source_pages_bytes(uint64_t bytes)
{
    return (bytes / FILE_ALIGN + 3) * FILE_ALIGN;
}

uint8_t *source_pages(uint64_t bytes)
{
    return aligned_alloc(FILE_ALIGN, source_pages_bytes(bytes));
}

/* All of it without waiting for a drive? */
static bool read_cached(const struct source *s, uint8_t *to, uint64_t at,
                        uint64_t bytes)
{
    while (bytes) {
        struct iovec v = { to, bytes };
        ssize_t n = preadv2(s->cached, &v, 1, (off_t)at, RWF_NOWAIT);
        if (n <= 0)
            return false;
        to += n;
        at += (size_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

int source_read_drive(const struct source *s, uint8_t *pages, uint64_t at,
                      uint64_t bytes, const uint8_t **out,
                      struct error *error)
{
    uint64_t skip = at % FILE_ALIGN, landed = 0;
    uint64_t wanted = (skip + bytes + FILE_ALIGN - 1) / FILE_ALIGN * FILE_ALIGN;
    *out = pages + skip;
    if (at > s->size_bytes || bytes > s->size_bytes - at)
        return error_set(error, -ENODATA, "%s: ends before byte %" PRIu64,
                         s->path, at + bytes);
    if (!s->file.direct)
        file_drop(&s->file, at - skip, wanted);
    while (landed < skip + bytes) {
        ssize_t n = pread(s->file.fd, pages + landed, wanted - landed,
                          (off_t)(at - skip + landed));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(error, n < 0 ? -errno : -ENODATA,
                             "%s: at byte %" PRIu64 ": %s", s->path,
                             at - skip + landed,
                             n < 0 ? strerror(errno) : "ends there");
        landed += (size_t)n;
        if (s->file.direct && landed < skip + bytes) /* go on at a page */
            landed -= landed % FILE_ALIGN;
    }
    if (!s->file.direct)
        file_drop(&s->file, at - skip, wanted);
    return 0;
}

int source_read(const struct source *s, uint8_t *pages, uint64_t at,
                uint64_t bytes, const uint8_t **out, struct error *error)
{
    *out = pages + at % FILE_ALIGN;
    if (at <= s->size_bytes && bytes <= s->size_bytes - at &&
        read_cached(s, pages + at % FILE_ALIGN, at, bytes))
        return 0;
    return source_read_drive(s, pages, at, bytes, out, error);
}

int source_changed(const struct source *s, const char *path, int64_t mtime_ns,
                   bool *changed)
{
    struct stat now, ours;
    if (stat(path, &now) || fstat(s->cached, &ours))
        return -errno;
    int64_t ns = (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec;
    *changed = now.st_dev != ours.st_dev || now.st_ino != ours.st_ino ||
               ns != mtime_ns || (uint64_t)now.st_size != s->size_bytes;
    return 0;
}

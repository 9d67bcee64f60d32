/* synth_out.c - files that appear whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/synth_internal.h"

enum { BUFFER_BYTES = 1 << 20 };

static void failed(struct synth_out *o, int error)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&o->error, &none, error))
        why_set(o->why, error, "%s: %s", o->part, strerror(-error));
}

int synth_out_open(struct synth_out *o, const char *dir, const char *name,
                   struct why *why)
{
    *o = (struct synth_out){ .fd = -1, .why = why };
    if (asprintf(&o->path, "%s/%s", dir, name) < 0)
        o->path = NULL;
    if (!o->path || asprintf(&o->part, "%s.part", o->path) < 0)
        o->part = NULL;
    o->buffer = malloc(BUFFER_BYTES);
    if (!o->part || !o->buffer)
        o->error = why_set(why, -ENOMEM, "%s: no memory", dir);
    if (!o->error) {
        o->fd = open(o->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (o->fd < 0)
            failed(o, -errno);
    }
    int error = o->error;
    if (error)
        synth_out_close(o, false);
    return error;
}

void synth_out_at(struct synth_out *o, const void *bytes, size_t length,
                  uint64_t offset)
{
    const char *from = bytes;
    while (length && !o->error) {
        ssize_t n = pwrite(o->fd, from, length, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            failed(o, n < 0 ? -errno : -EIO);
            return;
        }
        from += n;
        length -= (size_t)n;
        offset += (uint64_t)n;
    }
}

static void flush(struct synth_out *o)
{
    const char *from = o->buffer;
    while (o->used && !o->error) {
        ssize_t n = write(o->fd, from, o->used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            failed(o, n < 0 ? -errno : -EIO);
            return;
        }
        from += n;
        o->used -= (size_t)n;
    }
}

void synth_out_text(struct synth_out *o, const char *format, ...)
{
    for (int attempt = 0; !o->error && attempt < 2; attempt++) {
        va_list args;
        size_t room = BUFFER_BYTES - o->used;
        va_start(args, format);
        int n = vsnprintf(o->buffer + o->used, room, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < room) {
            o->used += (size_t)n;
            return;
        }
        flush(o);
    }
    if (!o->error)
        failed(o, -EINVAL); /* one text longer than the buffer */
}

int synth_out_close(struct synth_out *o, bool sync)
{
    if (o->fd >= 0) {
        flush(o);
        if (sync && !o->error && fdatasync(o->fd))
            failed(o, -errno);
        if (close(o->fd))
            failed(o, -errno);
        if (!o->error && rename(o->part, o->path))
            failed(o, -errno);
        if (o->error)
            unlink(o->part);
    }
    free(o->path);
    free(o->part);
    free(o->buffer);
    o->fd = -1;
    o->path = o->part = o->buffer = NULL;
    return o->error;
}

#include "bin/batch_in.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 64 << 10 };

static int count_lines(struct batch_in *in)
{
    uint64_t length = 0, at = 0;
    for (;;) {
        ssize_t got = pread(in->fd, in->buffer, in->capacity, (off_t)at);
        if (got < 0)
            return -errno;
        if (!got)
            break;
        at += (uint64_t)got;
        for (ssize_t i = 0; i < got; i++) {
            length++;
            if (in->buffer[i] != '\n')
                continue;
            in->lines++;
            in->longest_bytes = length > in->longest_bytes ? length
                                                           : in->longest_bytes;
            length = 0;
        }
    }
    in->lines += length > 0;
    if (length > in->longest_bytes)
        in->longest_bytes = length;
    return 0;
}

int batch_in_open(struct batch_in *in, const char *path, struct why *why)
{
    struct stat st;
    memset(in, 0, sizeof *in);
    in->path = path;
    in->fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC)
                               : STDIN_FILENO;
    if (in->fd < 0)
        return why_set(why, -errno, "%s: %s", path, strerror(errno));
    in->capacity = STEP;
    in->buffer = malloc(in->capacity);
    if (!in->buffer)
        return why_set(why, -ENOMEM, "no memory for a line");
    int err = fstat(in->fd, &st) ? -errno : 0;
    if (!err && S_ISDIR(st.st_mode))
        err = -EISDIR;
    if (!err && S_ISREG(st.st_mode))
        err = count_lines(in);
    return err ? why_set(why, err, "%s: %s", path, strerror(-err)) : 0;
}

void batch_in_close(struct batch_in *in)
{
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    free(in->buffer);
    memset(in, 0, sizeof *in);
}

/* Read some more behind what is there. 1, 0 nothing now, or an error. */
static int more(struct batch_in *in, bool wait)
{
    struct pollfd p = { .fd = in->fd, .events = POLLIN };
    int ready = poll(&p, 1, wait ? -1 : 0);
    if (ready < 0)
        return errno == EINTR ? 0 : -errno;
    if (!ready)
        return 0;
    if (in->begin) {
        memmove(in->buffer, in->buffer + in->begin, in->used - in->begin);
        in->used -= in->begin;
        in->begin = 0;
    }
    if (in->capacity - in->used < STEP / 2) {
        char *larger = realloc(in->buffer, in->capacity * 2);
        if (!larger)
            return -ENOMEM;
        in->buffer = larger;
        in->capacity *= 2;
    }
    ssize_t got = read(in->fd, in->buffer + in->used, in->capacity - in->used);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    in->used += (size_t)got;
    in->ended = !got;
    return 1;
}

int batch_in_next(struct batch_in *in, bool wait, const char **text,
                  size_t *bytes)
{
    size_t looked = 0;
    for (;;) {
        char *begin = in->buffer + in->begin;
        size_t there = in->used - in->begin;
        char *end = memchr(begin + looked, '\n', there - looked);
        looked = there;
        if (!end && in->ended && there)
            end = begin + there; /* the last line has no end */
        if (end) {
            in->begin += (size_t)(end - begin) + (end < begin + there);
            in->line++;
            *text = begin;
            *bytes = (size_t)(end - begin);
            bool too_long = in->skipping || *bytes > BATCH_LINE_MAX;
            in->skipping = false;
            return too_long ? -EMSGSIZE : 1;
        }
        if (in->ended && in->skipping) {
            in->skipping = false;
            in->line++;
            return -EMSGSIZE;
        }
        if (in->ended)
            return -ENODATA;
        if (in->skipping || there > BATCH_LINE_MAX) {
            in->skipping = true;
            in->begin = in->used;
            looked = 0;
        }
        int got = more(in, wait);
        if (got <= 0)
            return got;
    }
}

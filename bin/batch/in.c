#include "bin/batch/in.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cli/session.h"
#include "model/json/mark.h"

enum { STEP = 64 << 10, WAIT_MS = 300 };

static ssize_t damaged(struct batch_in *in, ssize_t err)
{
    if (err == -ENOMEM)
        return err;
    in->what = err == -E2BIG ? "its zstd window is too large: zstd -dc"
                             : "its compressed bytes are damaged";
    return -EBADMSG;
}

/* Bytes of the text at the file's place: 0 at its end, or an error. They are
 * read from `*at`, in bytes of the file, if that is not NULL. */
static ssize_t take(struct batch_in *in, char *out, size_t room, uint64_t *at)
{
    struct unpack *u = in->unpack;
    bool fed = false;
    for (;;) {
        char *to = out;
        ssize_t got = u ? unpack_take(u, out, room) : 0;
        if (got)
            return got < 0 ? damaged(in, got) : got;
        if (fed && !S_ISREG(in->was.st_mode))
            return -EAGAIN; /* a pipe may have no more just now */
        size_t n = u ? unpack_room(u, &to) : room;
        got = at ? pread(in->fd, to, n, (off_t)*at) : read(in->fd, to, n);
        if (got < 0)
            return -errno;
        if (at)
            *at += (uint64_t)got;
        if (!u)
            return got;
        if (!got && !unpack_end(u)) {
            in->what = "its compressed bytes end too early";
            return -EBADMSG;
        }
        if (!got)
            return 0;
        unpack_fed(u, (size_t)got);
        fed = true;
    }
}

/* A compressed beginning goes through `unpack`. */
static int open_unpack(struct batch_in *in, const char *text, size_t bytes)
{
    enum unpack_kind kind = unpack_kind(text, bytes);
    in->packed = kind != UNPACK_NONE;
    return kind ? unpack_open(&in->unpack, kind, S_ISREG(in->was.st_mode)
                                                      ? BATCH_WINDOW
                                                      : BATCH_PIPE_WINDOW)
                : 0;
}

static int count_lines(struct batch_in *in)
{
    uint64_t length = 0, at = 0;
    bool first = true;
    ssize_t mark = pread(in->fd, in->buffer, UNPACK_MARK_BYTES, 0);
    int err = mark < 0 ? -errno : open_unpack(in, in->buffer, (size_t)mark);
    while (!err) {
        ssize_t got = take(in, in->buffer, in->capacity, &at);
        size_t skip;
        if (got < 0)
            return (int)got;
        if (session_signal())
            return -ECANCELED;
        if (!got)
            break;
        in->what = first ? text_mark(in->buffer, (size_t)got, &skip) : NULL;
        first = false;
        if (in->what)
            return -EILSEQ;
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
    unpack_close(in->unpack); /* the next reader begins again */
    in->unpack = NULL;
    return err;
}

int batch_in_open(struct batch_in *in, const char *path, struct error *error)
{
    struct stat st = { 0 };
    memset(in, 0, sizeof *in);
    in->path = path;
    in->line_max = BATCH_LINE_MAX;
    in->fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC)
                               : STDIN_FILENO;
    if (in->fd < 0)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    in->capacity = STEP;
    in->buffer = malloc(in->capacity);
    if (!in->buffer)
        return error_set(error, -ENOMEM, "no memory for a line");
    int err = fstat(in->fd, &st) ? -errno : 0;
    in->was = st;
    if (!err && S_ISDIR(st.st_mode))
        err = -EISDIR;
    if (!err && S_ISREG(st.st_mode))
        err = count_lines(in);
    if (err)
        error_set(error, err, "%s: %s", path,
                  in->what ? in->what : strerror(-err));
    return err;
}

bool batch_in_changed(const struct batch_in *in)
{
    struct stat st;
    const struct stat *was = &in->was;
    if (in->fd < 0 || !S_ISREG(was->st_mode))
        return false;
    int bad = strcmp(in->path, "-") ? stat(in->path, &st) : fstat(in->fd, &st);
    return bad || st.st_dev != was->st_dev || st.st_ino != was->st_ino ||
           st.st_size != was->st_size ||
           st.st_mtim.tv_sec != was->st_mtim.tv_sec ||
           st.st_mtim.tv_nsec != was->st_mtim.tv_nsec;
}

void batch_in_close(struct batch_in *in)
{
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    unpack_close(in->unpack);
    free(in->buffer);
    memset(in, 0, sizeof *in);
}

/* What was read is compressed: it goes back, to come as text. */
static int begin_unpack(struct batch_in *in)
{
    char *to;
    int err = open_unpack(in, in->buffer, in->used);
    if (err || !in->unpack)
        return err;
    size_t room = unpack_room(in->unpack, &to);
    assert(in->used <= room);
    memcpy(to, in->buffer, in->used);
    unpack_fed(in->unpack, in->used);
    in->used = 0;
    in->ended = false;
    return 0;
}

/* Is the beginning UTF-8; its mark is skipped. 0, or -EILSEQ with `what`. */
static int check_mark(struct batch_in *in)
{
    size_t skip;
    if (in->begun || (in->used < TEXT_MARK_BYTES && !in->ended))
        return 0;
    int err = in->unpack ? 0 : begin_unpack(in);
    if (err || (in->unpack && !in->used && !in->ended))
        return err;
    in->begun = true;
    in->what = text_mark(in->buffer, in->used, &skip);
    in->begin += skip;
    return in->what ? -EILSEQ : 0;
}

/* Has the descriptor bytes. 1, 0, or an error. */
static int is_ready(const struct batch_in *in, bool wait)
{
    struct pollfd p = { .fd = in->fd, .events = POLLIN };
    /* A signal may come just before: nothing waits for ever. */
    int ready = poll(&p, 1, wait ? WAIT_MS : 0);
    return ready < 0 && errno == EINTR ? 0 : ready < 0 ? -errno : ready;
}

/* Read some more behind what is there. 1, 0 nothing now, or an error. */
static int more(struct batch_in *in, bool wait)
{
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
    char *to = in->buffer + in->used;
    size_t room = in->capacity - in->used;
    ssize_t got = in->unpack ? unpack_take(in->unpack, to, room) : 0;
    if (!got) {
        int ready = is_ready(in, wait);
        if (ready <= 0)
            return ready;
        got = take(in, to, room, NULL);
    } else if (got < 0) {
        got = damaged(in, got);
    }
    if (got < 0)
        return got == -EINTR || got == -EAGAIN ? 0 : (int)got;
    in->used += (size_t)got;
    in->ended = !got;
    int err = check_mark(in);
    return err ? err : 1;
}

int batch_in_next(struct batch_in *in, bool wait, const char **text,
                  size_t *bytes)
{
    size_t looked = 0;
    uint64_t line_max = in->line_max ? in->line_max : BATCH_LINE_MAX;
    for (;;) {
        char *begin = in->buffer + in->begin;
        size_t there = in->used - in->begin;
        char *end = memchr(begin + looked, '\n', there - looked);
        looked = there;
        if (!end && in->ended && there)
            end = begin + there; /* the last line has no end */
        if (end) {
            in->no_end = end == begin + there;
            in->begin += (size_t)(end - begin) + (end < begin + there);
            in->line++;
            in->begun = true;
            *text = begin;
            *bytes = (size_t)(end - begin);
            bool too_long = in->skipping || *bytes > line_max;
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
        if (in->skipping || there > line_max) {
            in->skipping = true;
            in->begin = in->used;
            looked = 0;
        }
        if (!in->begun)
            looked = 0; /* a mark may move the beginning */
        int got = session_signal() ? 0 : more(in, wait); /* a line may have no
                                                            end */
        if (got <= 0)
            return got;
    }
}

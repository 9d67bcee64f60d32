#include "bin/batch/out.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cli/outputs.h"
#include "bin/cli/session.h"

enum { STEP = 64 << 10 };

/* How every line of ours begins: what is cut off begins so, too. */
static const char our_begin[] = "{\"id\":\"batch_req_";

/* A file that grows at its end. What is in the buffer comes behind what is in
 * the file. */
struct sink {
    int      fd; /* -1: none */
    char     path[4096];
    bool     regular;
    bool     beside; /* its name was made from another: no link is ours */
    uint64_t file_bytes;
    char    *buffer;
    size_t   used, capacity;
};

enum turn_kind { TURN_OPEN, TURN_NOTHING, TURN_HELD };

struct turn {
    uint64_t place; /* in the held file, plus 1 */
    uint64_t kind;
};

struct batch_out {
    struct sink out, held;
    bool     in_order;
    uint64_t next;         /* the line whose turn it is */
    struct turn *turn;     /* ring: [line % capacity], lines from next on */
    uint64_t capacity;
    uint64_t holds; /* lines in the held file that are still to be copied */
};

/* ---- one file ---- */

static int file_failed(const struct sink *s, int err, struct error *error)
{
    if (err == -ESTALE)
        return error_set(error, err, "%s: was removed, replaced or written to "
                         "by another during the job", s->path);
    return error_set(error, err, "%s: %s", s->path, strerror(-err));
}

static int append(struct sink *s, const char *text, size_t bytes)
{
    if (s->capacity - s->used < bytes) {
        size_t want = s->capacity + bytes + s->capacity / 2 + STEP;
        char *larger = realloc(s->buffer, want);
        if (!larger)
            return -ENOMEM;
        s->buffer = larger;
        s->capacity = want;
    }
    memcpy(s->buffer + s->used, text, bytes);
    s->used += bytes;
    return 0;
}

/* Has the file another name, or none, or have others written to it? */
static bool is_lost(const struct sink *s)
{
    struct stat open, named;
    if (!s->regular || !s->path[0])
        return false;
    return fstat(s->fd, &open) || stat(s->path, &named) ||
           open.st_dev != named.st_dev || open.st_ino != named.st_ino ||
           (uint64_t)open.st_size != s->file_bytes;
}

/* A parent may have made the descriptor non-blocking. */
static bool wait_for_room(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return errno == EAGAIN && !session_signal() && poll(&p, 1, 300) >= -1;
}

static int sink_flush(struct sink *s)
{
    size_t done = 0;
    if (is_lost(s))
        return -ESTALE;
    while (done < s->used) {
        ssize_t n = write(s->fd, s->buffer + done, s->used - done);
        if (n < 0 && (errno == EINTR || wait_for_room(s->fd)))
            continue;
        if (n < 0) {
            int err = -errno; /* a further flush goes on behind what is there */
            memmove(s->buffer, s->buffer + done, s->used - done);
            s->file_bytes += done;
            s->used -= done;
            return err;
        }
        done += (size_t)n;
    }
    s->file_bytes += done;
    s->used = 0;
    if (s->capacity > 16 * STEP) { /* one large answer does not stay */
        free(s->buffer);
        s->buffer = NULL;
        s->capacity = 0;
    }
    /* Where there is no sync the file system keeps what it can. */
    bool synced = !done || !s->regular || !fdatasync(s->fd);
    return synced || (errno != EIO && errno != ENOSPC && errno != EDQUOT)
               ? 0
               : -errno;
}

/* Make a new name in a folder last. */
static void sync_folder(const char *path)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd); /* best effort: some file systems refuse */
    close(fd);
}

static int sink_open(struct sink *s, struct error *error)
{
    struct stat st;
    if (!strcmp(s->path, "-")) {
        s->fd = STDOUT_FILENO;
        return 0;
    }
    bool there = !stat(s->path, &st);
    s->regular = !there || S_ISREG(st.st_mode);
    if (s->beside && !s->regular) /* opening a pipe would wait */
        return file_failed(s, -EEXIST, error);
    int flags = s->regular ? O_RDWR | O_CREAT | O_APPEND : O_WRONLY;
    flags |= s->beside ? O_NOFOLLOW : 0;
    s->fd = open(s->path, flags | O_CLOEXEC, 0666);
    if (s->fd < 0 && s->regular && (errno == EINVAL || errno == ENOTSUP))
        s->fd = open(s->path, (flags & ~O_APPEND) | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return file_failed(s, -errno, error);
    /* What has come there since then is not ours to write over. */
    if (fstat(s->fd, &st) || S_ISREG(st.st_mode) != s->regular)
        return file_failed(s, -ESTALE, error);
    /* Where there are no locks (some network file systems) the caller sees to
     * it that one process has the file. */
    if (s->regular && flock(s->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(error, -EWOULDBLOCK,
                         "%s: another process is writing it", s->path);
    if (!there)
        sync_folder(s->path);
    return 0;
}

/* Is the end of a file, at this offset, the rest of an answer: how it begins,
 * or blocks that a crash never filled? The latter only behind an answer. */
static bool is_ours_cut(const char *text, size_t bytes, uint64_t at)
{
    size_t begin = sizeof our_begin - 1;
    if (!bytes || !memcmp(text, our_begin, bytes < begin ? bytes : begin))
        return true;
    return at && !text[0] && !memcmp(text, text + 1, bytes - 1);
}

/* Tell of the whole lines of a file and cut off what follows the last. */
static int sink_read(struct sink *s, batch_out_line *each, void *arg,
                     bool places, uint64_t *kept, struct error *error)
{
    uint64_t at = 0, number = 0; /* of the file: where the line begins */
    int err = 0;
    for (;;) {
        char *end = s->used ? memchr(s->buffer, '\n', s->used) : NULL;
        size_t bytes = 0;
        while (end && !err) {
            size_t length = (size_t)(end - s->buffer) - bytes;
            const char *line = s->buffer + bytes;
            number++;
            int said = each(arg, line, length, places ? at + 1 : 0);
            *kept += said == 0;
            if (said < 0)
                err =
                    error_set(error, said,
                              said == -ENOMEM
                                  ? "%s: no memory for its lines (%" PRIu64 ")"
                                  : "%s: line %" PRIu64 " is not an answer of "
                                    "sluice batch: give another file",
                              s->path, number);
            bytes += length + 1;
            at += length + 1;
            end = memchr(s->buffer + bytes, '\n', s->used - bytes);
        }
        if (err)
            return err;
        if (bytes)
            memmove(s->buffer, s->buffer + bytes, s->used - bytes);
        s->used -= bytes;
        if (s->capacity - s->used < STEP) {
            char *larger = realloc(s->buffer, s->capacity * 2 + STEP);
            if (!larger)
                return file_failed(s, -ENOMEM, error);
            s->buffer = larger;
            s->capacity = s->capacity * 2 + STEP;
        }
        if (session_signal())
            return -ECANCELED;
        ssize_t got = pread(s->fd, s->buffer + s->used, STEP,
                            (off_t)(at + s->used));
        if (got < 0)
            return file_failed(s, -errno, error);
        if (!got)
            break;
        s->used += (size_t)got;
    }
    if (!is_ours_cut(s->buffer, s->used, at))
        return error_set(error, -EBADMSG,
                         "%s: its end is not an answer of sluice "
                         "batch: give another file",
                         s->path);
    if (s->used && ftruncate(s->fd, (off_t)at))
        return file_failed(s, -errno, error);
    /* Where O_APPEND is not to be had. */
    if (lseek(s->fd, (off_t)at, SEEK_SET) < 0)
        return file_failed(s, -errno, error);
    s->file_bytes = at;
    s->used = 0;
    return 0;
}

/* ---- in order ---- */

static struct turn *turn_of(struct batch_out *o, uint64_t line)
{
    while (line - o->next >= o->capacity) {
        uint64_t capacity = o->capacity ? o->capacity * 2 : 256;
        struct turn *larger = calloc(capacity, sizeof *larger);
        if (!larger)
            return NULL;
        for (uint64_t i = 0; i < o->capacity; i++)
            larger[(o->next + i) % capacity] =
                o->turn[(o->next + i) % o->capacity];
        free(o->turn);
        o->turn = larger;
        o->capacity = capacity;
    }
    return &o->turn[line % o->capacity];
}

/* Append the held line at an offset to the answers. */
static int copy_held(struct batch_out *o, uint64_t at)
{
    struct sink *h = &o->held;
    char part[4096];
    for (;;) {
        const char *from = part;
        size_t bytes;
        if (at >= h->file_bytes) {
            from = h->buffer + (at - h->file_bytes);
            bytes = h->used - (size_t)(at - h->file_bytes);
        } else {
            ssize_t got = pread(h->fd, part, sizeof part, (off_t)at);
            if (got <= 0)
                return got ? -errno : -ENODATA;
            bytes = (size_t)got;
        }
        const char *end = memchr(from, '\n', bytes);
        if (end)
            bytes = (size_t)(end - from) + 1;
        int err = append(&o->out, from, bytes);
        if (err || end)
            return err;
        at += bytes;
    }
}

static int turn_set(struct batch_out *o, uint64_t line, struct turn turn)
{
    struct turn *t = turn_of(o, line);
    if (!t)
        return -ENOMEM;
    *t = turn;
    for (; o->capacity; o->next++) {
        t = &o->turn[o->next % o->capacity];
        if (t->kind == TURN_OPEN)
            return 0;
        int err = t->kind == TURN_HELD ? copy_held(o, t->place - 1) : 0;
        if (err)
            return err;
        o->holds -= t->kind == TURN_HELD;
        t->kind = TURN_OPEN;
    }
    return 0;
}

int batch_out_put(struct batch_out *o, uint64_t line, const char *text,
                  size_t bytes, struct error *error)
{
    assert(!o->in_order || line >= o->next); /* each line once */
    struct turn turn = { 0, TURN_NOTHING };
    struct sink *to = &o->out;
    int err = 0;
    if (o->in_order && line != o->next && text) {
        to = &o->held;
        turn.kind = TURN_HELD;
        turn.place = to->file_bytes + to->used + 1;
        o->holds++;
    }
    if (text)
        err = append(to, text, bytes);
    if (text && !err)
        err = append(to, "\n", 1);
    if (!err && o->in_order)
        err = turn_set(o, line, turn);
    return err ? file_failed(to, err, error) : 0;
}

int batch_out_take(struct batch_out *o, uint64_t line, uint64_t place,
                   struct error *error)
{
    assert(o->in_order && place && line >= o->next);
    int err = turn_set(o, line, (struct turn){ place, TURN_HELD });
    return err ? file_failed(&o->held, err, error) : 0;
}

int batch_out_flush(struct batch_out *o, struct error *error)
{
    int err = o->held.fd >= 0 ? sink_flush(&o->held) : 0;
    if (err)
        return file_failed(&o->held, err, error);
    err = sink_flush(&o->out);
    if (err)
        return file_failed(&o->out, err, error);
    if (!o->holds && o->held.file_bytes) {
        if (ftruncate(o->held.fd, 0) || lseek(o->held.fd, 0, SEEK_SET) < 0)
            return file_failed(&o->held, -errno, error);
        o->held.file_bytes = 0;
    }
    return 0;
}

/* ---- open and close ---- */

struct carry {
    struct batch_out *o;
    batch_out_line *each;
    void *arg;
};

/* Held lines of a job that was in order, when this one is not. */
static int carry_over(void *arg, const char *text, size_t bytes,
                      uint64_t place)
{
    struct carry *c = arg;
    (void)place;
    int said = c->each(c->arg, text, bytes, 0);
    if (!said)
        said = append(&c->o->out, text, bytes + 1); /* its end is there */
    return said;
}

/* Without a name for longer than a moment. */
static int open_temporary(void)
{
    char name[4096];
    int fd = open(outputs_temporary(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    snprintf(name, sizeof name, "%s/sluice-held-XXXXXX", outputs_temporary());
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

static int open_held(struct batch_out *o, batch_out_line *each, void *arg,
                     struct error *error)
{
    struct sink *h = &o->held;
    struct carry carry = { o, each, arg };
    uint64_t kept = 0;
    if (!strcmp(o->out.path, "-")) {
        if (o->in_order)
            h->fd = open_temporary();
        return !o->in_order || h->fd >= 0
                   ? 0
                   : error_set(error, -errno, "%s: a temporary file: %s",
                               outputs_temporary(), strerror(errno));
    }
    if (!o->out.regular ||
        snprintf(h->path, sizeof h->path, "%s.held", o->out.path) >=
            (int)sizeof h->path)
        return o->in_order ? error_set(error, -EINVAL,
                                       "%s: answers in order need "
                                       "a file",
                                       o->out.path)
                           : 0;
    h->beside = true;
    if (!o->in_order && faccessat(AT_FDCWD, h->path, F_OK, AT_SYMLINK_NOFOLLOW))
        return 0;
    int err = sink_open(h, error);
    if (!err)
        err = sink_read(h, o->in_order ? each : carry_over,
                        o->in_order ? arg : &carry, o->in_order, &kept, error);
    if (o->in_order)
        o->holds = kept;
    if (err || o->in_order)
        return err;
    err = batch_out_flush(o, error);
    if (err)
        return err;
    unlink(h->path);
    close(h->fd);
    h->fd = -1;
    return 0;
}

int batch_out_open(struct batch_out **out, const char *path, bool in_order,
                   batch_out_line *each, void *arg, struct error *error)
{
    *out = NULL;
    struct batch_out *o = calloc(1, sizeof *o);
    if (!o)
        return error_set(error, -ENOMEM, "no memory for the answers");
    uint64_t lines = 0;
    o->out.fd = o->held.fd = -1;
    o->in_order = in_order;
    o->next = 1;
    int err = 0;
    if (snprintf(o->out.path, sizeof o->out.path, "%s", path) >=
        (int)sizeof o->out.path)
        err = error_set(error, -ENAMETOOLONG,
                        "the name of the output is too long");
    if (!err)
        err = sink_open(&o->out, error);
    if (!err && o->out.regular)
        err = sink_read(&o->out, each, arg, false, &lines, error);
    if (!err)
        err = open_held(o, each, arg, error);
    if (err) {
        batch_out_close(o, false);
        return err;
    }
    *out = o;
    return 0;
}

static void sink_close(struct sink *s)
{
    if (s->fd >= 0 && s->fd != STDOUT_FILENO)
        close(s->fd);
    free(s->buffer);
}

void batch_out_close(struct batch_out *o, bool complete)
{
    if (!o)
        return;
    if (complete && o->in_order && o->held.path[0] && !o->holds)
        unlink(o->held.path);
    sink_close(&o->out);
    sink_close(&o->held);
    free(o->turn);
    free(o);
}

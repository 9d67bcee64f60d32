#include "bin/batch_out.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 64 << 10 };

/* How every line of ours begins: what is cut off begins so, too. */
static const char our_begin[] = "{\"id\":\"batch_req_";

/* A file that grows at its end. What is in the buffer comes behind what is in
 * the file. */
struct sink {
    int      fd; /* -1: none */
    char     path[4096];
    bool     regular;
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

static int file_failed(const struct sink *s, int err, struct why *why)
{
    return why_set(why, err, "%s: %s", s->path, strerror(-err));
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

static int sink_flush(struct sink *s)
{
    size_t done = 0;
    while (done < s->used) {
        ssize_t n = write(s->fd, s->buffer + done, s->used - done);
        if (n < 0 && errno == EINTR)
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
    return done && s->regular && fdatasync(s->fd) ? -errno : 0;
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

static int sink_open(struct sink *s, struct why *why)
{
    struct stat st;
    if (!strcmp(s->path, "-")) {
        s->fd = STDOUT_FILENO;
        return 0;
    }
    bool there = !stat(s->path, &st);
    s->regular = !there || S_ISREG(st.st_mode);
    int flags = s->regular ? O_RDWR | O_CREAT | O_APPEND : O_WRONLY;
    s->fd = open(s->path, flags | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return file_failed(s, -errno, why);
    if (s->regular && flock(s->fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK
                   ? why_set(why, -EWOULDBLOCK, "%s: another process is "
                             "writing it", s->path)
                   : file_failed(s, -errno, why);
    if (!there)
        sync_folder(s->path);
    return 0;
}

/* Tell of the whole lines of a file and cut off what follows the last. */
static int sink_read(struct sink *s, batch_out_line *each, void *arg,
                     bool places, uint64_t *kept, struct why *why)
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
                err = why_set(why, said, said == -ENOMEM
                              ? "%s: no memory for its lines (%" PRIu64 ")"
                              : "%s: line %" PRIu64 " is not an answer of "
                              "sluice batch: give another file", s->path,
                              number);
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
                return file_failed(s, -ENOMEM, why);
            s->buffer = larger;
            s->capacity = s->capacity * 2 + STEP;
        }
        ssize_t got = pread(s->fd, s->buffer + s->used, STEP,
                            (off_t)(at + s->used));
        if (got < 0)
            return file_failed(s, -errno, why);
        if (!got)
            break;
        s->used += (size_t)got;
    }
    size_t same = sizeof our_begin - 1 < s->used ? sizeof our_begin - 1
                                                 : s->used;
    if (memcmp(s->buffer, our_begin, same) && s->buffer[0])
        return why_set(why, -EBADMSG, "%s: its end is not an answer of sluice "
                       "batch: give another file", s->path);
    if (s->used && ftruncate(s->fd, (off_t)at))
        return file_failed(s, -errno, why);
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
                  size_t bytes, struct why *why)
{
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
    return err ? file_failed(to, err, why) : 0;
}

int batch_out_take(struct batch_out *o, uint64_t line, uint64_t place,
                   struct why *why)
{
    int err = turn_set(o, line, (struct turn){ place, TURN_HELD });
    return err ? file_failed(&o->held, err, why) : 0;
}

int batch_out_flush(struct batch_out *o, struct why *why)
{
    int err = o->held.fd >= 0 ? sink_flush(&o->held) : 0;
    if (err)
        return file_failed(&o->held, err, why);
    err = sink_flush(&o->out);
    if (err)
        return file_failed(&o->out, err, why);
    if (!o->holds && o->held.file_bytes) {
        if (ftruncate(o->held.fd, 0) || lseek(o->held.fd, 0, SEEK_SET) < 0)
            return file_failed(&o->held, -errno, why);
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

static int open_held(struct batch_out *o, batch_out_line *each, void *arg,
                     struct why *why)
{
    struct sink *h = &o->held;
    struct carry carry = { o, each, arg };
    uint64_t kept = 0;
    if (!strcmp(o->out.path, "-")) {
        FILE *f = o->in_order ? tmpfile() : NULL;
        if (f) {
            h->fd = dup(fileno(f));
            fclose(f);
        }
        return !o->in_order || h->fd >= 0
                   ? 0
                   : why_set(why, -errno, "a temporary file: %s",
                             strerror(errno));
    }
    if (!o->out.regular ||
        snprintf(h->path, sizeof h->path, "%s.held", o->out.path) >=
            (int)sizeof h->path)
        return o->in_order ? why_set(why, -EINVAL, "%s: answers in order need "
                                     "a file", o->out.path)
                           : 0;
    if (!o->in_order && access(h->path, F_OK))
        return 0;
    int err = sink_open(h, why);
    if (!err)
        err = sink_read(h, o->in_order ? each : carry_over,
                        o->in_order ? arg : &carry, o->in_order, &kept, why);
    if (o->in_order)
        o->holds = kept;
    if (err || o->in_order)
        return err;
    err = batch_out_flush(o, why);
    if (!err)
        unlink(h->path);
    return err;
}

int batch_out_open(struct batch_out **out, const char *path, bool in_order,
                   batch_out_line *each, void *arg, struct why *why)
{
    *out = NULL;
    struct batch_out *o = calloc(1, sizeof *o);
    if (!o)
        return why_set(why, -ENOMEM, "no memory for the answers");
    uint64_t lines = 0;
    o->out.fd = o->held.fd = -1;
    o->in_order = in_order;
    o->next = 1;
    int err = 0;
    if (snprintf(o->out.path, sizeof o->out.path, "%s", path) >=
        (int)sizeof o->out.path)
        err = why_set(why, -ENAMETOOLONG, "the name of the output is too long");
    if (!err)
        err = sink_open(&o->out, why);
    if (!err && o->out.regular)
        err = sink_read(&o->out, each, arg, false, &lines, why);
    if (!err)
        err = open_held(o, each, arg, why);
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

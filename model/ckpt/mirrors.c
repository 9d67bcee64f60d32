#include "model/ckpt/mirrors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 << 10, LENGTH_BYTES = 8 };

struct finder {
    struct mirrors *out;
    const struct ckpt *ckpt;
    mirrors_note_fn *note;
    void *arg;
    struct error *error;
    uint8_t mine[PIECE], theirs[PIECE];
};

static void leave_out(const struct finder *f, const char *path, int error)
{
    char text[1024];
    snprintf(text, sizeof text, "%.900s: %s: this copy is not used", path,
             strerror(-error));
    f->note(f->arg, text);
}

/* Read exactly that much. 0, or why not. */
static int read_at(int fd, uint8_t *to, size_t bytes, uint64_t offset)
{
    while (bytes) {
        ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        to += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Compare length and text of the headers. 0: equal; 1: not; or an errno of the
 * copy. */
static int compare_headers(struct finder *f, int mine, int theirs,
                           uint64_t size)
{
    uint64_t end = LENGTH_BYTES;
    for (uint64_t at = 0; at < end;) {
        uint64_t n = end - at < PIECE ? end - at : PIECE;
        if (read_at(mine, f->mine, n, at)) /* opening the shard says why */
            return 0;
        int err = read_at(theirs, f->theirs, n, at);
        if (err)
            return err;
        if (memcmp(f->mine, f->theirs, n))
            return 1;
        if (!at) {
            for (int i = 0; i < LENGTH_BYTES; i++)
                end += (uint64_t)f->mine[i] << (8 * i);
            end = end >= LENGTH_BYTES && end <= size ? end : size;
        }
        at += n;
    }
    return 0;
}

static int add(struct finder *f, const char *path, uint32_t shard,
               uint32_t copy)
{
    struct mirrors *m = f->out;
    size_t n = m->count + 1;
    char **paths = realloc(m->path, n * sizeof *paths);
    m->path = paths ? paths : m->path;
    uint32_t *of = realloc(m->of, n * sizeof *of);
    m->of = of ? of : m->of;
    uint32_t *copies = realloc(m->copy, n * sizeof *copies);
    m->copy = copies ? copies : m->copy;
    char *kept = strdup(path);
    if (!paths || !of || !copies || !kept) {
        free(kept);
        return error_set(f->error, -ENOMEM, "no memory for the mirrors");
    }
    m->path[m->count] = kept;
    m->of[m->count] = shard;
    m->copy[m->count++] = copy;
    return 0;
}

/* Is it a copy, the shard itself, or another file? */
static int look_at(struct finder *f, const char *path, uint32_t shard,
                   uint32_t copy)
{
    struct stat st, own;
    const char *original = ckpt_path(f->ckpt, shard);
    uint64_t size = ckpt_file_size(f->ckpt, shard);
    int theirs = open(path, O_RDONLY | O_CLOEXEC);
    int mine = open(original, O_RDONLY | O_CLOEXEC), err = 0;
    if (theirs < 0 || fstat(theirs, &st)) {
        err = -errno;
        if (err != -ENOENT)
            leave_out(f, path, err);
        err = 0;
    } else if (mine >= 0 && !fstat(mine, &own) && own.st_dev == st.st_dev &&
               own.st_ino == st.st_ino) {
        leave_out(f, path, -EEXIST);
    } else if ((uint64_t)st.st_size != size) {
        err = error_set(f->error, -EBADMSG,
                        "%s: has %" PRIu64 " bytes and is no copy of %s, "
                        "which has %" PRIu64, path, (uint64_t)st.st_size,
                        original, size);
    } else {
        int got = compare_headers(f, mine, theirs, size);
        if (got < 0)
            leave_out(f, path, got);
        else if (got)
            err = error_set(f->error, -EBADMSG,
                            "%s: its header differs from that of %s: it is no "
                            "copy", path, original);
        else
            err = add(f, path, shard, copy);
    }
    if (theirs >= 0)
        close(theirs);
    if (mine >= 0)
        close(mine);
    return err;
}

static int look_in(struct finder *f, const char *folder, uint32_t copy)
{
    char path[4096 + 256];
    struct stat st;
    uint32_t before = f->out->count;
    if (stat(folder, &st)) {
        leave_out(f, folder, -errno);
        return 0;
    }
    for (uint32_t s = 0; s < ckpt_files(f->ckpt); s++) {
        const char *name = strrchr(ckpt_path(f->ckpt, s), '/');
        name = name ? name + 1 : ckpt_path(f->ckpt, s);
        int n = snprintf(path, sizeof path, "%s/%s", folder, name);
        int err = n < (int)sizeof path ? look_at(f, path, s, copy) : 0;
        if (err)
            return err;
    }
    if (f->out->count == before)
        leave_out(f, folder, -ENODATA);
    return 0;
}

int mirrors_find(struct mirrors *out, const struct ckpt *ckpt,
                 const char *const *folder, uint32_t folders,
                 mirrors_note_fn *note, void *arg, struct error *error)
{
    memset(out, 0, sizeof *out);
    struct finder *f = folders ? calloc(1, sizeof *f) : NULL;
    if (!folders)
        return 0;
    if (!f)
        return error_set(error, -ENOMEM, "no memory for the mirrors");
    *f = (struct finder){ .out = out, .ckpt = ckpt, .note = note, .arg = arg,
                          .error = error };
    int err = 0;
    for (uint32_t i = 0; i < folders && !err; i++)
        err = look_in(f, folder[i], i + 1);
    free(f);
    if (err)
        mirrors_free(out);
    return err;
}

void mirrors_free(struct mirrors *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        free(m->path[i]);
    free(m->path);
    free(m->of);
    free(m->copy);
    memset(m, 0, sizeof *m);
}

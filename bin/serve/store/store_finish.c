/* store_finish.c - the end of a batch: its journal becomes two files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bin/serve/store/store_internal.h"

/* Answers and errors, while they are written beside their places. */
struct halves {
    char path[2][STORE_PATH], place[2][STORE_PATH];
    FILE *f[2];
    uint64_t lines[2], bytes[2];
};

static int fail(const char *path, struct error *error)
{
    int err = errno ? -errno : -EIO;
    return error_set(error, err, "%s: %s", path, strerror(-err));
}

static bool is_error(const char *line, size_t n)
{
    struct jv_doc doc;
    if (jv_parse(&doc, line, n, JV_STRICT, NULL))
        return true;
    bool wrong = jv_get(doc.root, "error") != NULL;
    jv_free(&doc);
    return wrong;
}

static int split(struct halves *h, const char *journal, struct error *error)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int err = 0;
    FILE *in = fopen(journal, "re");
    if (!in)
        return errno == ENOENT ? 0 : fail(journal, error);
    while (!err && (n = getline(&line, &room, in)) > 0) {
        if (line[n - 1] != '\n') /* a crash cut it off */
            break;
        int half = is_error(line, (size_t)n - 1);
        if (fwrite(line, 1, (size_t)n, h->f[half]) != (size_t)n)
            err = fail(h->path[half], error);
        h->lines[half]++;
        h->bytes[half] += (uint64_t)n;
    }
    if (!err && ferror(in))
        err = fail(journal, error);
    free(line);
    fclose(in);
    return err;
}

static int close_half(struct halves *h, int i, struct error *error)
{
    FILE *f = h->f[i];
    h->f[i] = NULL;
    if (!f)
        return 0;
    int err = fflush(f) || fsync(fileno(f)) ? fail(h->path[i], error) : 0;
    if (fclose(f) && !err)
        err = fail(h->path[i], error);
    if (!err && h->lines[i] && rename(h->path[i], h->place[i]))
        err = fail(h->place[i], error);
    if (err || !h->lines[i])
        unlink(h->path[i]);
    return err;
}

/* The file of one half, known from now on; that of an earlier try gives way. */
static int add_half(struct store *s, const struct halves *h, int i,
                    const char *id, const char *name, struct error *error)
{
    struct store_file *f = store_find_file(s, id);
    bool known = f;
    if (!h->lines[i])
        return 0;
    if (!f)
        f = calloc(1, sizeof *f);
    if (!f)
        return error_set(error, -ENOMEM, "no memory for a file");
    snprintf(f->id, sizeof f->id, "%.63s", id);
    snprintf(f->name, sizeof f->name, "%.127s", name);
    snprintf(f->purpose, sizeof f->purpose, "batch_output");
    f->bytes = h->bytes[i];
    if (!known) {
        f->created = time(NULL);
        f->expires = f->created + s->seconds;
    }
    int err = store_save_file(s, f, error);
    if (!known && !err)
        store_add_file(s, f);
    else if (!known)
        free(f);
    return err;
}

static void remove_journal(struct store *s, const char *id)
{
    static const char *const end[] = { ".in", ".out", ".out.partial" };
    char path[STORE_PATH];
    for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
        store_path(s, "batches", id, end[i], path);
        unlink(path);
    }
}

static int finish(struct store *s, struct store_batch *b, struct error *error)
{
    static const char *const end[2] = { "output", "errors" };
    char journal[STORE_PATH], id[2][STORE_ID], name[2][2 * STORE_ID];
    struct halves h = { .lines = { 0 } };
    int err = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(id[i], STORE_ID, "file-%.40s-%s", b->id + strlen("batch-"),
                 end[i]);
        snprintf(name[i], sizeof name[i], "%s_%s.jsonl", b->id, end[i]);
        store_path(s, "files", id[i], "", h.place[i]);
        store_path(s, "files", id[i], ".new", h.path[i]);
        h.f[i] = fopen(h.path[i], "we");
        if (!h.f[i] && !err)
            err = fail(h.path[i], error);
    }
    store_path(s, "batches", b->id, ".out", journal);
    if (!err)
        err = split(&h, journal, error);
    for (int i = 0; i < 2; i++) {
        int closed = close_half(&h, i, error);
        err = err ? err : closed;
    }
    for (int i = 0; i < 2 && !err; i++)
        err = add_half(s, &h, i, id[i], name[i], error);
    if (err)
        return err;
    snprintf(b->output, STORE_ID, "%s", h.lines[0] ? id[0] : "");
    snprintf(b->errors, STORE_ID, "%s", h.lines[1] ? id[1] : "");
    b->completed = h.lines[0];
    b->failed = h.lines[1];
    return 0;
}

int store_batch_finish(struct store *s, const char *id, struct error *error)
{
    pthread_mutex_lock(&s->lock);
    struct store_batch *b = store_find_batch(s, id);
    int err = b ? finish(s, b, error) : 0;
    bool cancelled = b && b->status == BATCH_CANCELLING;
    pthread_mutex_unlock(&s->lock);
    if (err || !b)
        return err;
    err = store_batch_turn(s, id, cancelled ? BATCH_IS_CANCELLED
                                            : BATCH_COMPLETED, "", error);
    if (!err)
        remove_journal(s, id);
    return err;
}

void store_expire_batches(struct store *s, int64_t now)
{
    char path[STORE_PATH];
    struct store_batch **link = &s->batches;
    while (*link) {
        struct store_batch *b = *link;
        bool over = b->at[BATCH_COMPLETED] || b->at[BATCH_IS_FAILED] ||
                    b->at[BATCH_IS_CANCELLED];
        if (!over || b->expires > now) {
            link = &b->after;
            continue;
        }
        *link = b->after;
        store_path(s, "batches", b->id, ".json", path);
        unlink(path);
        remove_journal(s, b->id);
        free(b->metadata);
        free(b);
    }
}

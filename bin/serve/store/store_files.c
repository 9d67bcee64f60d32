/* store_files.c - what clients upload and download. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bin/serve/store/store_internal.h"

void store_put_file(struct buffer *out, const struct store_file *f)
{
    buffer_format(out,
                  "{\"id\":\"%s\",\"object\":\"file\",\"bytes\":%" PRIu64
                  ",\"created_at\":%" PRId64,
                  f->id, f->bytes, f->created);
    if (f->expires)
        buffer_format(out, ",\"expires_at\":%" PRId64, f->expires);
    buffer_text(out, ",\"filename\":");
    api_text(out, f->name);
    buffer_text(out, ",\"purpose\":");
    api_text(out, f->purpose);
    buffer_text(out, ",\"status\":\"processed\",\"status_details\":null}");
}

int store_save_file(struct store *s, const struct store_file *f,
                    struct error *error)
{
    struct buffer json = { 0 };
    store_put_file(&json, f);
    return store_save(s, "files", f->id, &json, error);
}

struct store_file *store_find_file(struct store *s, const char *id)
{
    struct store_file *f = s->files;
    while (f && strcmp(f->id, id))
        f = f->after;
    return f;
}

void store_add_file(struct store *s, struct store_file *f)
{
    struct store_file **link = &s->files;
    while (*link && (*link)->created > f->created)
        link = &(*link)->after;
    f->after = *link;
    *link = f;
    s->bytes += f->bytes;
}

void store_remove_file(struct store *s, struct store_file *f)
{
    char path[STORE_PATH];
    struct store_file **link = &s->files;
    while (*link != f)
        link = &(*link)->after;
    *link = f->after;
    store_path(s, "files", f->id, ".json", path); /* first: nobody finds it */
    unlink(path);
    store_path(s, "files", f->id, "", path);
    unlink(path);
    s->bytes -= f->bytes;
    free(f);
}

static int missing(struct api_error *e, const char *id)
{
    snprintf(e->field, sizeof e->field, "id");
    return api_fail(e, 404, "not_found", "there is no file %.80s", id);
}

/* ---- uploads ---- */

int store_upload_begin(struct store *s, struct store_upload *u,
                       struct api_error *e)
{
    memset(&u->file, 0, sizeof u->file);
    u->store = s;
    pthread_mutex_lock(&s->lock);
    store_new_id(s, "file", u->file.id);
    pthread_mutex_unlock(&s->lock);
    store_path(s, "files", u->file.id, ".new", u->path);
    u->fd = open(u->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (u->fd >= 0)
        return 0;
    return api_fail(e, errno == ENOSPC ? 507 : 500, "storage",
                    "the file cannot be stored: %s", strerror(errno));
}

int store_upload_put(struct store_upload *u, const char *bytes, size_t n,
                     struct api_error *e)
{
    struct store *s = u->store;
    pthread_mutex_lock(&s->lock);
    bool fits = store_make_room(s, u->file.bytes + n);
    uint64_t there = s->bytes;
    pthread_mutex_unlock(&s->lock);
    if (!fits)
        return api_fail(e, 413, "storage_full",
                        "the files of this server may have %" PRIu64
                        " bytes, and have %" PRIu64 ": delete some",
                        s->most_bytes, there);
    while (n) {
        ssize_t wrote = write(u->fd, bytes, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return api_fail(e, errno == ENOSPC ? 507 : 500, "storage",
                            "the file cannot be stored: %s", strerror(errno));
        bytes += wrote;
        n -= (size_t)wrote;
        u->file.bytes += (uint64_t)wrote;
    }
    return 0;
}

int store_upload_end(struct store_upload *u, struct buffer *json,
                     struct api_error *e)
{
    struct store *s = u->store;
    struct error error = { 0 };
    char path[STORE_PATH];
    struct store_file *f = malloc(sizeof *f);
    if (!f)
        return api_fail(e, 503, "no_memory", "no memory for a file");
    u->file.created = time(NULL);
    u->file.expires = u->file.created + s->seconds;
    *f = u->file;
    store_path(s, "files", f->id, "", path);
    int err = fsync(u->fd) ? -errno : 0;
    if (!err && rename(u->path, path))
        err = -errno;
    if (err) {
        free(f);
        return api_fail(e, err == -ENOSPC ? 507 : 500, "storage",
                        "the file cannot be stored: %s", strerror(-err));
    }
    *u->path = 0;
    pthread_mutex_lock(&s->lock);
    err = store_save_file(s, f, &error);
    if (!err)
        store_add_file(s, f);
    store_put_file(json, f);
    pthread_mutex_unlock(&s->lock);
    if (!err)
        return 0;
    unlink(path);
    free(f);
    return store_fault(e, &error);
}

void store_upload_drop(struct store_upload *u)
{
    if (u->fd >= 0)
        close(u->fd);
    if (*u->path)
        unlink(u->path);
    u->fd = -1;
}

/* ---- the rest ---- */

int store_file_json(struct store *s, const char *id, struct buffer *out,
                    struct api_error *e)
{
    pthread_mutex_lock(&s->lock);
    struct store_file *f = store_find_file(s, id);
    if (f)
        store_put_file(out, f);
    pthread_mutex_unlock(&s->lock);
    return f ? 0 : missing(e, id);
}

int store_file_read(struct store *s, const char *id, uint64_t *bytes,
                    struct api_error *e)
{
    char path[STORE_PATH];
    int fd = -1;
    pthread_mutex_lock(&s->lock);
    struct store_file *f = store_find_file(s, id);
    if (f) {
        store_path(s, "files", id, "", path);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        *bytes = f->bytes;
    }
    pthread_mutex_unlock(&s->lock);
    if (!f)
        return missing(e, id);
    return fd >= 0 ? fd
                   : api_fail(e, 500, "storage", "the file cannot be read: %s",
                              strerror(errno));
}

int store_file_delete(struct store *s, const char *id, struct buffer *out,
                      struct api_error *e)
{
    int err = 0;
    pthread_mutex_lock(&s->lock);
    struct store_file *f = store_find_file(s, id);
    if (!f)
        err = missing(e, id);
    else if (store_is_read(s, id))
        err = api_fail(e, 409, "file_in_use", "a batch that runs reads it");
    else
        store_remove_file(s, f);
    pthread_mutex_unlock(&s->lock);
    if (err)
        return err;
    buffer_text(out, "{\"id\":");
    api_text(out, id);
    buffer_text(out, ",\"object\":\"file\",\"deleted\":true}");
    return 0;
}

int store_file_list(struct store *s, const char *purpose, const char *behind,
                    uint32_t most, struct buffer *out, struct api_error *e)
{
    uint32_t n = 0;
    const char *first = "", *last = "";
    pthread_mutex_lock(&s->lock);
    struct store_file *f = s->files;
    if (*behind) {
        f = store_find_file(s, behind);
        if (!f) {
            pthread_mutex_unlock(&s->lock);
            return missing(e, behind);
        }
        f = f->after;
    }
    buffer_text(out, "{\"object\":\"list\",\"data\":[");
    for (; f; f = f->after) {
        if (*purpose && strcmp(f->purpose, purpose))
            continue;
        if (n == most)
            break;
        buffer_text(out, n++ ? "," : "");
        store_put_file(out, f);
        first = n == 1 ? f->id : first;
        last = f->id;
    }
    buffer_text(out, "],\"first_id\":");
    api_text(out, first);
    buffer_text(out, ",\"last_id\":");
    api_text(out, last);
    buffer_format(out, ",\"has_more\":%s}", f ? "true" : "false");
    pthread_mutex_unlock(&s->lock);
    return 0;
}

void store_expire(struct store *s, int64_t now)
{
    struct store_file *next;
    pthread_mutex_lock(&s->lock);
    store_expire_batches(s, now);
    store_expire_responses(s, now);
    for (struct store_file *f = s->files; f; f = next) {
        next = f->after;
        if (f->expires && f->expires < now && !store_is_read(s, f->id))
            store_remove_file(s, f);
    }
    pthread_mutex_unlock(&s->lock);
}

/* store.c - the folder: paths, writing, reading it at the start. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bin/serve/store/store_internal.h"
#include "io/file.h"

enum { OBJECT_MAX = 1 << 20, ID_DIGITS = 24 };

void store_path(const struct store *s, const char *kind, const char *id,
                const char *end, char path[STORE_PATH])
{
    snprintf(path, STORE_PATH, "%s/%s/%s%s", s->dir, kind, id, end);
}

void store_new_id(struct store *s, const char *kind, char id[STORE_ID])
{
    snprintf(id, STORE_ID, "%s-%016" PRIx64 "%08" PRIx64, kind, s->boot,
             ++s->numbers);
}

int store_sync_folder(const struct store *s, const char *kind)
{
    char path[STORE_PATH];
    store_path(s, kind, "", "", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return err;
}

int store_write(const char *path, const char *bytes, size_t count,
                struct error *error)
{
    char beside[STORE_PATH + 8];
    snprintf(beside, sizeof beside, "%s.new", path);
    unlink(beside); /* of a write that failed; and no link is followed */
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int err = fd < 0 ? -errno : file_append_all(fd, bytes, count);
    if (!err && fsync(fd))
        err = -errno;
    if (fd >= 0 && close(fd) && !err)
        err = -errno;
    if (!err && rename(beside, path))
        err = -errno;
    if (!err)
        return 0;
    unlink(beside);
    return error_set(error, err, "%s cannot be written: %s", path,
                     strerror(-err));
}

int store_save(const struct store *s, const char *kind, const char *id,
               struct buffer *json, struct error *error)
{
    char path[STORE_PATH];
    store_path(s, kind, id, ".json", path);
    int err = json->failed ? error_set(error, -ENOMEM, "%s: no memory", path)
                           : store_write(path, json->bytes, json->count,
                                         error);
    buffer_free(json);
    if (!err && store_sync_folder(s, kind))
        err = error_set(error, -EIO, "%s: %s", path, strerror(EIO));
    return err;
}

int store_fault(struct api_error *e, const struct error *error)
{
    return api_fail(e, error->code == -ENOSPC ? 507 : 500, "storage", "%s",
                    error->text);
}

void store_copy_text(char *out, size_t room, const struct jv *v)
{
    bool text = jv_is_type(v, JV_STRING);
    snprintf(out, room, "%s", text ? v->text : "");
}

/* ---- at the start ---- */

static int read_object(const char *path, struct jv_doc *doc)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int err = fstat(fd, &st) ? -errno : 0;
    if (!err && st.st_size > OBJECT_MAX)
        err = -EFBIG;
    size_t bytes = err ? 0 : (size_t)st.st_size, have = 0;
    char *text = malloc(bytes + 1);
    err = text ? err : -ENOMEM;
    while (!err && have < bytes) {
        ssize_t n = read(fd, text + have, bytes - have);
        if (n <= 0)
            err = n ? -errno : -ENODATA;
        else
            have += (size_t)n;
    }
    close(fd);
    if (!err)
        err = jv_parse(doc, text, bytes, JV_STRICT, NULL);
    free(text);
    return err;
}

/* Does a name begin with an id of this server, KIND-HEX? */
static bool has_id(const char *name)
{
    size_t kind = strspn(name, "abcdefghijklmnopqrstuvwxyz");
    return kind && name[kind] == '-' &&
           strspn(name + kind + 1, "0123456789abcdef") == ID_DIGITS;
}

int store_scan(struct store *s, const char *kind,
               int (*each)(struct store *s, const char *id,
                           const struct jv *object),
               struct error *error)
{
    char path[STORE_PATH], id[STORE_ID];
    struct dirent *entry;
    int err = 0;
    store_path(s, kind, "", "", path);
    DIR *dir = opendir(path);
    if (!dir)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    while (!err && (entry = readdir(dir))) {
        struct jv_doc doc;
        const char *name = entry->d_name;
        size_t n = strlen(name);
        if (n > 4 && !strcmp(name + n - 4, ".new") && has_id(name)) {
            /* a crash left it */
            store_path(s, kind, name, "", path);
            unlink(path);
        }
        if (n < 6 || n >= STORE_ID || strcmp(name + n - 5, ".json"))
            continue;
        snprintf(id, sizeof id, "%.*s", (int)(n - 5), name);
        store_path(s, kind, id, ".json", path);
        err = read_object(path, &doc);
        if (err) {
            error_set(error, err, "%s is not an object of this server: %s",
                      path, strerror(-err));
            break;
        }
        err = each(s, id, doc.root);
        jv_free(&doc);
    }
    closedir(dir);
    return err < 0 && error ? error_set(error, err, "%s: %s", path,
                                        strerror(-err))
                            : err;
}

static int load_file(struct store *s, const char *id, const struct jv *object)
{
    char path[STORE_PATH];
    struct stat st;
    store_path(s, "files", id, "", path);
    if (stat(path, &st))
        return errno == ENOENT ? 0 : -errno;
    struct store_file *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    snprintf(f->id, sizeof f->id, "%s", id);
    store_copy_text(f->name, sizeof f->name, jv_get(object, "filename"));
    store_copy_text(f->purpose, sizeof f->purpose, jv_get(object, "purpose"));
    jv_integer(jv_get(object, "created_at"), &f->created);
    jv_integer(jv_get(object, "expires_at"), &f->expires);
    f->bytes = (uint64_t)st.st_size;
    store_add_file(s, f);
    return 0;
}

/* A folder with other things in it is not ours to keep house in. */
static int check_folder(const char *path, struct error *error)
{
    uint32_t entries = 0;
    bool ours = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        entries += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
                   strcmp(e->d_name, "lost+found"); /* of a new volume */
        ours |= !strcmp(e->d_name, "lock");
    }
    if (dir)
        closedir(dir);
    return !entries || ours
               ? 0
               : error_set(error, -EEXIST, "%s: not empty, and not made by "
                           "sluice serve", path);
}

static int make_folder(const char *path, struct error *error)
{
    if (!mkdir(path, 0700) || errno == EEXIST)
        return 0;
    return error_set(error, -errno, "%s cannot be made: %s", path,
                     strerror(errno));
}

static int open_folder(struct store *s, struct error *error)
{
    char path[STORE_PATH];
    int err = make_folder(s->dir, error);
    if (!err)
        err = check_folder(s->dir, error);
    store_path(s, "files", "", "", path);
    if (!err)
        err = make_folder(path, error);
    store_path(s, "batches", "", "", path);
    if (!err)
        err = make_folder(path, error);
    store_path(s, "answers", "", "", path);
    if (!err)
        err = make_folder(path, error);
    store_path(s, "responses", "", "", path);
    if (!err)
        err = make_folder(path, error);
    if (err)
        return err;
    snprintf(path, sizeof path, "%s/lock", s->dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(error, -errno, "%s belongs to another server that "
                         "runs", s->dir);
    return 0;
}

int store_open(struct store **out, const char *dir, uint64_t most_bytes,
               int64_t seconds, struct error *error)
{
    *out = NULL;
    if (strlen(dir) >= sizeof (*out)->dir)
        return error_set(error, -ENAMETOOLONG, "--data: the path is too long");
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(error, -ENOMEM, "no memory for the store");
    pthread_mutex_init(&s->lock, NULL);
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    s->lock_fd = -1;
    s->responses_end = &s->responses;
    s->most_bytes = most_bytes;
    s->seconds = seconds;
    int err = getrandom(&s->boot, sizeof s->boot, 0) == sizeof s->boot
                  ? 0
                  : error_set(error, -EIO, "no random numbers");
    if (!err)
        err = open_folder(s, error);
    if (!err)
        err = store_scan(s, "files", load_file, error);
    if (!err)
        err = store_load_batches(s, error);
    if (!err)
        err = store_load_responses(s, error);
    if (err) {
        store_close(s);
        return err;
    }
    s->news = true;
    *out = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    while (s->files) {
        struct store_file *f = s->files;
        s->files = f->after;
        free(f);
    }
    while (s->batches) {
        struct store_batch *b = s->batches;
        s->batches = b->after;
        free(b->metadata);
        free(b);
    }
    store_free_responses(s);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

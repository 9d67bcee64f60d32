/* store_responses.c - responses that a later request may go on from. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bin/serve/store/store_internal.h"

#define HEAD "sluice serve: a response, version 1\n"
#define END "\n.\n"

enum { OWNER = 17, ID_DIGITS = 24 }; /* 16 digits and a line's end */

static void path_of(const struct store *s, const char *id,
                    char path[STORE_PATH])
{
    store_path(s, "responses", id, "", path);
}

/* resp_ and digits: whatever else a client sends is no name of a file. */
static bool is_id(const char *id)
{
    return !strncmp(id, "resp_", 5) &&
           strspn(id + 5, "0123456789abcdef") == ID_DIGITS &&
           !id[5 + ID_DIGITS];
}

/* ---- which there are ---- */

static struct store_response *find(struct store *s, const char *id)
{
    struct store_response *r = s->responses;
    while (r && strcmp(r->id, id))
        r = r->after;
    return r;
}

static void add(struct store *s, struct store_response *r)
{
    r->after = NULL;
    *s->responses_end = r;
    s->responses_end = &r->after;
    s->bytes += r->bytes;
}

static void drop(struct store *s, struct store_response *r)
{
    char path[STORE_PATH];
    struct store_response **link = &s->responses;
    while (*link != r)
        link = &(*link)->after;
    *link = r->after;
    if (s->responses_end == &r->after)
        s->responses_end = link;
    path_of(s, r->id, path);
    unlink(path);
    s->bytes -= r->bytes;
    free(r);
}

bool store_make_room(struct store *s, uint64_t bytes)
{
    uint64_t kept = 0;
    if (!s->most_bytes || s->bytes + bytes <= s->most_bytes)
        return true;
    for (const struct store_response *r = s->responses; r; r = r->after)
        kept += r->bytes;
    if (s->bytes - kept + bytes > s->most_bytes)
        return false;
    while (s->bytes + bytes > s->most_bytes)
        drop(s, s->responses);
    return true;
}

void store_expire_responses(struct store *s, int64_t now)
{
    while (s->responses && s->responses->expires < now)
        drop(s, s->responses);
}

void store_free_responses(struct store *s)
{
    while (s->responses) {
        struct store_response *r = s->responses;
        s->responses = r->after;
        free(r);
    }
    s->responses_end = &s->responses;
}

static int by_age(const void *a, const void *b)
{
    const struct store_response *x = *(struct store_response *const *)a;
    const struct store_response *y = *(struct store_response *const *)b;
    if (x->expires != y->expires)
        return x->expires < y->expires ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* The list in the order of age. */
static int sort(struct store *s, size_t count)
{
    struct store_response **all = calloc(count + 1, sizeof(void *));
    size_t n = 0;
    if (!all)
        return -ENOMEM;
    for (struct store_response *r = s->responses; r; r = r->after)
        all[n++] = r;
    qsort(all, n, sizeof *all, by_age);
    s->responses_end = &s->responses;
    s->responses = NULL;
    for (size_t i = 0; i < n; i++) {
        s->bytes -= all[i]->bytes;
        add(s, all[i]);
    }
    free(all);
    return 0;
}

int store_load_responses(struct store *s, struct error *error)
{
    char path[STORE_PATH];
    struct stat st;
    size_t count = 0;
    int err = 0;
    path_of(s, "", path);
    DIR *dir = opendir(path);
    if (!dir)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    for (struct dirent *e; !err && (e = readdir(dir));) {
        if (strncmp(e->d_name, "resp_", 5) || strlen(e->d_name) >= STORE_ID)
            continue;
        path_of(s, e->d_name, path);
        if (!is_id(e->d_name)) { /* a crash left it half written */
            unlink(path);
            continue;
        }
        struct store_response *r = calloc(1, sizeof *r);
        if (!r)
            err = -ENOMEM;
        else if (stat(path, &st))
            free(r);
        else {
            memcpy(r->id, e->d_name, strlen(e->d_name) + 1);
            r->expires = st.st_mtime + s->seconds;
            r->bytes = (uint64_t)st.st_size;
            add(s, r);
            count++;
        }
    }
    closedir(dir);
    if (!err)
        err = sort(s, count);
    return err ? error_set(error, err, "no memory for responses") : 0;
}

/* ---- one of them ---- */

int store_response_keep(struct store *s, const char *id, uint64_t owner,
                        const struct buffer *object,
                        const struct buffer *turns, struct error *error)
{
    char path[STORE_PATH];
    struct buffer text = { 0 };
    struct store_response *r = calloc(1, sizeof *r);
    path_of(s, id, path);
    buffer_format(&text, HEAD "%016" PRIx64 "\n", owner);
    buffer_put(&text, object->bytes, object->count);
    buffer_text(&text, "\n");
    if (turns->count)
        buffer_put(&text, turns->bytes, turns->count);
    buffer_text(&text, END);
    int err = 0;
    if (!r || text.failed || object->failed || turns->failed)
        err = error_set(error, -ENOMEM, "no memory to keep a response");
    pthread_mutex_lock(&s->lock);
    bool there = find(s, id);
    if (!err && !there && !store_make_room(s, text.count))
        err = error_set(error, -ENOSPC, "%s: there is no room for a response",
                        s->dir);
    if (!err && !there)
        err = store_write(path, text.bytes, text.count, error);
    if (!err && !there) {
        store_sync_folder(s, "responses");
        snprintf(r->id, sizeof r->id, "%s", id);
        r->expires = time(NULL) + s->seconds;
        r->bytes = text.count;
        add(s, r);
        r = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    buffer_free(&text);
    free(r);
    return err;
}

/* The whole file, or nothing. */
static void read_file(struct buffer *out, const char *path)
{
    char part[16384];
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, part, sizeof part)) > 0)
        buffer_put(out, part, (size_t)n);
    if (fd < 0 || n < 0)
        out->failed = true;
    if (fd >= 0)
        close(fd);
}

/* Its two lines; false: the file is not whole, or another owner's. */
static bool parse(const struct buffer *text, uint64_t owner,
                  struct buffer *object, struct buffer *turns)
{
    char mine[OWNER + 1];
    const size_t head = strlen(HEAD), end = strlen(END);
    snprintf(mine, sizeof mine, "%016" PRIx64 "\n", owner);
    if (text->failed || text->count < head + OWNER + end ||
        memcmp(text->bytes, HEAD, head) ||
        memcmp(text->bytes + text->count - end, END, end) ||
        memcmp(text->bytes + head, mine, OWNER))
        return false;
    const char *first = text->bytes + head + OWNER;
    const char *last = text->bytes + text->count - end;
    const char *middle = memchr(first, '\n', (size_t)(last - first));
    if (!middle)
        return false;
    if (object)
        buffer_put(object, first, (size_t)(middle - first));
    if (turns)
        buffer_put(turns, middle + 1, (size_t)(last - middle - 1));
    return true;
}

static int missing(struct api_error *e, const char *id)
{
    snprintf(e->field, sizeof e->field, "id");
    return api_fail(e, 404, "not_found", "there is no response %.80s", id);
}

int store_response_read(struct store *s, const char *id, uint64_t owner,
                        struct buffer *object, struct buffer *turns,
                        struct api_error *e)
{
    char path[STORE_PATH];
    struct buffer text = { 0 };
    pthread_mutex_lock(&s->lock);
    struct store_response *r = is_id(id) ? find(s, id) : NULL;
    if (r && r->expires < time(NULL))
        r = NULL;
    if (r) {
        path_of(s, id, path);
        read_file(&text, path);
    }
    pthread_mutex_unlock(&s->lock);
    bool good = r && parse(&text, owner, object, turns);
    buffer_free(&text);
    return good ? 0 : missing(e, id);
}

int store_response_delete(struct store *s, const char *id, uint64_t owner,
                          struct buffer *out, struct api_error *e)
{
    if (store_response_read(s, id, owner, NULL, NULL, e))
        return -1;
    pthread_mutex_lock(&s->lock);
    struct store_response *r = find(s, id);
    if (r)
        drop(s, r);
    pthread_mutex_unlock(&s->lock);
    if (!r) /* another request was faster */
        return missing(e, id);
    buffer_format(out, "{\"id\":\"%s\",\"object\":\"response\","
                       "\"deleted\":true}", id);
    return 0;
}

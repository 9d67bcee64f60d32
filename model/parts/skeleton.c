/* skeleton.c - a checkpoint of which only headers may be there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "io/file.h"
#include "model/parts/parts_internal.h"

char *skeleton_shard(const char *dir, const char *part)
{
    const char *name = strrchr(part, '/') ? strrchr(part, '/') + 1 : part;
    size_t length = strlen(name) - strlen(".part");
    size_t room = strlen(dir) + length + sizeof "/.safetensors";
    char *path = malloc(room);
    if (path)
        snprintf(path, room, "%s/%.*s.safetensors", dir, (int)length, name);
    return path;
}

/* Everything of a shard that is in no tensor. */
static int write_rests(const struct part *p, int fd, const char *path,
                       struct error *error)
{
    struct source source;
    uint8_t *pages = source_pages(PART_REST_MAX);
    int code = pages ? source_open(&source, p->path, error)
                     : error_set(error, -ENOMEM, "%s: no memory", path);
    if (code) {
        free(pages);
        return code;
    }
    for (uint32_t i = 0; i < p->head->rests && !code; i++) {
        const struct part_rest *r = &p->rest[i];
        const uint8_t *from;
        code = source_read(&source, pages, r->ref.at, r->ref.bytes, &from,
                           error);
        if (!code && crc32c(0, from, r->ref.bytes) != r->ref.crc)
            code = part_damaged(p, r->ref.at, error);
        if (code)
            break;
        code = file_write_all(fd, from, r->ref.bytes, r->source_at);
        if (code)
            error_set(error, code, "%s: %s", path, strerror(-code));
    }
    if (!code && ftruncate(fd, (off_t)p->head->source_bytes))
        code = error_set(error, -errno, "%s: %s", path, strerror(errno));
    source_close(&source);
    free(pages);
    return code;
}

static int make_one(const char *dir, const char *model, const struct part *p,
                    struct error *error)
{
    struct stat st;
    char *to = skeleton_shard(dir, p->path);
    char *from = model ? skeleton_shard(model, p->path) : NULL;
    char *real = from && !stat(from, &st) ? realpath(from, NULL) : NULL;
    int code = 0, fd;
    if (!to || (model && !from)) {
        code = error_set(error, -ENOMEM, "%s: no memory", p->path);
    } else if (real) {
        if (symlink(real, to))
            code = error_set(error, -errno, "%s: %s", to, strerror(errno));
    } else if ((fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) <
               0) {
        code = error_set(error, -errno, "%s: %s", to, strerror(errno));
    } else {
        code = write_rests(p, fd, to, error);
        if (close(fd) && !code)
            code = error_set(error, -errno, "%s: %s", to, strerror(errno));
    }
    free(to);
    free(from);
    free(real);
    return code;
}

/* Every shard of the model that can be seen. */
static int link_all(const char *dir, const char *model, struct error *error)
{
    DIR *d = opendir(model);
    struct dirent *e;
    int code = 0;
    if (!d)
        return error_set(error, -errno, "%s: %s", model, strerror(errno));
    while (!code && (e = readdir(d))) {
        size_t n = strlen(e->d_name);
        char path[4096], *real;
        if (e->d_name[0] == '.' || n < 12 ||
            strcmp(e->d_name + n - 12, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", model, e->d_name);
        real = realpath(path, NULL);
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (real && symlink(real, path) && errno != EEXIST)
            code = error_set(error, -errno, "%s: %s", path, strerror(errno));
        free(real);
    }
    closedir(d);
    return code;
}

int skeleton_make(const char *dir, const char *model,
                  struct part *const *first, uint32_t n, struct error *error)
{
    int code = 0;
    skeleton_remove(dir);
    if (mkdir(dir, 0777))
        return error_set(error, -errno, "%s: %s", dir, strerror(errno));
    for (uint32_t i = 0; i < n && !code; i++)
        if (first[i])
            code = make_one(dir, model, first[i], error);
    return code || !model ? code : link_all(dir, model, error);
}

void skeleton_remove(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    if (!d)
        return;
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(dir);
}

#include "model/ckpt/shards.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".safetensors"

static const char *digits(const char *s, uint32_t *out)
{
    uint32_t value = 0;
    int count = 0;
    for (; *s >= '0' && *s <= '9' && count < 9; s++, count++)
        value = value * 10 + (uint32_t)(*s - '0');
    *out = value;
    return count ? s : NULL;
}

int shards_parse(const char *name, uint32_t *index, uint32_t *of)
{
    if (strncmp(name, "model-", 6))
        return -1;
    const char *s = digits(name + 6, index);
    if (!s || strncmp(s, "-of-", 4))
        return -1;
    s = digits(s + 4, of);
    return s && !strcmp(s, SUFFIX) ? 0 : -1;
}

/* Not dot files: ._model-..., partial downloads. */
static bool is_shard(const char *name)
{
    size_t length = strlen(name);
    return name[0] != '.' && length > strlen(SUFFIX) &&
           !strcmp(name + length - strlen(SUFFIX), SUFFIX);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Put all names of weight files into s->path, unsorted. */
static int read_names(struct shards *s, const char *dir, struct error *error)
{
    DIR *d = opendir(dir);
    if (!d)
        return error_set(error, -errno, "%s: %s", dir, strerror(errno));
    int code = 0;
    uint32_t room = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(d);
        if (!entry) {
            if (errno)
                code = error_set(error, -errno, "%s: %s", dir, strerror(errno));
            break;
        }
        if (!is_shard(entry->d_name))
            continue;
        if (s->count == SHARDS_MAX) {
            code = error_set(error, -EBADMSG, "%s: more than %d shards", dir,
                             SHARDS_MAX);
            break;
        }
        if (s->count == room) {
            room = room ? 2 * room : 128;
            char **more = realloc(s->path, room * sizeof *more);
            if (!more) {
                code = error_set(error, -ENOMEM, "%s: no memory", dir);
                break;
            }
            s->path = more;
        }
        if (!(s->path[s->count] = strdup(entry->d_name))) {
            code = error_set(error, -ENOMEM, "%s: no memory", dir);
            break;
        }
        s->count++;
    }
    closedir(d);
    return code;
}

/* If any name belongs to a numbered set, drop the others. */
static void keep_numbered(struct shards *s)
{
    uint32_t index, of, numbered = 0;
    for (uint32_t i = 0; i < s->count; i++)
        numbered += !shards_parse(s->path[i], &index, &of);
    if (!numbered)
        return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (!shards_parse(s->path[i], &index, &of))
            s->path[kept++] = s->path[i];
        else
            free(s->path[i]);
    s->count = kept;
}

/* Check that the names are one set with each number once. */
static int check_set(const struct shards *s, const char *dir,
                     struct error *error)
{
    uint32_t index, of, all;
    if (shards_parse(s->path[0], &index, &all))
        return 0;
    if (all < 1 || all > SHARDS_MAX)
        return error_set(error, -EBADMSG,
                         "%s: %s: the number of shards is not in 1..%d", dir,
                         s->path[0], SHARDS_MAX);
    uint8_t *seen = calloc(all + 1, 1);
    if (!seen)
        return error_set(error, -ENOMEM, "%s: no memory", dir);
    int code = 0;
    for (uint32_t i = 0; !code && i < s->count; i++) {
        shards_parse(s->path[i], &index, &of);
        if (of != all)
            code = error_set(error, -EBADMSG,
                             "%s: %s and %s belong to different sets of shards",
                             dir, s->path[0], s->path[i]);
        else if (index < 1 || index > all || seen[index])
            code = error_set(error, -EBADMSG,
                             "%s: %s is not one of shards 1 to %u, each once",
                             dir, s->path[i], all);
        else
            seen[index] = 1;
    }
    uint32_t first = 0, missing = 0;
    for (uint32_t i = all; !code && i >= 1; i--)
        if (!seen[i]) {
            first = i;
            missing++;
        }
    free(seen);
    if (missing > 1)
        code = error_set(error, -ENOENT,
                         "%s: %u of %u shards are missing, first "
                         "model-%05u-of-%06u" SUFFIX,
                         dir, missing, all, first, all);
    else if (missing)
        code = error_set(error, -ENOENT,
                         "%s: shard model-%05u-of-%06u" SUFFIX " is missing",
                         dir, first, all);
    return code;
}

static int to_paths(struct shards *s, const char *dir, struct error *error)
{
    for (uint32_t i = 0; i < s->count; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", dir, s->path[i]) < 0)
            return error_set(error, -ENOMEM, "%s: no memory", dir);
        free(s->path[i]);
        s->path[i] = path;
    }
    return 0;
}

int shards_list(struct shards *out, const char *dir, struct error *error)
{
    *out = (struct shards){ 0 };
    int code = read_names(out, dir, error);
    if (!code && !out->count)
        code = error_set(error, -ENOENT, "%s: has no *" SUFFIX " file", dir);
    if (!code) {
        keep_numbered(out);
        qsort(out->path, out->count, sizeof *out->path, by_name);
        code = check_set(out, dir, error);
    }
    if (!code)
        code = to_paths(out, dir, error);
    if (code)
        shards_free(out);
    return code;
}

void shards_free(struct shards *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->path[i]);
    free(s->path);
    *s = (struct shards){ 0 };
}

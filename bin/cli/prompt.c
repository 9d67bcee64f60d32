#include "bin/cli/prompt.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int push(struct sluice_ids *list, uint32_t id)
{
    if (list->count == list->capacity) {
        size_t room = list->capacity * 2 + 64;
        uint32_t *larger = realloc(list->ids, room * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        list->ids = larger;
        list->capacity = room;
    }
    list->ids[list->count++] = id;
    return 0;
}

int prompt_append(struct sluice_ids *out, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (push(out, ids[i]))
            return -ENOMEM;
    return 0;
}

int prompt_ids(struct sluice_ids *out, const char *list, struct error *error)
{
    const char *at = list;
    for (;;) {
        char *end;
        while (*at == ' ')
            at++;
        if (!isdigit((unsigned char)*at))
            break;
        errno = 0;
        unsigned long long id = strtoull(at, &end, 10);
        if (errno || id > UINT32_MAX)
            return error_set(error, -ERANGE, "token id %.*s is out of range",
                             end - at < 40 ? (int)(end - at) : 40, at);
        if (push(out, (uint32_t)id))
            return error_set(error, -ENOMEM, "no memory for the prompt");
        while (*end == ' ' || *end == '\n')
            end++;
        if (!*end)
            return 0;
        if (*end != ',')
            break;
        at = end + 1;
    }
    return error_set(error, -EINVAL, "--ids: %.40s is not a list like 1,2,3",
                     list);
}

int prompt_text(char **out, size_t *length, const char *path,
                uint64_t max_bytes, struct error *error)
{
    *out = NULL;
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "r");
    char *buffer = NULL;
    size_t bytes = 0, room = 0;
    int err = 0;
    if (!f)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    while (!err) {
        if (room - bytes < 65536) {
            room = room ? room * 2 : 1 << 17;
            char *more = realloc(buffer, room);
            if (!more) {
                err = error_set(error, -ENOMEM, "%s: no memory for it", path);
                break;
            }
            buffer = more;
        }
        size_t got = fread(buffer + bytes, 1, room - bytes, f);
        bytes += got;
        if (!got)
            break;
        if (bytes > max_bytes)
            err = error_set(error, -EFBIG,
                            "%s: has more than the %" PRIu64
                            " bytes that are read for a context of this size",
                            path, max_bytes);
    }
    if (!err && ferror(f))
        err = error_set(error, -errno, "%s: %s", path, strerror(errno));
    if (!standard)
        fclose(f);
    if (err) {
        free(buffer);
        buffer = NULL;
    }
    *out = buffer;
    *length = bytes;
    return err;
}

int prompt_file(struct sluice_ids *out, const struct sluice_text *text,
                const char *path, uint64_t max_bytes, struct error *error)
{
    char *buffer;
    size_t bytes;
    int err = prompt_text(&buffer, &bytes, path, max_bytes, error);
    if (!err && sluice_tokenize(text, buffer, bytes, out))
        err = error_set(error, -ENOMEM, "%s: could not be encoded", path);
    free(buffer);
    return err;
}

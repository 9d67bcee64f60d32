#include "bin/prompt.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int prompt_ids(struct id_list *out, const char *list, struct why *why)
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
            return why_set(why, -ERANGE, "token id %.*s is out of range",
                           end - at < 40 ? (int)(end - at) : 40, at);
        if (id_list_push(out, (uint32_t)id))
            return why_set(why, -ENOMEM, "no memory for the prompt");
        while (*end == ' ' || *end == '\n')
            end++;
        if (!*end)
            return 0;
        if (*end != ',')
            break;
        at = end + 1;
    }
    return why_set(why, -EINVAL, "--ids: %.40s is not a list like 1,2,3",
                   list);
}

int prompt_file(struct id_list *out, const struct tok *tok, const char *path,
                uint64_t most_bytes, struct why *why)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "r");
    char *text = NULL;
    size_t bytes = 0, room = 0;
    int err = 0;
    if (!f)
        return why_set(why, -errno, "%s: %s", path, strerror(errno));
    while (!err) {
        if (room - bytes < 65536) {
            room = room ? room * 2 : 1 << 17;
            char *more = realloc(text, room);
            if (!more) {
                err = why_set(why, -ENOMEM, "%s: no memory for it", path);
                break;
            }
            text = more;
        }
        size_t got = fread(text + bytes, 1, room - bytes, f);
        bytes += got;
        if (!got)
            break;
        if (bytes > most_bytes)
            err = why_set(why, -EFBIG, "%s: has more than the %" PRIu64
                          " bytes that are read for a context of this size",
                          path, most_bytes);
    }
    if (!err && ferror(f))
        err = why_set(why, -errno, "%s: %s", path, strerror(errno));
    if (!err && tok_encode(tok, text, bytes, false, out))
        err = why_set(why, -ENOMEM, "%s: could not be encoded", path);
    free(text);
    if (!standard)
        fclose(f);
    return err;
}

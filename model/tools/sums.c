#include "model/tools/sums.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ckpt/slurp.h"

enum { LIST_BYTES_MAX = 16 << 20, METADATA_BYTES_MAX = 64 << 10 };

static const char *const lists[] = { "SHA256SUMS", "SHA256SUMS.txt",
                                     "sha256sums", "sha256sums.txt",
                                     "checksums.sha256" };

struct sums {
    char       *dir;
    char       *list; /* the text of the list that is there, or NULL */
    const char *list_name;
};

/* A digest of so many hexadecimal digits at `s`, and nothing behind it that
 * would belong to it, in small letters. */
static bool take_hex(char out[DIGEST_HEX], const char *s, size_t digits)
{
    for (size_t i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)s[i]))
            return false;
        out[i] = (char)tolower((unsigned char)s[i]);
    }
    out[digits] = 0;
    return !isalnum((unsigned char)s[digits]);
}

static bool take_etag(struct sum *out, const char *s)
{
    s += strspn(s, "\" ");
    out->kind = DIGEST_SHA256;
    if (take_hex(out->hex, s, 64))
        return true;
    out->kind = DIGEST_GIT;
    return take_hex(out->hex, s, 40);
}

static bool from_metadata(const struct sums *s, const char *name,
                          struct sum *out)
{
    char path[4096], *text;
    size_t length;
    snprintf(path, sizeof path,
             "%s/.cache/huggingface/download/%s.metadata", s->dir, name);
    if (slurp_file(&text, &length, path, METADATA_BYTES_MAX, NULL))
        return false;
    const char *second = strchr(text, '\n');
    bool found = second && take_etag(out, second + 1);
    free(text);
    snprintf(out->source, sizeof out->source, "the download's metadata");
    return found;
}

static bool from_blob(const struct sums *s, const char *name, struct sum *out)
{
    char path[4096], target[4096];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return false;
    target[n] = 0;
    char *base = strrchr(target, '/');
    snprintf(out->source, sizeof out->source, "the name of its blob");
    return base && base - target >= 6 && !memcmp(base - 6, "/blobs", 6) &&
           take_etag(out, base + 1);
}

/* "HEX  NAME", "HEX *NAME", the name with or without "./". */
static bool from_list(const struct sums *s, const char *name, struct sum *out)
{
    size_t length = strlen(name);
    for (const char *line = s->list; line && *line;) {
        const char *end = strchrnul(line, '\n');
        const char *at = line + 64;
        if (end - line > 66 && take_hex(out->hex, line, 64) && *at == ' ') {
            at += at[1] == ' ' || at[1] == '*' ? 2 : 1;
            at += end - at > 2 && at[0] == '.' && at[1] == '/' ? 2 : 0;
            size_t bytes = (size_t)(end - at);
            bytes -= bytes && at[bytes - 1] == '\r';
            if (bytes == length && !memcmp(at, name, length)) {
                out->kind = DIGEST_SHA256;
                snprintf(out->source, sizeof out->source, "%s", s->list_name);
                return true;
            }
        }
        line = *end ? end + 1 : NULL;
    }
    return false;
}

int sums_open(struct sums **out, const char *dir)
{
    struct sums *s = calloc(1, sizeof *s);
    *out = s;
    if (!s || !(s->dir = strdup(dir))) {
        free(s);
        *out = NULL;
        return -ENOMEM;
    }
    for (size_t i = 0; !s->list && i < sizeof lists / sizeof *lists; i++) {
        char path[4096];
        size_t length;
        snprintf(path, sizeof path, "%s/%s", dir, lists[i]);
        s->list_name = lists[i];
        if (slurp_file(&s->list, &length, path, LIST_BYTES_MAX, NULL))
            s->list = NULL;
    }
    return 0;
}

void sums_close(struct sums *s)
{
    if (!s)
        return;
    free(s->list);
    free(s->dir);
    free(s);
}

bool sums_find(const struct sums *s, const char *name, struct sum *out)
{
    return from_metadata(s, name, out) || from_blob(s, name, out) ||
           from_list(s, name, out);
}

#include "model/ckpt/mistaken.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { LOOK_BYTES = 512 };

static bool begins(const char *text, const char *with)
{
    return !strncasecmp(text, with, strlen(with));
}

const char *mistaken_for(const void *bytes, size_t length)
{
    char text[LOOK_BYTES];
    size_t n = length < sizeof text - 1 ? length : sizeof text - 1;
    memcpy(text, bytes, n);
    text[n] = 0;
    const char *s = text;
    if (begins(s, "\xef\xbb\xbf")) /* a byte order mark */
        s += 3;
    s += strspn(s, " \t\r\n");
    if (begins(s, "version https://git-lfs"))
        return "a Git LFS pointer, not the file: git lfs pull fetches it";
    if (begins(s, "<!doctype html") || begins(s, "<html") ||
        begins(s, "<head"))
        return "an HTML page, not the file: its download failed";
    if (begins(s, "<?xml"))
        return "an XML page, not the file: its download failed";
    if (*s == '{' && (strstr(s, "\"error\"") || strstr(s, "\"message\"")))
        return "a JSON error message, not the file: its download failed";
    if (begins(s, "Invalid credentials") || begins(s, "Access to model") ||
        begins(s, "Repository not found") || begins(s, "Entry not found"))
        return "an error message, not the file: its download failed";
    return NULL;
}

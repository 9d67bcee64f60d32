#include "bin/cli/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of the character that begins here, 0: none does. */
static size_t character(const unsigned char *s)
{
    size_t n = s[0] < 0x80                  ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool wrong = (s[0] == 0xe0 && s[1] < 0xa0) || /* longer than need be */
                 (s[0] == 0xed && s[1] > 0x9f) || /* half of a pair */
                 (s[0] == 0xf0 && s[1] < 0x90) ||
                 (s[0] == 0xf4 && s[1] > 0x8f);
    return wrong ? 0 : n;
}

void json_plain(char *out, size_t room, const char *text)
{
    size_t used = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        char piece[8];
        size_t n = character(s), length = n ? n : 4;
        if (n)
            memcpy(piece, s, n);
        else
            snprintf(piece, sizeof piece, "\\x%02x", *s);
        if (used + length >= room)
            break;
        memcpy(out + used, piece, length);
        used += length;
        s += n ? n : 1;
    }
    out[used] = 0;
}

json_t *json_bytes(const char *text)
{
    if (!text)
        return json_null();
    size_t room = 4 * strlen(text) + 1;
    char *plain = malloc(room);
    if (!plain)
        return NULL;
    json_plain(plain, room, text);
    json_t *string = json_string(plain);
    free(plain);
    return string;
}

int json_print(json_t *root, size_t flags)
{
    char *text = root ? json_dumps(root, flags) : NULL;
    json_decref(root);
    if (!text) {
        fputs("sluice: the result could not be written as JSON\n", stderr);
        return 1;
    }
    puts(text); /* main() looks at what became of stdout */
    free(text);
    return 0;
}

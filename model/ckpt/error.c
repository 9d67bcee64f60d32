#include "model/ckpt/error.h"

#include <stdarg.h>
#include <stdio.h>

/* A sentence is one line and moves no cursor, whatever names a file has in it.
 * Control characters, also U+0080..U+009F in UTF-8, become question marks. */
static void make_plain(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            *c = c[1] = '?';
}

int error_set(struct error *error, int code, const char *format, ...)
{
    if (!error || error->code)
        return code;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    make_plain(error->text);
    error->code = code;
    return code;
}

#include "model/why.h"

#include <stdarg.h>
#include <stdio.h>

/* A sentence is one line and moves no cursor, whatever a file calls its
 * tensors: bytes of a control character, of U+0080..U+009F in UTF-8 too, become
 * question marks. */
static void make_plain(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            *c = c[1] = '?';
}

int why_set(struct why *why, int error, const char *format, ...)
{
    if (!why || why->error)
        return error;
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    make_plain(why->text);
    why->error = error;
    return error;
}

#include "model/why.h"

#include <stdarg.h>
#include <stdio.h>

int why_set(struct why *why, int error, const char *format, ...)
{
    if (!why || why->error)
        return error;
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    why->error = error;
    return error;
}

#include "model/chat/refusal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int refusal_set(struct refusal *r, const char *field, const char *format, ...)
{
    va_list args;
    r->code = REFUSED_INVALID;
    snprintf(r->field, sizeof r->field, "%s", field);
    va_start(args, format);
    vsnprintf(r->sentence, sizeof r->sentence, format, args);
    va_end(args);
    return -EINVAL;
}

int refusal_of_message(struct refusal *r, unsigned index, const char *name,
                       const char *format, ...)
{
    va_list args;
    r->code = REFUSED_INVALID;
    snprintf(r->field, sizeof r->field, "messages[%u]%s%.100s", index,
             *name ? "." : "", name);
    va_start(args, format);
    vsnprintf(r->sentence, sizeof r->sentence, format, args);
    va_end(args);
    return -EINVAL;
}

#include "bin/cli/parts.h"

const char *parts_option(void *arg, const char *value)
{
    struct parts_args *a = arg;
    if (!*value)
        return "is no path";
    if (a->count == CUTS_PARTS_MAX)
        return "is one part too many";
    a->path[a->count++] = value;
    return NULL;
}

int parts_find(struct parts **out, const struct parts_args *a,
               const struct config *c, struct error *error)
{
    *out = NULL;
    return a->count ? parts_open(out, a->path, a->count, NULL, c, error) : 0;
}

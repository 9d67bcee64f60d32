#include "bin/cli/names.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sched/cache/cache.h"
#include "sched/prefetch/prefetcher.h"

static const char pin_run[] = "static-pin=TRACE";

/* Prefetchers that are no methods of sched/prefetch. */
static const struct {
    const char *name, *about;
    bool replay; /* only replay knows it */
} special[] = {
    { "auto", "gate if the memory holds the whole trunk, else none", false },
    { "perfect", "name what the router will choose: the best possible", true },
};

enum { SPECIAL = sizeof special / sizeof *special };

const char *names_policies(void *arg, const char *value)
{
    const char *name, *about;
    bool offline;
    (void)value;
    for (uint32_t i = 0; (name = cache_policy_name(i, &about, &offline)); i++)
        if (arg || !offline)
            opt_choice(!arg && !strcmp(name, "static-pin") ? pin_run : name,
                       about);
    return NULL;
}

const char *names_prefetchers(void *arg, const char *value)
{
    const char *name, *about;
    (void)value;
    for (int i = 0; i < SPECIAL; i++)
        if (arg || !special[i].replay)
            opt_choice(special[i].name, special[i].about);
    for (uint32_t i = 0; (name = prefetcher_name(i, &about)); i++)
        opt_choice(name, about);
    return NULL;
}

const char *names_list(bool policies)
{
    static char text[256];
    const char *name;
    size_t n = 0;
    text[0] = 0;
    for (uint32_t i = 0; n < sizeof text; i++) {
        name = policies ? cache_policy_name(i, NULL, NULL)
                        : prefetcher_name(i, NULL);
        if (!name)
            break;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s",
                              n ? ", " : "", name);
    }
    for (int i = 0; !policies && i < SPECIAL && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ", %s",
                              special[i].name);
    return text;
}

/* parts.h - --parts PATH, repeated: the folders that a model's parts are in
 * (model/parts), or text files that list them.
 *
 * Threads  one caller.
 */
#ifndef BIN_CLI_PARTS_H
#define BIN_CLI_PARTS_H

#include "bin/cli/opt.h"
#include "model/parts/parts.h"

struct parts_args {
    const char *path[CUTS_PARTS_MAX];
    uint32_t    count;
};

opt_call_fn parts_option;

/* Open the parts that were named; *out is NULL if none were. Errors of
 * parts_open. */
int parts_find(struct parts **out, const struct parts_args *a,
               const struct config *c, struct error *error);

/* A row of an option table; `a` is a struct parts_args *. */
#define PARTS_OPTION(a) \
    { "parts", 0, OPT_CALL, (a), "PATH", \
      "a folder that sluice spread wrote, to read instead of the shards; " \
      "repeat for each part, or give a text file with a folder a line", \
      parts_option }

#endif

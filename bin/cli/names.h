/* names.h - the cache policies and prefetchers, as --help and errors list them.
 *
 * Errors   none. Threads: one caller; names_list returns a static buffer.
 */
#ifndef BIN_CLI_NAMES_H
#define BIN_CLI_NAMES_H

#include <stdbool.h>

#include "bin/cli/opt.h"

/* Rows of an option table after its options: lists with a line for each name.
 * NAMES_REPLAY also has the names that only replay knows. */
#define NAMES_RUN \
    { "", 0, OPT_CHOICES, NULL, NULL, \
      "Policies of the expert cache, for --policy:", names_policies }, \
    { "", 0, OPT_CHOICES, NULL, NULL, "Prefetchers, for --prefetch:", \
      names_prefetchers }
#define NAMES_REPLAY \
    { "", 0, OPT_CHOICES, "", NULL, \
      "Policies of the expert cache, for --policy:", names_policies }, \
    { "", 0, OPT_CHOICES, "", NULL, "Prefetchers, for --prefetch:", \
      names_prefetchers }

/* Print the list. `arg` is NULL: of run; else of replay. Returns NULL. */
opt_call_fn names_policies;
opt_call_fn names_prefetchers;

/* "dhd, lru, ...": all policies, or all prefetchers, that replay knows. */
const char *names_list(bool policies);

#endif

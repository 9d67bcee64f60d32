/* hint.h - what to do about an error, where that can be said.
 *
 * A hint belongs to the file that failed, which its sentence begins with, and
 * names only options that the command has: a damaged trace is not to be
 * downloaded again, and verify has no --context.
 *
 * Threads  one caller. Errors: none.
 */
#ifndef BIN_CLI_HINT_H
#define BIN_CLI_HINT_H

#include <stdbool.h>

#include "model/ckpt/error.h"

enum { HINT_BYTES = 1200 };

/* False: there is nothing to be said. `model` is the folder of the command's
 * model, or NULL. */
bool hint_for(char out[HINT_BYTES], const char *model,
              const struct error *error);

#endif

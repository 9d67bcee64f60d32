/* files.h - the files of a batch, those beside the answers with them: none may
 * be another of them, or another file of the command.
 *
 * Threads  one caller. Errors: -EINVAL with a sentence.
 */
#ifndef BIN_BATCH_FILES_H
#define BIN_BATCH_FILES_H

#include "bin/cli/session.h"

int batch_files_check(const struct session_args *a, const char *model,
                      const char *in, const char *out, struct error *error);

#endif

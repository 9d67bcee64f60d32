/* retry.h - errors of an output that are to be asked again.
 *
 * The lines of these errors leave the output, whole or not at all; then their
 * requests have no answer, and are answered as any others. In an output that is
 * in order, what stood behind the first of them is held (out.h) until its turn.
 *
 * Bytes    32 to 96 an error; the longest line; the output once more on the
 *          drive while it is written.
 * Threads  one. Nobody else may have the output.
 * Errors   a sentence that names the file.
 */
#ifndef BIN_BATCH_RETRY_H
#define BIN_BATCH_RETRY_H

#include "bin/batch/job.h"

/* `all` errors; else those whose line, or an option that matters to it, is
 * another by now: batch_hash_error says so. Errors without a hash and lines
 * that are not in the input stay; of a pipe nothing is known, so all or none
 * are asked again. `out` is a regular file. *count: how many. */
int batch_retry(const char *in, const char *out, bool in_order, bool all,
                const struct batch_rules *rules, uint64_t *count,
                struct error *error);

#endif

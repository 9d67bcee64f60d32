/* hash.h - sluice_hash: what the ids of an answer depend on, and nothing else.
 *
 * SHA-256, the first half, over the model's identity, every prompt's ids, and
 * what of the request and the options can change an id: sampling, stops, form,
 * the number of ids. Not over memory, threads, rows, drafts, coded weights, or
 * how the answer is laid out.
 *
 *     batch_hash_open -> { batch_hash_add } -> batch_hash_end
 *
 * Threads  one. Errors: -ENOMEM from open, which makes add do nothing and end
 *          write "".
 */
#ifndef BIN_BATCH_HASH_H
#define BIN_BATCH_HASH_H

#include "bin/batch/job.h"
#include "bin/cli/parts.h"
#include "model/ckpt/identity.h"
#include "model/tools/digest.h"

enum { BATCH_HASH_TEXT = 33 };

struct batch_hash {
    struct digest *d;
};

/* The identity of the model in a folder, or in parts if any are named; only
 * headers and samples are read. It stays when `out` has it. */
int  batch_hash_model(char out[IDENTITY_TEXT_BYTES], const char *dir,
                      const struct parts_args *parts, const struct config *c,
                      struct error *error);
/* Needs rules->identity. */
int  batch_hash_open(struct batch_hash *h, const struct batch_rules *rules);
/* The next prompt of the line. */
void batch_hash_add(struct batch_hash *h, const struct batch_job *j);
/* Lowercase hexadecimal. */
void batch_hash_end(struct batch_hash *h, char out[BATCH_HASH_TEXT]);
/* Of an error: the line, and the options that can change what is said of it.
 * `out` may be NULL. Its first half as a number; 0 and "" without memory. */
uint64_t batch_hash_error(char out[BATCH_HASH_TEXT],
                          const struct batch_rules *rules, const char *line,
                          size_t bytes);
/* The first half of the digits as a number, 0 if they are none. */
uint64_t batch_hash_short(const char *text, size_t bytes);

#endif

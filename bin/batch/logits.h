/* logits.h - --logits of a batch: the logits of input line N go to the
 * file PREFIX.N: for each position, in order, one float32 for each id of the
 * vocabulary.
 *
 *     batch_logits_begin -> { batch_logits_row ... } -> batch_logits_end
 *     -> batch_logits_close
 *
 * Threads  one.
 * Errors   a sentence that names the file; -ENOMEM.
 */
#ifndef BIN_BATCH_LOGITS_H
#define BIN_BATCH_LOGITS_H

#include <stdint.h>

#include "bin/cli/outputs.h"
#include "model/ckpt/error.h"

struct batch_logits_file {
    uint64_t line;
    struct output out;
    char    *path;
};

/* All zero but the prefix: none is open. */
struct batch_logits {
    const char *prefix;
    struct batch_logits_file *open; /* [count] */
    uint32_t count, capacity;
};

int batch_logits_begin(struct batch_logits *l, uint64_t line,
                       struct error *error);
int batch_logits_row(struct batch_logits *l, uint64_t line, const float *row,
                     uint32_t vocab, struct error *error);
int batch_logits_end(struct batch_logits *l, uint64_t line,
                     struct error *error);
/* Forget the files that are still open: they are not complete. */
void batch_logits_close(struct batch_logits *l);

#endif

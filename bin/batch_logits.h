/* batch_logits.h - --logits of a batch: the logits of input line N go to the
 * file PREFIX.N, one row of the vocabulary for each position that went through
 * the model, in order.
 *
 *     batch_logits_begin -> { batch_logits_row ... } -> batch_logits_end
 */
#ifndef BIN_BATCH_LOGITS_H
#define BIN_BATCH_LOGITS_H

#include <stdint.h>
#include <stdio.h>

#include "model/why.h"

struct batch_logits_file {
    uint64_t line;
    FILE    *f;
};

/* All zero but the prefix is none open. */
struct batch_logits {
    const char *prefix;
    struct batch_logits_file *open; /* [count] */
    uint32_t count, capacity;
};

int  batch_logits_begin(struct batch_logits *l, uint64_t line,
                        struct why *why);
int  batch_logits_row(struct batch_logits *l, uint64_t line, const float *row,
                      uint32_t vocab, struct why *why);
int  batch_logits_end(struct batch_logits *l, uint64_t line, struct why *why);
/* What is still open is not complete and removed. */
void batch_logits_close(struct batch_logits *l);

#endif

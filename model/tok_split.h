/* tok_split.h - cut text into the pieces that the merges work on.
 *
 * The released tokenizer cuts with a regular expression of eight alternatives
 * (k3-spec 5.4). This is the same cut by a deterministic automaton: it never
 * goes back over what it has read more than once.
 *
 * Threads  any number.
 * Errors   none: every text has exactly one cut. A byte that is no UTF-8 is a
 *          piece of its own.
 * Cost     linear: over a whole text each character is read a few times.
 */
#ifndef MODEL_TOK_SPLIT_H
#define MODEL_TOK_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "model/tok_class.h"

/* The length in bytes, > 0, of the first piece of [text, end), text < end,
 * where `end` ends the text. *steps grows by the characters read. */
size_t tok_split_next(const struct tok_class *t, const char *text,
                      const char *end, uint64_t *steps);

#endif

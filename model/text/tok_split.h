/* tok_split.h - cut text into the pieces that byte pair encoding works on.
 *
 * The released tokenizer cuts with a regular expression. At each position the
 * first alternative that matches makes a piece:
 *
 *     1  [\p{Han}]+
 *     2  PRE?U*W+END?         a word that ends in small letters
 *     3  PRE?U+W*END?         a word of capitals
 *     4  \p{N}{1,3}           up to three digits
 *     5   ?[^\s\p{L}\p{N}]+[\r\n]*
 *     6  \s*[\r\n]+
 *     7  \s+(?!\S)
 *     8  \s+
 *
 *     PRE = [^\r\n\p{L}\p{N}]   END = (?i:'s|'t|'re|'ve|'m|'ll|'d)
 *     U   = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
 *     W   = [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
 *
 * Han is Script=Han. Here a deterministic automaton makes the same cuts; it
 * reads no character more than a few times.
 *
 * Threads  any number.
 * Errors   none: every text has exactly one cut. A byte that is not UTF-8 is a
 *          piece.
 * Cost     linear in the text.
 */
#ifndef MODEL_TEXT_TOK_SPLIT_H
#define MODEL_TEXT_TOK_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "model/text/tok_class.h"

/* The length in bytes, > 0, of the first piece of [text, end), text < end.
 * `end` is the end of the text. *steps grows by the characters read. */
size_t tok_split_next(const struct tok_class *t, const char *text,
                      const char *end, uint64_t *steps);

#endif

/* match.h - how far a text has come in a grammar, and whether it may go on.
 *
 *     match_open -> { match_push, match_complete, match_copy } -> match_close
 *
 * A match that accepted some bytes can always be completed: there is no dead
 * end. So a generator that only ever pushes what match_push accepts ends with a
 * text of the grammar.
 *
 * Bytes    some kilobytes, and 80 a container that is open.
 * Threads  one caller a match; grammars may be shared.
 * Errors   -ENOMEM from open, push and copy; after it the match is unusable.
 */
#ifndef MODEL_GRAMMAR_MATCH_H
#define MODEL_GRAMMAR_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/grammar/grammar.h"

struct match;

/* The grammar stays the caller's and must outlive the match. */
int match_open(struct match **out, const struct grammar *g);
void match_close(struct match *m);
/* `to` becomes what `from` is; both of the same grammar. */
int match_copy(struct match *to, const struct match *from);

/* 1: the bytes may follow, and have been taken. 0: they may not, and the match
 * is as it was. */
int match_push(struct match *m, const char *bytes, size_t n);
/* Is what was pushed a whole text of the grammar. */
bool match_complete(const struct match *m);
/* The bytes that follow if only one can, blanks and escapes left out: at most
 * `room`, to `out`; what a text most likely goes on with, not what it must. `m`
 * is changed: match_copy it before. Their number, or -ENOMEM. */
int match_likely(struct match *m, char *out, size_t room);
/* Equal for matches that may go on alike. */
void match_key(const struct match *m, uint64_t key[2]);

#endif

/* dfa.h - sets of texts as automata over characters.
 *
 * Every state can still reach an accepting one: what cannot is left out, so a
 * text is a beginning of one of the set exactly as long as it has a state.
 *
 *     dfa_pattern | dfa_strings | dfa_both -> { dfa_next ... dfa_accepts }
 *     -> dfa_free
 *
 * Patterns are ECMA-262 regular expressions without look-around, back
 * references, \b, \B and \p{}: alternation, groups, classes, ., ^, $, * + ?
 * {m,n}, \d \w \s and their opposites (ASCII, but \s as ECMA has it), \t \n \r
 * \f \v \0 \xHH \uHHHH \u{...} \cX. Lazy quantifiers accept the same texts. A
 * pattern is *searched* in a text, unless `whole`.
 *
 * Characters  U+0000..U+10FFFF without surrogates.
 * Threads  read-only once made.
 * Errors   -EINVAL: a pattern that is none or not supported, with a sentence;
 *          -E2BIG: more than DFA_STATES_MAX states; -ENOMEM.
 */
#ifndef MODEL_GRAMMAR_DFA_H
#define MODEL_GRAMMAR_DFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"

enum {
    DFA_STATES_MAX = 20000,
    DFA_CHAR_MAX = 0x10ffff,
    DFA_DEAD = -1,
};

struct dfa_edge {
    uint32_t low, high; /* characters */
    int32_t to;
};

struct dfa {
    uint32_t states;       /* 0: the empty set; state 0 is where texts begin */
    uint32_t *first;       /* [states + 1] into edge */
    struct dfa_edge *edge; /* of a state ascending, apart */
    bool *accept;          /* [states] */
    uint32_t *shortest;    /* [states] characters to an accepting state */
    bool     *total;       /* [states] any characters may follow, without end */
};

/* `bytes` of UTF-8. */
int dfa_pattern(struct dfa **out, const char *pattern, size_t bytes, bool whole,
                struct error *error);
/* Exactly these texts; each is UTF-8. */
int dfa_strings(struct dfa **out, const char *const *text, const size_t *bytes,
                size_t count);
/* The texts that are in both. */
int dfa_both(struct dfa **out, const struct dfa *a, const struct dfa *b);
void dfa_free(struct dfa *d);

/* DFA_DEAD: no text goes on so. */
int32_t dfa_next(const struct dfa *d, int32_t state, uint32_t character);

#endif

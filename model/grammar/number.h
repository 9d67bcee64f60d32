/* number.h - JSON numbers in a range, one character at a time.
 *
 * A text that is begun is *live* when some continuation of it is a number of
 * the range. 7 is live in 70..79, as 70 and 7e1 are of it; 8 is not. Values
 * are compared exactly, as decimals.
 *
 * Length   up to NUMBER_FREE characters every live continuation is allowed;
 *          after that only those of one that ends, so no number is longer than
 *          NUMBER_MAX characters.
 * Threads  pure functions.
 */
#ifndef MODEL_GRAMMAR_NUMBER_H
#define MODEL_GRAMMAR_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#include "model/grammar/decimal.h"

enum { NUMBER_FREE = 64, NUMBER_MAX = 200, NUMBER_BOUND_DIGITS = 40 };

struct number_range {
    bool has_low, has_high, low_open, high_open, integer;
    struct decimal low, high;
};

/* Does the range hold a number at all. */
bool number_range_empty(const struct number_range *r);
/* Tighten `r` to the numbers that `other` holds too. */
void number_range_meet(struct number_range *r,
                       const struct number_range *other);
bool number_in_range(const struct number_range *r, const struct decimal *d);
/* Is the text a whole number of the range. */
bool number_complete(const struct number_range *r, const char *text,
                     size_t bytes);
/* May `next` follow text[0..bytes-1], which is empty or live. */
bool number_may_follow(const struct number_range *r, const char *text,
                       size_t bytes, char next);

#endif

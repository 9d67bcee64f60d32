/* decimal.h - decimal numbers as they are written, exactly.
 *
 * A number is 0.d1 d2 ... dn x 10^exp, d1 and dn not 0; zero has n = 0. Digits
 * beyond DECIMAL_DIGITS are refused by the reader.
 *
 * Threads  pure functions.
 */
#ifndef MODEL_GRAMMAR_DECIMAL_H
#define MODEL_GRAMMAR_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DECIMAL_DIGITS = 160 };

struct decimal {
    bool negative; /* never for zero */
    uint16_t n;
    uint8_t digit[DECIMAL_DIGITS]; /* 0..9, the first most significant */
    int64_t exp;
};

/* Read a JSON number, all of it. An exponent of more than 15 digits counts as
 * one of 15. False: no number, or too many digits. */
bool decimal_read(struct decimal *out, const char *text, size_t bytes);
/* -1, 0, 1. */
int decimal_compare(const struct decimal *a, const struct decimal *b);
bool decimal_is_integer(const struct decimal *a);
/* The integers next to it: towards minus and plus infinity. */
struct decimal decimal_floor(const struct decimal *a);
struct decimal decimal_ceil(const struct decimal *a);
struct decimal decimal_minus(const struct decimal *a);
/* From `n` digits with value digit[0..n-1] x 10^scale (as an integer times a
 * power of ten); leading and trailing zeros are taken off. */
struct decimal decimal_make(const uint8_t *digit, size_t n, int64_t scale);

#endif

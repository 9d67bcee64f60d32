#include "model/grammar/decimal.h"

#include <assert.h>
#include <string.h>

enum { EXPONENT_DIGITS = 15 };

struct decimal decimal_make(const uint8_t *digit, size_t n, int64_t scale)
{
    struct decimal d = { 0 };
    int64_t exp = scale + (int64_t)n;
    while (n && !digit[0]) {
        digit++;
        n--;
        exp--;
    }
    while (n && !digit[n - 1])
        n--;
    assert(n <= DECIMAL_DIGITS);
    memcpy(d.digit, digit, n);
    d.n = (uint16_t)n;
    d.exp = n ? exp : 0;
    return d;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool decimal_read(struct decimal *out, const char *text, size_t bytes)
{
    uint8_t digit[DECIMAL_DIGITS];
    size_t n = 0, i = 0, first;
    int64_t scale = 0, exponent = 0;
    bool negative = bytes && text[0] == '-';
    i += negative;
    first = i;
    for (; i < bytes && is_digit(text[i]); i++) {
        if (n == DECIMAL_DIGITS)
            return false;
        digit[n++] = (uint8_t)(text[i] - '0');
    }
    if (i == first || (i - first > 1 && text[first] == '0'))
        return false;
    if (i < bytes && text[i] == '.') {
        for (first = ++i; i < bytes && is_digit(text[i]); i++, scale--) {
            if (n == DECIMAL_DIGITS)
                return false;
            digit[n++] = (uint8_t)(text[i] - '0');
        }
        if (i == first)
            return false;
    }
    if (i < bytes && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        bool minus = i < bytes && text[i] == '-';
        i += i < bytes && (text[i] == '-' || text[i] == '+');
        int places = 0;
        for (first = i; i < bytes && is_digit(text[i]); i++) {
            if (places < EXPONENT_DIGITS)
                exponent = exponent * 10 + (text[i] - '0');
            places += exponent > 0;
        }
        if (i == first)
            return false;
        exponent = minus ? -exponent : exponent;
    }
    if (i != bytes)
        return false;
    *out = decimal_make(digit, n, scale + exponent);
    out->negative = negative && out->n;
    return true;
}

static int compare_size(const struct decimal *a, const struct decimal *b)
{
    if (!a->n || !b->n)
        return !b->n ? a->n > 0 : -1;
    if (a->exp != b->exp)
        return a->exp < b->exp ? -1 : 1;
    size_t n = a->n < b->n ? a->n : b->n;
    int by_digit = memcmp(a->digit, b->digit, n);
    if (by_digit)
        return by_digit < 0 ? -1 : 1;
    return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int size = compare_size(a, b);
    return a->negative ? -size : size;
}

bool decimal_is_integer(const struct decimal *a)
{
    return !a->n || a->exp >= (int64_t)a->n;
}

struct decimal decimal_minus(const struct decimal *a)
{
    struct decimal d = *a;
    d.negative = a->n && !a->negative;
    return d;
}

/* The integer next to it on the side of zero, or (`away`) on the other. */
static struct decimal whole(const struct decimal *a, bool away)
{
    if (decimal_is_integer(a))
        return *a;
    uint8_t digit[DECIMAL_DIGITS + 1] = { 0 };
    size_t n = a->exp > 0 ? (size_t)a->exp : 0;
    memcpy(digit + 1, a->digit, n);
    for (size_t i = n + 1; away && i-- > 0;) {
        if (++digit[i] < 10)
            break;
        digit[i] = 0;
    }
    struct decimal d = digit[0] ? decimal_make(digit, n + 1, 0)
                                : decimal_make(digit + 1, n, 0);
    d.negative = a->negative && d.n;
    return d;
}

struct decimal decimal_floor(const struct decimal *a)
{
    return whole(a, a->negative);
}

struct decimal decimal_ceil(const struct decimal *a)
{
    return whole(a, !a->negative);
}

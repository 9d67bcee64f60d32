#include "model/grammar/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ranges ---- */

static struct decimal power_of_ten(int64_t exp) /* 10^(exp - 1) */
{
    return (struct decimal){ .n = 1, .digit = { 1 }, .exp = exp };
}

/* An integer of at most DECIMAL_DIGITS places, and one. */
static struct decimal next_integer(const struct decimal *d)
{
    uint8_t digit[DECIMAL_DIGITS + 1] = { 0 };
    size_t places = d->n ? (size_t)d->exp : 0;
    memcpy(digit + 1, d->digit, d->n);
    if (d->negative) { /* towards zero */
        size_t i = places;
        while (i && !digit[i])
            digit[i--] = 9;
        digit[i]--;
    } else {
        size_t i = places;
        while (++digit[i] == 10)
            digit[i--] = 0;
    }
    struct decimal out = decimal_make(digit, places + 1, 0);
    out.negative = d->negative && out.n;
    return out;
}

/* Bounds of an integer range that are integers and closed. */
static void tighten(struct number_range *r)
{
    if (!r->integer)
        return;
    if (r->has_low) {
        bool whole = decimal_is_integer(&r->low);
        if (!whole)
            r->low = decimal_ceil(&r->low);
        else if (r->low_open)
            r->low = next_integer(&r->low);
        r->low_open = false;
    }
    if (r->has_high) {
        bool whole = decimal_is_integer(&r->high);
        if (!whole) {
            r->high = decimal_floor(&r->high);
        } else if (r->high_open) {
            struct decimal minus = decimal_minus(&r->high);
            minus = next_integer(&minus);
            r->high = decimal_minus(&minus);
        }
        r->high_open = false;
    }
}

bool number_range_empty(const struct number_range *range)
{
    struct number_range r = *range;
    tighten(&r);
    if (!r.has_low || !r.has_high)
        return false;
    int order = decimal_compare(&r.low, &r.high);
    return order > 0 || (order == 0 && (r.low_open || r.high_open));
}

void number_range_meet(struct number_range *r, const struct number_range *o)
{
    r->integer |= o->integer;
    int low = !o->has_low   ? -1
              : !r->has_low ? 1
                            : decimal_compare(&o->low, &r->low);
    if (low > 0) {
        r->has_low = true;
        r->low = o->low;
        r->low_open = o->low_open;
    } else if (low == 0) {
        r->low_open |= o->low_open;
    }
    int high = !o->has_high   ? 1
               : !r->has_high ? -1
                              : decimal_compare(&o->high, &r->high);
    if (high < 0) {
        r->has_high = true;
        r->high = o->high;
        r->high_open = o->high_open;
    } else if (high == 0) {
        r->high_open |= o->high_open;
    }
}

static bool above_low(const struct number_range *r, const struct decimal *d)
{
    int order = r->has_low ? decimal_compare(d, &r->low) : 1;
    return order > 0 || (order == 0 && !r->low_open);
}

static bool below_high(const struct number_range *r, const struct decimal *d)
{
    int order = r->has_high ? decimal_compare(d, &r->high) : -1;
    return order < 0 || (order == 0 && !r->high_open);
}

bool number_in_range(const struct number_range *r, const struct decimal *d)
{
    return above_low(r, d) && below_high(r, d) &&
           (!r->integer || decimal_is_integer(d));
}

bool number_complete(const struct number_range *r, const char *text,
                     size_t bytes)
{
    struct decimal d;
    return decimal_read(&d, text, bytes) && number_in_range(r, &d);
}

/* The sizes of the range's numbers of one sign: low is there and >= 0. */
static bool sizes_of(struct number_range *out, const struct number_range *r,
                     bool negative)
{
    *out = *r;
    if (negative) {
        out->has_low = r->has_high;
        out->has_high = r->has_low;
        out->low = decimal_minus(&r->high);
        out->high = decimal_minus(&r->low);
        out->low_open = r->high_open;
        out->high_open = r->low_open;
    }
    if (!out->has_low || out->low.negative) {
        out->has_low = true;
        out->low_open = false;
        out->low = (struct decimal){ 0 };
    }
    tighten(out);
    return !number_range_empty(out);
}

/* A number of the range that is not a bound which it leaves out. */
static struct decimal pick(const struct number_range *r)
{
    if (!r->low_open)
        return r->low;
    if (!r->low.n) { /* above 0: a tenth of the first place of the end */
        return power_of_ten(r->has_high ? r->high.exp - 1 : 1);
    }
    struct decimal d = r->low;
    size_t n = d.n;
    if (r->has_high && r->high.exp == d.exp && r->high.n > n)
        n = r->high.n;
    d.n = (uint16_t)(n + 1);
    d.digit[n] = 1;
    return d;
}

/* ---- what has been written ---- */

enum place {
    START,
    MINUS,
    ZERO,
    INTEGER,
    DOT,
    FRACTION,
    E,
    E_SIGN,
    EXPONENT,
    WRONG
};

struct written {
    enum place place;
    bool negative, exponent_minus;
    uint8_t digit[DECIMAL_DIGITS]; /* from the first that is not 0 */
    size_t n;
    size_t zeros;     /* behind the point, before the first digit */
    int64_t point;    /* the number is 0.digit x 10^point */
    int64_t exponent; /* its digits so far */
};

static enum place after(enum place p, char c)
{
    bool digit = c >= '0' && c <= '9';
    bool e = c == 'e' || c == 'E';
    switch (p) {
    case START:
        if (c == '-')
            return MINUS;
        /* fall through */
    case MINUS:
        return c == '0' ? ZERO : digit ? INTEGER : WRONG;
    case INTEGER:
        if (digit)
            return INTEGER;
        /* fall through */
    case ZERO:
        return c == '.' ? DOT : e ? E : WRONG;
    case DOT:
        return digit ? FRACTION : WRONG;
    case FRACTION:
        return digit ? FRACTION : e ? E : WRONG;
    case E:
        if (c == '-' || c == '+')
            return E_SIGN;
        /* fall through */
    case E_SIGN:
    case EXPONENT:
        return digit ? EXPONENT : WRONG;
    case WRONG:
        break;
    }
    return WRONG;
}

static void read_written(struct written *w, const char *text, size_t bytes)
{
    *w = (struct written){ .place = START };
    for (size_t i = 0; i < bytes && w->place != WRONG; i++) {
        char c = text[i];
        w->place = after(w->place, c);
        bool fraction = w->place == FRACTION;
        if (w->place == MINUS)
            w->negative = true;
        else if (w->place == E_SIGN)
            w->exponent_minus = c == '-';
        else if (w->place == EXPONENT)
            w->exponent = w->exponent < INT64_C(1000000000000000)
                              ? w->exponent * 10 + (c - '0')
                              : w->exponent;
        else if (w->place == INTEGER || fraction) {
            if (w->n == DECIMAL_DIGITS) {
                w->place = WRONG;
            } else if (w->n || c != '0') {
                w->digit[w->n++] = (uint8_t)(c - '0');
                w->point += !fraction;
            } else if (fraction) {
                w->zeros++;
                w->point--;
            }
        }
    }
}

/* ---- a continuation that ends ---- */

struct rest {
    char text[2 * DECIMAL_DIGITS];
    size_t n;
};

static void put_digits(struct rest *out, const uint8_t *digit, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out->text[out->n++] = (char)('0' + digit[i]);
}

static void put_exponent(struct rest *out, int64_t e)
{
    if (e)
        out->n += (size_t)snprintf(out->text + out->n,
                                   sizeof out->text - out->n, "e%" PRId64, e);
}

static void put(struct rest *out, char c)
{
    out->text[out->n++] = c;
}

/* Only zeros so far: any number of the range will do. */
static void finish_zeros(struct rest *out, const struct written *w,
                         const struct number_range *sizes)
{
    struct decimal v = pick(sizes);
    if (!v.n) {
        if (w->place != ZERO && w->place != FRACTION)
            put(out, '0');
        return;
    }
    if (w->place == START || w->place == MINUS) {
        put_digits(out, v.digit, v.n);
        put_exponent(out, v.exp - v.n);
        return;
    }
    if (w->place == ZERO)
        put(out, '.');
    put_digits(out, v.digit, v.n);
    put_exponent(out, v.exp + (int64_t)w->zeros);
}

/* The numbers 0.S... x 10^k, S the digits so far, meet the range: in *v. */
static bool meet(struct decimal *v, const struct written *w,
                 const struct number_range *sizes, int64_t k)
{
    uint8_t end[DECIMAL_DIGITS + 1] = { 0 };
    memcpy(end + 1, w->digit, w->n);
    for (size_t i = w->n; ++end[i] == 10; i--)
        end[i] = 0;
    struct number_range r = {
        .has_low = true,
        .has_high = true,
        .high_open = true,
        .integer = sizes->integer,
        .low = decimal_make(w->digit, w->n, k - (int64_t)w->n),
        .high = decimal_make(end, w->n + 1, k - (int64_t)w->n),
    };
    if (r.integer && (k < 1 || k > DECIMAL_DIGITS - 2))
        return false;
    number_range_meet(&r, sizes);
    if (number_range_empty(&r))
        return false;
    tighten(&r);
    *v = pick(&r);
    return true;
}

static bool find_digits(struct decimal *v, const struct written *w,
                        const struct number_range *sizes)
{
    int64_t low = sizes->low.n ? sizes->low.exp : 1, high = low + 2;
    if (sizes->has_high)
        high = sizes->high.exp;
    if (!sizes->integer && !sizes->low.n)
        low = high - 2; /* as small as one likes */
    else if (sizes->integer && !sizes->has_high)
        high = low + (int64_t)w->n + 1;
    for (int64_t k = low - 1; k <= high + 1; k++) {
        if (meet(v, w, sizes, k))
            return true;
        if (k == low + 2 && high - 2 > k && !sizes->integer)
            k = high - 2; /* all between are alike, and were met */
    }
    return false;
}

static bool finish_digits(struct rest *out, const struct written *w,
                          const struct number_range *sizes)
{
    struct decimal v;
    if (!find_digits(&v, w, sizes))
        return false;
    size_t more = v.n > w->n ? v.n - w->n : 0;
    put_digits(out, v.digit + w->n, more);
    if (w->place == DOT && !more)
        put(out, '0');
    put_exponent(out,
                 v.exp - w->point - (w->place == INTEGER ? (int64_t)more : 0));
    return true;
}

/* The least k with mantissa x 10^k >= bound, or > it. */
static int64_t least_power(const struct decimal *mantissa,
                           const struct decimal *bound, bool open)
{
    struct decimal d = *mantissa;
    d.exp = bound->exp;
    int order = decimal_compare(&d, bound);
    int64_t k = bound->exp - mantissa->exp;
    return order > 0 || (order == 0 && !open) ? k : k + 1;
}

static int64_t greatest_power(const struct decimal *mantissa,
                              const struct decimal *bound, bool open)
{
    struct decimal d = *mantissa;
    d.exp = bound->exp;
    int order = decimal_compare(&d, bound);
    int64_t k = bound->exp - mantissa->exp;
    return order < 0 || (order == 0 && !open) ? k : k - 1;
}

/* Digits that make the exponent's digits a number of first..last. */
static bool finish_exponent_digits(struct rest *out, const struct written *w,
                                   int64_t first, int64_t last)
{
    if (first < 0)
        first = 0;
    if (last < first)
        return false;
    if (w->place != EXPONENT || !w->exponent) {
        if (w->place != EXPONENT || first)
            out->n +=
                (size_t)snprintf(out->text + out->n, 24, "%" PRId64, first);
        return true;
    }
    int64_t scale = 1;
    for (int t = 0; t < 16 && w->exponent <= INT64_MAX / 16 / scale;
         t++, scale *= 10) {
        int64_t low = w->exponent * scale, high = low + scale - 1;
        int64_t pick_j = low > first ? low : first;
        if (pick_j > high || pick_j > last)
            continue;
        if (t)
            out->n += (size_t)snprintf(out->text + out->n, 24, "%0*" PRId64, t,
                                       pick_j - low);
        return true;
    }
    return false;
}

static bool finish_exponent(struct rest *out, const struct written *w,
                            const struct number_range *sizes)
{
    const int64_t far = INT64_C(1000000000);
    struct decimal m = decimal_make(w->digit, w->n, w->point - (int64_t)w->n);
    if (!m.n) { /* zero, whatever the exponent */
        if (!above_low(sizes, &m) || !below_high(sizes, &m))
            return false;
        if (w->place != EXPONENT)
            put(out, '0');
        return true;
    }
    int64_t first = -far, last = far;
    if (sizes->low.n)
        first = least_power(&m, &sizes->low, sizes->low_open);
    if (sizes->has_high)
        last = sizes->high.n
                   ? greatest_power(&m, &sizes->high, sizes->high_open)
                   : -far - 1;
    if (sizes->integer && first < (int64_t)m.n - m.exp)
        first = (int64_t)m.n - m.exp;
    if (first > last)
        return false;
    if (w->place == E && last < 0) {
        put(out, '-');
        return finish_exponent_digits(out, w, -last, -first);
    }
    if (w->exponent_minus)
        return finish_exponent_digits(out, w, -last, -first);
    return finish_exponent_digits(out, w, first, last);
}

/* What makes the text a number of the range; false: nothing does. */
static bool finish(struct rest *out, const struct number_range *r,
                   const char *text, size_t bytes)
{
    struct written w;
    struct number_range sizes;
    out->n = 0;
    read_written(&w, text, bytes);
    if (w.place == WRONG)
        return false;
    if (number_complete(r, text, bytes))
        return true;
    bool has_sizes = sizes_of(&sizes, r, w.negative);
    if (w.place == START && !has_sizes) { /* below zero, then */
        put(out, '-');
        w.place = MINUS;
        has_sizes = sizes_of(&sizes, r, true);
    }
    if (!has_sizes)
        return false;
    if (w.place >= E)
        return finish_exponent(out, &w, &sizes);
    if (w.n)
        return finish_digits(out, &w, &sizes);
    finish_zeros(out, &w, &sizes);
    return true;
}

bool number_may_follow(const struct number_range *r, const char *text,
                       size_t bytes, char next)
{
    struct rest rest;
    char longer[NUMBER_FREE + 1];
    if (bytes >= NUMBER_MAX)
        return false;
    if (bytes >= NUMBER_FREE)
        return finish(&rest, r, text, bytes) && rest.n && rest.text[0] == next;
    memcpy(longer, text, bytes);
    longer[bytes] = next;
    return finish(&rest, r, longer, bytes + 1);
}

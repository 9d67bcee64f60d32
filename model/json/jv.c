#include "model/json/jv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct jv *jv_first(const struct jv *v)
{
    bool list = v && (v->type == JV_ARRAY || v->type == JV_OBJECT);
    return list && v->bytes ? v + 1 : NULL;
}

const struct jv *jv_next(const struct jv *parent, const struct jv *v)
{
    const struct jv *next = v + v->skip;
    if (parent->type == JV_OBJECT)
        next += next->skip; /* over the value of this key */
    return next < parent + parent->skip ? next : NULL;
}

const struct jv *jv_get(const struct jv *v, const char *key)
{
    const struct jv *found = NULL;
    if (!jv_is_type(v, JV_OBJECT))
        return NULL;
    for (const struct jv *k = jv_first(v); k; k = jv_next(v, k))
        if (jv_is(k, key))
            found = k + 1;
    return found && found->type != JV_NULL ? found : NULL;
}

const struct jv *jv_given(const struct jv *v, const char *key)
{
    const struct jv *found = jv_get(v, key);
    return jv_is_empty(found) ? NULL : found;
}

bool jv_is(const struct jv *v, const char *text)
{
    return jv_is_type(v, JV_STRING) && v->bytes == strlen(text) &&
           !memcmp(v->text, text, v->bytes);
}

bool jv_is_type(const struct jv *v, enum jv_type type)
{
    return v && v->type == type;
}

bool jv_is_bool(const struct jv *v)
{
    return jv_is_type(v, JV_FALSE) || jv_is_type(v, JV_TRUE);
}

bool jv_is_empty(const struct jv *v)
{
    if (!v || v->type == JV_NULL)
        return true;
    return v->bytes == 0 && v->type >= JV_STRING;
}

/* The exponent of a literal; so far off zero that it decides is far enough. */
static long exponent_of(const char *at, const char *end)
{
    bool minus = at < end && *at == '-';
    long value = 0;
    for (at += at < end && (*at == '-' || *at == '+'); at < end; at++)
        value = value < 100000000 ? value * 10 + (*at - '0') : value;
    return minus ? -value : value;
}

/* Take one more decimal digit. False: the value leaves int64_t. */
static bool shift(int64_t *value, int digit, bool minus)
{
    return !__builtin_mul_overflow(*value, 10, value) &&
           !__builtin_add_overflow(*value, minus ? -digit : digit, value);
}

bool jv_integer(const struct jv *v, int64_t *out)
{
    if (!jv_is_type(v, JV_NUMBER) || v->raw_bytes == 0)
        return false;
    const char *at = v->raw, *end = at + v->raw_bytes, *mantissa = end;
    bool minus = *at == '-', point = false;
    at += minus;
    if (*at < '0' || *at > '9') /* NaN, Infinity */
        return false;
    for (const char *c = at; c < end; c++)
        if (*c == 'e' || *c == 'E')
            mantissa = c;
    long places = mantissa < end ? exponent_of(mantissa + 1, end) : 0;
    /* Digits before the last that is not 0; 10^places more, or none left. */
    const char *last = mantissa;
    for (const char *c = at; c < mantissa; c++)
        point |= *c == '.';
    while (last > at && (last[-1] == '0' || last[-1] == '.')) {
        if (last[-1] == '.')
            point = false;
        else if (!point)
            places++;
        last--;
    }
    if (point) /* digits behind the point are left */
        places -= last - 1 - (const char *)memchr(at, '.',
                                                  (size_t)(last - at));
    int64_t value = 0;
    for (const char *c = at; c < last; c++)
        if (*c != '.' && !shift(&value, *c - '0', minus))
            return false;
    if (value != 0 && (places < 0 || places > 18))
        return false;
    for (long i = 0; i < places && value != 0; i++)
        if (!shift(&value, 0, minus))
            return false;
    *out = value;
    return true;
}

bool jv_real(const struct jv *v, double *out)
{
    if (!jv_is_type(v, JV_NUMBER))
        return false;
    *out = strtod(v->raw, NULL); /* the text behind it ends it */
    return true;
}

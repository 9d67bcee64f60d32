#include "model/json/jv_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json/utf8.h"

void jv_write_escaped(struct buffer *out, const char *text, size_t bytes)
{
    static const char named[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    size_t done = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buffer_put(out, text + done, i - done);
        done = i + 1;
        const char *hit = c ? strchr(named, c) : NULL;
        if (hit)
            buffer_format(out, "\\%c", letter[hit - named]);
        else
            buffer_format(out, "\\u%04x", c);
    }
    buffer_put(out, text + done, bytes - done);
}

void jv_write_string(struct buffer *out, const char *text, size_t bytes)
{
    buffer_put(out, "\"", 1);
    jv_write_escaped(out, text, bytes);
    buffer_put(out, "\"", 1);
}

void jv_write_line_string(struct buffer *out, const char *text, size_t bytes)
{
    static const char *const ends[][2] = { { "\xc2\x85", "\\u0085" },
                                           { "\xe2\x80\xa8", "\\u2028" },
                                           { "\xe2\x80\xa9", "\\u2029" } };
    size_t done = 0;
    buffer_put(out, "\"", 1);
    for (size_t at = 0; at < bytes;) {
        size_t i = 0, n = 0;
        for (; i < 3 && !n; i++)
            if (bytes - at >= strlen(ends[i][0]) &&
                !memcmp(text + at, ends[i][0], strlen(ends[i][0])))
                n = strlen(ends[i][0]);
        if (n) {
            jv_write_escaped(out, text + done, at - done);
            buffer_text(out, ends[i - 1][1]);
            done = at + n;
        }
        at += n ? n : 1;
    }
    jv_write_escaped(out, text + done, bytes - done);
    buffer_put(out, "\"", 1);
}

void jv_clean(struct buffer *out, const char *text, size_t bytes)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    while (bytes > 0) {
        uint32_t cp;
        size_t good = utf8_valid(text, bytes);
        buffer_put(out, text, good);
        text += good;
        bytes -= good;
        if (!bytes)
            break;
        int n = utf8_next(text, bytes, &cp); /* 0: all that is left */
        size_t bad = n < 0 ? (size_t)-n : bytes;
        buffer_put(out, replacement, sizeof replacement - 1);
        text += bad;
        bytes -= bad;
    }
}

/* One more in the last place of digits that end before `end`. The carry cannot
 * leave the number: its digits are too few for the value, so not all are 9. */
static bool step_up(char *begin, char *end)
{
    while (end-- > begin) {
        if (*end == '.')
            continue;
        if (*end < '9') {
            ++*end;
            return true;
        }
        *end = '0';
    }
    return false;
}

/* The fewest digits that read back as `value`, in %e form. Where the doubles
 * below are closer than those above, the nearest decimal may read back as
 * another double though the next decimal up does not. */
static void shortest(char text[static 40], double value)
{
    for (int places = 0; places <= 17; places++) {
        snprintf(text, 40, "%.*e", places, value);
        if (strtod(text, NULL) == value)
            return;
        if (step_up(text, strchr(text, 'e')) && strtod(text, NULL) == value)
            return;
    }
}

/* A real as Python's repr: 1.0, 1e-05, 1e+16, 123456.0. */
static void write_real(struct buffer *out, double value)
{
    char text[40], digits[24], *end;
    size_t count = 0;
    if (!isfinite(value)) {
        buffer_text(out, isnan(value) ? "NaN" : value < 0 ? "-Infinity"
                                                          : "Infinity");
        return;
    }
    if (signbit(value))
        buffer_text(out, "-");
    shortest(text, fabs(value));
    int exponent = (int)strtol(strchr(text, 'e') + 1, &end, 10);
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.')
            digits[count++] = *c;
    while (count > 1 && digits[count - 1] == '0')
        count--;
    if (exponent < -4 || exponent >= 16) {
        buffer_put(out, digits, 1);
        if (count > 1)
            buffer_text(out, ".");
        buffer_put(out, digits + 1, count - 1);
        buffer_format(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0)
        buffer_text(out, "0.");
    for (int i = exponent; i < -1; i++)
        buffer_text(out, "0");
    for (size_t i = 0; i < count || (int)i <= exponent; i++) {
        buffer_put(out, i < count ? &digits[i] : "0", 1);
        if ((int)i == exponent)
            buffer_text(out, i + 1 < count ? "." : ".0");
    }
}

static void write_number(struct buffer *out, const struct jv *v)
{
    double value;
    bool whole = true;
    for (uint32_t i = 0; i < v->raw_bytes; i++)
        whole &= v->raw[i] == '-' || (v->raw[i] >= '0' && v->raw[i] <= '9');
    if (whole && v->raw_bytes == 2 && !memcmp(v->raw, "-0", 2))
        buffer_text(out, "0");
    else if (whole)
        buffer_put(out, v->raw, v->raw_bytes);
    else if (jv_real(v, &value))
        write_real(out, value);
}

/* By their bytes, then by their place in the text. */
static int compare_keys(const void *one, const void *other)
{
    const struct jv *a = *(const struct jv *const *)one;
    const struct jv *b = *(const struct jv *const *)other;
    uint32_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, common);
    if (!order)
        order = (a->bytes > b->bytes) - (a->bytes < b->bytes);
    return order ? order : (a > b) - (a < b);
}

static bool same_key(const struct jv *a, const struct jv *b)
{
    return a->bytes == b->bytes && !memcmp(a->text, b->text, a->bytes);
}

const struct jv **jv_sorted(const struct jv *object, uint32_t *count)
{
    uint32_t n = 0, kept = 0;
    *count = 0;
    if (!object->bytes)
        return NULL;
    const struct jv **keys = malloc(object->bytes * sizeof *keys);
    if (!keys)
        return NULL;
    for (const struct jv *k = jv_first(object); k; k = jv_next(object, k))
        keys[n++] = k;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < n; i++)
        if (i + 1 == n || !same_key(keys[i], keys[i + 1]))
            keys[kept++] = keys[i];
    *count = kept;
    return keys;
}

static int compare_places(const void *one, const void *other)
{
    const struct jv *const *a = one, *const *b = other;
    return (*a > *b) - (*a < *b);
}

/* Each key once: at the place of its first, with the value of its last. Pairs
 * of first and last, as `keys` has them sorted, go back to the order of the
 * text by the first. */
static const struct jv **pairs_in_order(const struct jv *object,
                                        uint32_t *count)
{
    uint32_t n = 0, kept = 0;
    const struct jv **pair = malloc(object->bytes * 2 * sizeof *pair);
    const struct jv **keys = malloc(object->bytes * sizeof *keys);
    if (!pair || !keys) {
        free(pair);
        free(keys);
        return NULL;
    }
    for (const struct jv *k = jv_first(object); k; k = jv_next(object, k))
        keys[n++] = k;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < n; i++) {
        if (!i || !same_key(keys[i - 1], keys[i]))
            pair[2 * kept++] = keys[i];
        pair[2 * kept - 1] = keys[i];
    }
    qsort(pair, kept, 2 * sizeof *pair, compare_places);
    free(keys);
    *count = kept;
    return pair;
}

static void write_object(struct buffer *out, const struct jv *v,
                         enum jv_style style)
{
    bool sorted = style == JV_COMPACT;
    uint32_t count = 0, step = sorted ? 1 : 2;
    const struct jv **keys = sorted ? jv_sorted(v, &count)
                                    : pairs_in_order(v, &count);
    if (!keys && v->bytes)
        out->failed = true;
    buffer_text(out, "{");
    for (uint32_t i = 0; i < count && !out->failed; i++) {
        const struct jv *key = keys[i * step];
        if (i)
            buffer_text(out, sorted ? "," : ", ");
        jv_write_string(out, key->text, key->bytes);
        buffer_text(out, sorted ? ":" : ": ");
        jv_write(out, keys[i * step + step - 1] + 1, style);
    }
    buffer_text(out, "}");
    free(keys);
}

void jv_write(struct buffer *out, const struct jv *v, enum jv_style style)
{
    const struct jv *each;
    switch (v->type) {
    case JV_NULL:
        buffer_text(out, "null");
        break;
    case JV_FALSE:
        buffer_text(out, "false");
        break;
    case JV_TRUE:
        buffer_text(out, "true");
        break;
    case JV_NUMBER:
        write_number(out, v);
        break;
    case JV_STRING:
        jv_write_string(out, v->text, v->bytes);
        break;
    case JV_ARRAY:
        buffer_text(out, "[");
        for (each = jv_first(v); each; each = jv_next(v, each)) {
            if (each != v + 1)
                buffer_text(out, style == JV_COMPACT ? "," : ", ");
            jv_write(out, each, style);
        }
        buffer_text(out, "]");
        break;
    case JV_OBJECT:
        write_object(out, v, style);
        break;
    }
}

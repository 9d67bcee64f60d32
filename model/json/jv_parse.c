/* jv_parse.c - the grammar of RFC 8259 by recursive descent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/json/jv.h"
#include "model/json/utf8.h"

struct parse {
    struct jv_doc *d;
    const char    *at, *end;
    char          *string; /* where the next decoded string goes */
    unsigned       depth, dialect;
    const char    *what;   /* the first thing wrong */
    int            err;
};

static bool fail(struct parse *p, const char *what)
{
    if (!p->err) {
        p->err = -EBADMSG;
        p->what = what;
    }
    return false;
}

static void skip_blanks(struct parse *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' ||
                              *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool next_is(struct parse *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* One more value, for which there is room. Returns its number. */
static uint32_t add(struct parse *p, enum jv_type type)
{
    struct jv_doc *d = p->d;
    d->root[d->count] = (struct jv){ .type = type, .raw = p->at, .skip = 1 };
    return d->count++;
}

/* No text has more values: each but the first stands behind one of these. */
static size_t most_values(const char *text, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == ',' || text[i] == ':' || text[i] == '[' ||
             text[i] == '{';
    return n;
}

static void finish(struct parse *p, uint32_t number)
{
    struct jv *v = &p->d->root[number];
    v->skip = p->d->count - number;
    v->raw_bytes = (uint32_t)(p->at - v->raw);
}

static int hex4(struct parse *p)
{
    int value = 0;
    if (p->end - p->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p->at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    p->at += 4;
    return value;
}

/* What follows \u. A half of a pair by itself is U+FFFD. */
static bool unicode(struct parse *p)
{
    int cp = hex4(p);
    if (cp < 0)
        return fail(p, "\\u without four hexadecimal digits");
    if (cp >= 0xd800 && cp < 0xdc00 && p->end - p->at >= 6 &&
        p->at[0] == '\\' && p->at[1] == 'u') {
        const char *back = p->at;
        p->at += 2;
        int low = hex4(p);
        if (low >= 0xdc00 && low < 0xe000)
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        else
            p->at = back;
    }
    if (cp >= 0xd800 && cp < 0xe000)
        cp = 0xfffd;
    p->string += utf8_put(p->string, (uint32_t)cp);
    return true;
}

static bool escape(struct parse *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return fail(p, "a string without an end");
    char c = *p->at++;
    if (c == 'u')
        return unicode(p);
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit) {
        p->at--;
        return fail(p, "an unknown escape");
    }
    *p->string++ = to[hit - from];
    return true;
}

static bool read_string(struct parse *p)
{
    uint32_t number = add(p, JV_STRING);
    char *begin = p->string;
    p->at++;
    for (;;) {
        const char *run = p->at;
        while (p->at < p->end && *p->at != '"' && *p->at != '\\' &&
               (unsigned char)*p->at >= 0x20)
            p->at++;
        size_t n = (size_t)(p->at - run);
        memcpy(p->string, run, n);
        p->string += n;
        if (p->at == p->end)
            return fail(p, "a string without an end");
        if ((unsigned char)*p->at < 0x20)
            return fail(p, "a control character in a string");
        if (*p->at++ == '"')
            break;
        if (!escape(p))
            return false;
    }
    struct jv *v = &p->d->root[number];
    v->text = begin;
    v->bytes = (uint32_t)(p->string - begin);
    *p->string++ = 0; /* the two quotes made room for it */
    finish(p, number);
    return true;
}

static bool digits(struct parse *p)
{
    const char *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > begin;
}

static bool read_number(struct parse *p)
{
    uint32_t number = add(p, JV_NUMBER);
    next_is(p, '-');
    if (!next_is(p, '0') && !digits(p))
        return fail(p, "a number without digits");
    if (next_is(p, '.') && !digits(p))
        return fail(p, "a number that ends with its point");
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        if (!next_is(p, '+'))
            next_is(p, '-');
        if (!digits(p))
            return fail(p, "an exponent without digits");
    }
    finish(p, number);
    return true;
}

static bool read_word(struct parse *p)
{
    static const struct {
        const char  *word;
        enum jv_type type;
        unsigned     dialect;
    } words[] = {
        { "null", JV_NULL, JV_STRICT },    { "true", JV_TRUE, JV_STRICT },
        { "false", JV_FALSE, JV_STRICT },  { "NaN", JV_NUMBER, JV_NAN },
        { "Infinity", JV_NUMBER, JV_NAN }, { "-Infinity", JV_NUMBER, JV_NAN },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(p->end - p->at) < n || memcmp(p->at, words[i].word, n) ||
            (words[i].dialect & ~p->dialect))
            continue;
        uint32_t number = add(p, words[i].type);
        p->at += n;
        finish(p, number);
        return true;
    }
    if (p->at < p->end && *p->at == '-')
        return read_number(p);
    return fail(p, p->at == p->end ? "a value is missing" : "no value");
}

static bool read_value(struct parse *p);

static bool read_key(struct parse *p)
{
    skip_blanks(p);
    if (p->at == p->end || *p->at != '"')
        return fail(p, "a key is missing");
    if (!read_string(p))
        return false;
    skip_blanks(p);
    return next_is(p, ':') || fail(p, "a colon is missing");
}

static bool read_list(struct parse *p, enum jv_type type, char close)
{
    uint32_t number = add(p, type), count = 0;
    if (++p->depth > JV_DEPTH_MAX)
        return fail(p, "nested too deep");
    p->at++;
    skip_blanks(p);
    bool open = !next_is(p, close);
    while (open) {
        if ((type == JV_OBJECT && !read_key(p)) || !read_value(p))
            return false;
        count++;
        skip_blanks(p);
        open = !next_is(p, close);
        if (open && !next_is(p, ','))
            return fail(p, p->at == p->end ? "a list or object without an end"
                                           : "a comma is missing");
    }
    p->depth--;
    p->d->root[number].bytes = count;
    finish(p, number);
    return true;
}

static bool read_value(struct parse *p)
{
    skip_blanks(p);
    if (p->at == p->end)
        return fail(p, "a value is missing");
    switch (*p->at) {
    case '{':
        return read_list(p, JV_OBJECT, '}');
    case '[':
        return read_list(p, JV_ARRAY, ']');
    case '"':
        return read_string(p);
    case '0' ... '9':
        return read_number(p);
    default:
        return read_word(p);
    }
}

int jv_parse(struct jv_doc *d, const char *text, size_t bytes,
             unsigned dialect, struct jv_wrong *wrong)
{
    memset(d, 0, sizeof *d);
    struct parse p = { .d = d, .dialect = dialect };
    size_t bad = utf8_valid(text, bytes);
    if (bytes > UINT32_MAX / 2) {
        fail(&p, "longer than 2 GB");
    } else if (bad < bytes) {
        fail(&p, "no UTF-8");
    } else {
        d->text = malloc(bytes + 1);
        d->strings = p.string = malloc(bytes + 1);
        d->root = malloc(most_values(text, bytes) * sizeof *d->root);
        if (!d->text || !d->strings || !d->root)
            p.err = -ENOMEM;
    }
    size_t at = bad;
    if (!p.err) {
        memcpy(d->text, text, bytes);
        d->text[bytes] = 0;
        p.at = d->text;
        p.end = d->text + bytes;
        if (read_value(&p) && !(dialect & JV_PREFIX)) {
            skip_blanks(&p);
            if (p.at < p.end)
                fail(&p, "something behind the value");
        }
        at = (size_t)(p.at - d->text);
    }
    if (p.err) {
        jv_free(d);
        if (wrong)
            *wrong = (struct jv_wrong){ .what = p.what, .at = at };
        return p.err;
    }
    d->end = at;
    return 0;
}

void jv_free(struct jv_doc *d)
{
    free(d->root);
    free(d->text);
    free(d->strings);
    memset(d, 0, sizeof *d);
}

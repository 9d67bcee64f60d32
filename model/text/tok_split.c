#include "model/text/tok_split.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

struct reader {
    const struct tok_class *class;
    const char             *end;
    uint64_t                steps;
};

/* The flags of the character at `at`, 0 length and no flags at the end. */
static unsigned look(struct reader *r, const char *at, unsigned *length)
{
    *length = 0;
    if (at == r->end)
        return 0;
    r->steps++;
    return tok_class_at(r->class, at, r->end, length);
}

/* The end of the run of characters with any of `flags`. */
static const char *run(struct reader *r, const char *at, unsigned flags)
{
    unsigned length;
    while (look(r, at, &length) & flags)
        at += length;
    return at;
}

/* The end of the run of valid characters with none of `flags`. */
static const char *run_without(struct reader *r, const char *at, unsigned flags)
{
    for (;;) {
        unsigned length;
        unsigned class = look(r, at, &length);
        if (length == 0 || class & (flags | TOK_INVALID))
            return at;
        at += length;
    }
}

/* A word from `at`, without prefix. *mixed is the end of U*W+, or NULL: if no W
 * follows the run of U, the match ends after the last character of that run
 * that is also W. *capitals is the end of U+W* if only that matches, else
 * NULL. */
static void word(struct reader *r, const char *at, const char **mixed,
                 const char **capitals)
{
    const char *begin = at, *both_end = NULL;
    for (;;) {
        unsigned length;
        unsigned class = look(r, at, &length);
        if (!(class & TOK_UPPER))
            break;
        at += length;
        if (class & TOK_LOWER)
            both_end = at;
    }
    const char *small_end = run(r, at, TOK_LOWER);
    *mixed = small_end > at ? small_end : both_end;
    *capitals = at > begin ? at : NULL;
}

/* The end of 's 't 're 've 'm 'll 'd in any case, or `at`. Folding case lets
 * U+017F stand for s. */
static const char *contraction(const struct reader *r, const char *at)
{
    static const char ends[][3] = { "s", "t",  "re", "ve",
                                    "m", "ll", "d",  "\xc5\xbf" };
    if (at == r->end || *at != '\'')
        return at;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t length = strlen(ends[i]), k = 0;
        if ((size_t)(r->end - at) <= length)
            continue;
        while (k < length) {
            char c = at[1 + k];
            if (c >= 'A' && c <= 'Z')
                c = (char)(c - 'A' + 'a');
            if (c != ends[i][k])
                break;
            k++;
        }
        if (k == length)
            return at + 1 + length;
    }
    return at;
}

/* The end of a word, alternatives 2 and 3, or NULL. A match with the prefix is
 * preferred to one without, and alternative 2, either way, to alternative 3. */
static const char *prefixed_word(struct reader *r, const char *at,
                                 unsigned first, unsigned first_length)
{
    const char *mixed[2] = { NULL, NULL }, *capitals[2] = { NULL, NULL };
    if (!(first & (TOK_BREAK | TOK_LETTER | TOK_NUMBER)))
        word(r, at + first_length, &mixed[0], &capitals[0]);
    if (!mixed[0] && first & (TOK_UPPER | TOK_LOWER))
        word(r, at, &mixed[1], &capitals[1]);
    const char *end = mixed[0]      ? mixed[0]
                      : mixed[1]    ? mixed[1]
                      : capitals[0] ? capitals[0]
                                    : capitals[1];
    return end ? contraction(r, end) : NULL;
}

/* White space from `at`, alternatives 6 to 8: up to the last line break if
 * there is one, else all but the last character, which may begin the next
 * piece. */
static const char *blank(struct reader *r, const char *at)
{
    const char *begin = at, *last = at, *break_end = NULL;
    for (;;) {
        unsigned length;
        unsigned class = look(r, at, &length);
        if (!(class & TOK_SPACE))
            break;
        last = at;
        at += length;
        if (class & TOK_BREAK)
            break_end = at;
    }
    if (break_end)
        return break_end;
    return at == r->end || last == begin ? at : last;
}

static const char *piece(struct reader *r, const char *text)
{
    unsigned length;
    unsigned first = look(r, text, &length);
    if (first & TOK_INVALID)
        return text + 1;
    if (first & TOK_HAN)
        return run(r, text + length, TOK_HAN);
    const char *end = prefixed_word(r, text, first, length);
    if (end)
        return end;
    if (first & TOK_NUMBER) {
        end = text + length;
        for (int i = 1; i < 3 && look(r, end, &length) & TOK_NUMBER; i++)
            end += length;
        return end;
    }
    const char *marks = *text == ' ' ? text + 1 : text;
    end = run_without(r, marks, TOK_SPACE | TOK_LETTER | TOK_NUMBER);
    if (end > marks)
        return run(r, end, TOK_BREAK);
    return blank(r, text);
}

size_t tok_split_next(const struct tok_class *t, const char *text,
                      const char *end, uint64_t *steps)
{
    assert(text < end);
    struct reader r = { .class = t, .end = end, .steps = 0 };
    const char *stop = piece(&r, text);
    assert(stop > text);
    *steps += r.steps;
    return (size_t)(stop - text);
}

#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tok_class.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { SURROGATES = 0xd800, SURROGATES_END = 0xe000 };

/* Runs of one category, the number of the group says which; the last group is
 * everything else, so that a match always begins where the last one ended. */
static const char category_pattern[] =
    "([\\p{Lu}\\p{Lt}]+)|(\\p{Ll}+)|([\\p{Lm}\\p{Lo}]+)|(\\p{M}+)|(\\p{N}+)|"
    "([^\\p{L}\\p{M}\\p{N}]+)";
static const uint8_t category_flags[] = {
    0,
    TOK_UPPER | TOK_LETTER,
    TOK_LOWER | TOK_LETTER,
    TOK_UPPER | TOK_LOWER | TOK_LETTER,
    TOK_UPPER | TOK_LOWER,
    TOK_NUMBER,
    0,
};

/* Script, not Script_Extensions, which is what \p{Han} means in PCRE2 >= 10.40;
 * before that it means Script and the prefix is unknown. */
static const char *const han_pattern[] = { "(\\p{sc:Han}+)", "(\\p{Han}+)" };
static const uint8_t han_flags[] = { 0, TOK_HAN };

/* White_Space, which is not \s of PCRE2: that one has U+180E as well. */
static const struct {
    uint16_t first, last;
} spaces[] = {
    { 0x09, 0x0d },     { 0x20, 0x20 },     { 0x85, 0x85 },
    { 0xa0, 0xa0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200a },
    { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
    { 0x3000, 0x3000 },
};

/* All code points in order as UTF-8. */
struct alphabet {
    char  *text;
    size_t bytes;
};

static int alphabet_make(struct alphabet *a)
{
    a->bytes = 0;
    a->text = malloc((size_t)TOK_CODE_POINTS * TOK_UTF8_MAX);
    if (!a->text)
        return -ENOMEM;
    for (uint32_t cp = 0; cp < TOK_CODE_POINTS; cp++)
        if (cp < SURROGATES || cp >= SURROGATES_END)
            a->bytes += tok_utf8_put(a->text + a->bytes, cp);
    return 0;
}

/* The code point of the character that starts at byte `at` of the alphabet. */
static uint32_t alphabet_at(const struct alphabet *a, size_t at)
{
    uint32_t cp = TOK_CODE_POINTS;
    if (at < a->bytes)
        tok_utf8_next(a->text + at, a->bytes - at, &cp);
    return cp;
}

/* OR flags[group] into each code point that `group` of a match covers. */
static int mark(uint8_t *flags_of, const struct alphabet *a,
                const char *pattern, const uint8_t *flags)
{
    int error;
    size_t where;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF, &error, &where, NULL);
    if (!code)
        return error == PCRE2_ERROR_HEAP_FAILED ? -ENOMEM : -ENOSYS;
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* refused: slower, the same */
    pcre2_match_data *found = pcre2_match_data_create_from_pattern(code, NULL);
    int got = found ? 0 : PCRE2_ERROR_NOMEMORY;
    size_t at = 0;
    while (found && at < a->bytes) {
        got = pcre2_match(code, (PCRE2_SPTR)a->text, a->bytes, at,
                          PCRE2_NO_UTF_CHECK, found, NULL);
        if (got < 0)
            break;
        const size_t *span = pcre2_get_ovector_pointer(found);
        uint32_t first = alphabet_at(a, span[0]), end = alphabet_at(a, span[1]);
        for (uint32_t cp = first; cp < end; cp++)
            if (cp < SURROGATES || cp >= SURROGATES_END)
                flags_of[cp] |= flags[got - 1];
        at = span[1];
    }
    pcre2_match_data_free(found);
    pcre2_code_free(code);
    if (got >= 0 || got == PCRE2_ERROR_NOMATCH)
        return 0;
    return got == PCRE2_ERROR_NOMEMORY ? -ENOMEM : -ENOSYS;
}

static int fill(uint8_t *flags_of)
{
    struct alphabet a;
    int err = alphabet_make(&a);
    if (err)
        return err;
    err = mark(flags_of, &a, category_pattern, category_flags);
    if (!err)
        err = mark(flags_of, &a, han_pattern[0], han_flags);
    if (err == -ENOSYS)
        err = mark(flags_of, &a, han_pattern[1], han_flags);
    free(a.text);
    if (err)
        return err;
    for (uint32_t cp = 0; cp < TOK_CODE_POINTS; cp++)
        if (flags_of[cp] & TOK_HAN)
            flags_of[cp] &= (uint8_t) ~(TOK_UPPER | TOK_LOWER);
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        for (uint32_t cp = spaces[i].first; cp <= spaces[i].last; cp++)
            flags_of[cp] |= TOK_SPACE;
    flags_of['\r'] |= TOK_BREAK;
    flags_of['\n'] |= TOK_BREAK;
    return 0;
}

/* Keep each different page of `flags_of` once. */
static int fold(struct tok_class *t, const uint8_t *flags_of)
{
    t->pages = malloc(TOK_CODE_POINTS);
    if (!t->pages)
        return -ENOMEM;
    for (uint32_t p = 0; p < TOK_CODE_POINTS / TOK_PAGE; p++) {
        const uint8_t *page = flags_of + (size_t)p * TOK_PAGE;
        uint32_t row = 0;
        while (row < t->page_count &&
               memcmp(t->pages + (size_t)row * TOK_PAGE, page, TOK_PAGE))
            row++;
        if (row == t->page_count)
            memcpy(t->pages + (size_t)t->page_count++ * TOK_PAGE, page,
                   TOK_PAGE);
        t->page_of[p] = (uint16_t)row;
    }
    uint8_t *less = realloc(t->pages, (size_t)t->page_count * TOK_PAGE);
    if (less)
        t->pages = less;
    return 0;
}

int tok_class_open(struct tok_class **out)
{
    *out = NULL;
    struct tok_class *t = calloc(1, sizeof *t);
    uint8_t *flags_of = calloc(TOK_CODE_POINTS, 1);
    int err = t && flags_of ? fill(flags_of) : -ENOMEM;
    if (!err)
        err = fold(t, flags_of);
    free(flags_of);
    if (err) {
        tok_class_close(t);
        return err;
    }
    *out = t;
    return 0;
}

void tok_class_close(struct tok_class *t)
{
    if (!t)
        return;
    free(t->pages);
    free(t);
}

/* Goal    the automaton cuts where the published regular expression cuts, by
 *         one version of Unicode on every machine.
 * Method  the table of classes has a known sum, and characters that came with
 *         Unicode 15 to 17 have theirs. PCRE2, an implementation of its own,
 *         has the same classes for every character that it knows; it runs the
 *         expression, with lookahead in place of class intersection, on 40,000
 *         random strings of characters chosen to make it backtrack, and on
 *         strings of any characters. The seed is printed when a string
 *         differs. Without PCRE2 these are skipped.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model/text/tok_split.h"
#include "tests/unit/tok_files.h"

static struct tok_class *class;

#if __has_include(<pcre2.h>)
#include <pcre2.h>

#define WHITE \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}" \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define CAPITAL  "(?:(?!\\p{sc:Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])"
#define SMALL    "(?:(?!\\p{sc:Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])"
#define PREFIX   "[^\\r\\n\\p{L}\\p{N}]?"
#define SHORTENED "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const char expression[] =
    "\\p{sc:Han}+"
    "|" PREFIX CAPITAL "*" SMALL "+" SHORTENED
    "|" PREFIX CAPITAL "+" SMALL "*" SHORTENED
    "|\\p{N}{1,3}"
    "| ?[^" WHITE "\\p{L}\\p{N}]+[\\r\\n]*"
    "|[" WHITE "]*[\\r\\n]+"
    "|[" WHITE "]+(?![^" WHITE "])"
    "|[" WHITE "]+";

/* Each of these is a class of its own to some alternative. */
static const uint32_t telling[] = {
    'A', 'B', 'b', 'z', ' ', ' ', '\t', '\r', '\n', '\n', 0xa0, 0x85, 0x2028,
    0x3000, 0x1c, 0x180e, 0x200b, /* blank to some */
    0x3042, 0x3042, 0x30a2, 0x30fc, 0x5d0, 0xe01, 0x1c5, 0x2b0, 0x301, 0x301,
    0xfe0f, 0x93e, /* letters without case, title case, marks */
    0x4e2d, 0x4e2d, 0x56fd, 0x2e80, 0x2f00, 0x3005, 0x3007, 0x3021, 0x303b,
    0x16ff0, 0x16fe3, 0x20000, 0xf900, /* Han: letters, symbols, numerals */
    '1', '2', 0x661, 0xbd, 0x2167, 0x1d7ce, /* numbers */
    '\'', '\'', '\'', 's', 't', 'r', 'e', 'v', 'm', 'l', 'd', 'S', 'T', 'R',
    'E', 'V', 'M', 'L', 'D', 0x17f, 0x212a, 0x2019, /* contractions */
    '!', '_', '-', '<', '|', '$', 0x20ac, 0x3001, 0x1f600, 0xe000, 0x10ffff, 0,
    0xe9, 0xc9, 0x430, 0x410, 0xdf, 0x130, 0x131, 0x1e9e,
};

static pcre2_code       *code;
static pcre2_match_data *found;
/* Code points of which PCRE2's version of Unicode says what ours does. */
static bool known[TOK_CODE_POINTS];

static pcre2_code *compile(const char *text)
{
    int error;
    size_t where;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF, &error, &where, NULL);
    assert_non_null(made);
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
    return made;
}

static bool matches(const pcre2_code *one, uint32_t cp)
{
    char text[UTF8_MAX];
    size_t bytes = utf8_put(text, cp);
    return pcre2_match(one, (PCRE2_SPTR)text, bytes, 0, PCRE2_NO_UTF_CHECK,
                       found, NULL) > 0;
}

static const struct {
    const char *text;
    unsigned    flag;
} kinds_of[] = {
    { "\\p{sc:Han}", TOK_HAN },  { CAPITAL, TOK_UPPER },
    { SMALL, TOK_LOWER },        { "\\p{L}", TOK_LETTER },
    { "\\p{N}", TOK_NUMBER },    { "[" WHITE "]", TOK_SPACE },
    { "[\\r\\n]", TOK_BREAK },
};
enum { KINDS = sizeof kinds_of / sizeof *kinds_of };

/* What Unicode says otherwise since version 14. */
static bool changed(uint32_t cp)
{
    return cp == 0x295; /* a letter without case since 17 */
}

/* PCRE2 knows every character that we know, or more. */
static bool newer(void)
{
    char version[24] = "";
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    return atof(version) > atof(tok_unicode_version);
}

static void test_table(void **state)
{
    (void)state;
    pcre2_code *kind[KINDS], *unassigned = compile("\\p{Cn}");
    for (int k = 0; k < KINDS; k++)
        kind[k] = compile(kinds_of[k].text);
    uint32_t count = 0;
    for (uint32_t cp = 0; cp < TOK_CODE_POINTS; cp++) {
        if ((cp >= 0xd800 && cp < 0xe000) || matches(unassigned, cp))
            continue;
        unsigned flags = 0, ours = tok_class_of(class, cp);
        for (int k = 0; k < KINDS; k++)
            flags |= matches(kind[k], cp) ? kinds_of[k].flag : 0;
        known[cp] = flags == ours;
        count += known[cp];
        if (!known[cp] && !changed(cp) && !(newer() && !ours))
            fail_msg("U+%04X: %u, PCRE2 says %u", cp, ours, flags);
    }
    assert_true(count > 280000); /* private use among them */
    pcre2_code_free(unassigned);
    for (int k = 0; k < KINDS; k++)
        pcre2_code_free(kind[k]);
}

static void compare(const char *text, size_t bytes, uint64_t seed)
{
    uint64_t steps = 0;
    for (size_t at = 0; at < bytes;) {
        int got = pcre2_match(code, (PCRE2_SPTR)text, bytes, at,
                              PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, found, NULL);
        assert_int_equal(got, 1);
        size_t want = pcre2_get_ovector_pointer(found)[1] - at;
        size_t have = tok_split_next(class, text + at, text + bytes, &steps);
        if (have != want) {
            for (size_t i = 0; i < bytes; i++)
                print_error("%02x", text[i] & 0xff);
            fail_msg(" at byte %zu: %zu, not %zu (seed %llu)", at, have, want,
                     (unsigned long long)seed);
        }
        at += want;
    }
}

static void test_telling_characters(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15u;
    for (int round = 0; round < 40000; round++) {
        uint64_t begun = seed;
        char text[160];
        size_t bytes = 0;
        /* few different characters in one string: runs and repeats */
        uint32_t kinds = 1 + tok_files_random(&seed, 12), kind[12];
        uint32_t count = 1 + tok_files_random(&seed, 36);
        for (uint32_t i = 0; i < kinds; i++)
            kind[i] = telling[tok_files_random(
                &seed, sizeof telling / sizeof *telling)];
        for (uint32_t i = 0; i < count; i++)
            bytes += utf8_put(text + bytes,
                                  kind[tok_files_random(&seed, kinds)]);
        compare(text, bytes, begun);
    }
}

static void test_any_characters(void **state)
{
    (void)state;
    uint64_t seed = 0xd1b54a32d192ed03u;
    for (int round = 0; round < 20000; round++) {
        uint64_t begun = seed;
        char text[160];
        size_t bytes = 0;
        uint32_t count = 1 + tok_files_random(&seed, 36);
        uint32_t below = tok_files_random(&seed, 2) ? 0xd800 : 0x400;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t cp = tok_files_random(&seed, 40)
                              ? tok_files_random(&seed, below)
                              : 0xe000 + tok_files_random(&seed, 0x102000);
            if (known[cp])
                bytes += utf8_put(text + bytes, cp);
        }
        compare(text, bytes, begun);
    }
}

/* Every character at once and after each of the kinds that look ahead. */
static void test_every_character(void **state)
{
    (void)state;
    static const char *const before[] = { "",  "A", "!",
                                          "1", " ", "\xe4\xb8\xad" };
    for (uint32_t cp = 0; cp < TOK_CODE_POINTS; cp++) {
        if (!known[cp])
            continue;
        char text[32];
        size_t bytes = 0;
        for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
            bytes = (size_t)(stpcpy(text + bytes, before[i]) - text);
            bytes += utf8_put(text + bytes, cp);
        }
        compare(text, bytes, cp);
    }
}

#else
static void test_table(void **state)
{
    (void)state;
    skip();
}
#define test_telling_characters test_table
#define test_any_characters     test_table
#define test_every_character    test_table
#endif

static void test_invalid_bytes(void **state)
{
    (void)state;
    uint64_t steps = 0;
    /* A wrong byte is a piece, ends a run, prefixes no word, is no blank. */
    static const char text[] = "ab\xff" "cd  \xe4\xb8" "1\x80\xed\xa0\x80!\xc0";
    static const size_t want[] = { 2, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    const char *at = text, *end = text + sizeof text - 1;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(at < end);
        assert_int_equal(tok_split_next(class, at, end, &steps), want[i]);
        at += want[i];
    }
    assert_ptr_equal(at, end);
}

/* The whole table, by FNV-1a: no machine and no library has a say in it. */
static void test_frozen(void **state)
{
    (void)state;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (uint32_t cp = 0; cp < TOK_CODE_POINTS; cp++)
        sum = (sum ^ tok_class_of(class, cp)) * UINT64_C(0x100000001b3);
    assert_string_equal(tok_unicode_version, "17.0.0");
    assert_int_equal(sum, UINT64_C(0xc4655813edc3ef36));
    static const struct {
        uint32_t cp;
        unsigned flags;
    } since[] = {
        { 0x11f50, TOK_NUMBER },                          /* 15.0 */
        { 0x31350, TOK_HAN | TOK_LETTER },                /* 15.0 */
        { 0x2ebf0, TOK_HAN | TOK_LETTER },                /* 15.1 */
        { 0x1c89, TOK_UPPER | TOK_LETTER },               /* 16.0 */
        { 0x1c8a, TOK_LOWER | TOK_LETTER },               /* 16.0 */
        { 0x323b0, TOK_HAN | TOK_LETTER },                /* 17.0 */
        { 0x295, TOK_UPPER | TOK_LOWER | TOK_LETTER },    /* 17.0 */
        { 0xe01ef, TOK_UPPER | TOK_LOWER }, { 0xe01f0, 0 }, { 0x10ffff, 0 },
    };
    for (size_t i = 0; i < sizeof since / sizeof *since; i++)
        assert_int_equal(tok_class_of(class, since[i].cp), since[i].flags);
}

/* The ranges of the script Han. */
static void test_han(void **state)
{
    (void)state;
    static const uint32_t ranges[][2] = {
        { 0x2e80, 0x2e99 }, { 0x2e9b, 0x2ef3 },
        { 0x2f00, 0x2fd5 }, { 0x3005, 0x3005 },
        { 0x3007, 0x3007 }, { 0x3021, 0x3029 },
        { 0x3038, 0x303b }, { 0x3400, 0x4dbf },
        { 0x4e00, 0x9fff }, { 0xf900, 0xfa6d },
        { 0xfa70, 0xfad9 }, { 0x16fe2, 0x16fe3 },
        { 0x16ff0, 0x16ff6 }, { 0x20000, 0x2a6df },
        { 0x2a700, 0x2b81d }, { 0x2b820, 0x2cead },
        { 0x2ceb0, 0x2ebe0 }, { 0x2ebf0, 0x2ee5d },
        { 0x2f800, 0x2fa1d }, { 0x30000, 0x3134a },
        { 0x31350, 0x33479 },
    };
    size_t in = 0;
    for (uint32_t cp = 0; cp < TOK_CODE_POINTS; cp++) {
        if (in < sizeof ranges / sizeof *ranges && cp > ranges[in][1])
            in++;
        bool want = in < sizeof ranges / sizeof *ranges && cp >= ranges[in][0];
        unsigned flags = tok_class_of(class, cp);
        assert_int_equal(!!(flags & TOK_HAN), want);
        if (want)
            assert_false(flags & (TOK_UPPER | TOK_LOWER));
    }
}

static int setup(void **state)
{
    (void)state;
#if __has_include(<pcre2.h>)
    code = compile(expression);
    found = pcre2_match_data_create(2, NULL);
#endif
    return tok_class_open(&class);
}

static int teardown(void **state)
{
    (void)state;
#if __has_include(<pcre2.h>)
    pcre2_match_data_free(found);
    pcre2_code_free(code);
#endif
    tok_class_close(class);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_telling_characters),
        cmocka_unit_test(test_any_characters),
        cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_invalid_bytes),
        cmocka_unit_test(test_han),
    };
    return cmocka_run_group_tests_name("tok_split", tests, setup, teardown);
}

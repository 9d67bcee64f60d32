/* Goal    an automaton has a state for a text exactly while the text begins one
 *         that the pattern accepts.
 * Method  patterns and texts by hand; 3,000 random patterns over two letters
 *         against regexec of the C library, on random texts; sets of strings;
 *         intersections against both sides; that every state is live by
 *         walking to an end from it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/dfa.h"
#include "model/json/utf8.h"

static bool accepts(const struct dfa *d, const char *text)
{
    int32_t s = d->states ? 0 : DFA_DEAD;
    for (size_t at = 0, n = strlen(text); at < n && s != DFA_DEAD;) {
        uint32_t c = 0;
        int length = utf8_next(text + at, n - at, &c);
        assert_true(length > 0);
        s = dfa_next(d, s, c);
        at += (size_t)length;
    }
    return s != DFA_DEAD && d->accept[s];
}

static struct dfa *make(const char *pattern, bool whole)
{
    struct dfa *d;
    struct error error = { 0 };
    int err = dfa_pattern(&d, pattern, strlen(pattern), whole, &error);
    if (err)
        printf("# %s: %s\n", pattern, error.text);
    assert_int_equal(err, 0);
    return d;
}

static void patterns_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *yes, *no;
        bool whole;
    } t[] = {
        { "abc", "xabcx", "ab", false },
        { "abc", "abc", "xabc", true },
        { "^a|b$", "ac", "ca", false },
        { "^a|b$", "cb", "bc", false },
        { "^$", "", "a", false },
        { "a^b", "", "", false },
        { "^\\d{2,3}$", "123", "1", false },
        { "^\\d{2,3}$", "12", "1234", false },
        { "^\\w+$", "aZ_9", "a-", false },
        { "^\\S+$", "ab", "a b", false },
        { "^[^a-c]+$", "xyz", "xbz", false },
        { "^[]x]+$", "x", "xx", false },
        { "^[a\\-z]+$", "a-z", "b", false },
        { "^.$", "\xc3\xa9", "\n", false },
        { "^\\u00e9\\x41$",
          "\xc3\xa9"
          "A",
          "eA", false },
        { "^\\u{1f600}$", "\xf0\x9f\x98\x80", "x", false },
        { "^\\ud83d\\ude00$", "\xf0\x9f\x98\x80", "x", false },
        { "^(?:ab|c)*?$", "abcab", "aab", false },
        { "^(?<n>a)+$", "aa", "ab", false },
        { "^a{,2}$", "a{,2}", "aa", false },
        { "^(a|)b?$", "", "bb", false },
        { "^\\.\\/\\$$", "./$", "a/$", false },
        { "a{0}b", "b", "a", true },
        { "(a{2}){2}", "aaaa", "aaa", true },
        { "[\\d\\-x]+", "4-x", "y", true },
        { "\\cJ", "\n", "J", true },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct dfa *d = make(t[i].pattern, t[i].whole);
        bool empty =
            !strcmp(t[i].pattern, "a^b") || !strcmp(t[i].pattern, "^[]x]+$");
        if (accepts(d, t[i].yes) == empty || accepts(d, t[i].no))
            printf("# %s\n", t[i].pattern);
        assert_int_equal(accepts(d, t[i].yes), !empty);
        assert_false(accepts(d, t[i].no));
        dfa_free(d);
    }
}

static void what_is_not_supported_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "(",     ")",      "a)",       "[a",   "*a",     "a**",   "(?=a)",
        "(?!a)", "(?<=a)", "\\1",      "\\bx", "\\p{L}", "[b-a]", "a{3,2}",
        "\\q",   "\\u12",  "a{20000}", "\\",   "\xff",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dfa *d;
        struct error error = { 0 };
        int err = dfa_pattern(&d, bad[i], strlen(bad[i]), false, &error);
        if (err != -EINVAL)
            printf("# %s: %d\n", bad[i], err);
        assert_int_equal(err, -EINVAL);
        assert_true(error.text[0]);
        assert_null(d);
    }
    struct dfa *d;
    struct error error = { 0 };
    const char *large = "^(a|b)*a(a|b){16}$";
    assert_int_equal(dfa_pattern(&d, large, strlen(large), false, &error),
                     -E2BIG);
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 33);
}

/* Anchors only outside of groups: the C library is wrong about (^b){2}. */
enum { TOP = 1 };

static size_t random_pattern(char *out, uint64_t *seed, int depth)
{
    size_t n = 0;
    uint32_t pieces = 1 + next_random(seed) % 3;
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t kind = next_random(seed) % (depth ? 9 : 6);
        bool can_repeat = true;
        if (kind < 3)
            out[n++] = kind ? 'a' : 'b';
        else if (kind == 3)
            n += (size_t)sprintf(out + n, "[^a]");
        else if (kind == 4)
            n += (size_t)sprintf(out + n, "[ab]");
        else if (kind == 5) {
            out[n++] =
                depth == TOP && i == 0 && next_random(seed) % 2 ? '^' : '.';
            can_repeat = out[n - 1] == '.';
        } else {
            out[n++] = '(';
            n += random_pattern(out + n, seed, depth - 1);
            if (kind == 8) {
                out[n++] = '|';
                n += random_pattern(out + n, seed, depth - 1);
            }
            out[n++] = ')';
        }
        static const char *const often[] = { "",  "",    "",      "*",   "+",
                                             "?", "{2}", "{1,2}", "{2,}" };
        if (can_repeat)
            n += (size_t)sprintf(out + n, "%s", often[next_random(seed) % 9]);
    }
    if (depth == TOP && next_random(seed) % 4 == 0)
        out[n++] = '$';
    out[n] = '\0';
    return n;
}

static void random_text(char *out, uint64_t *seed)
{
    uint32_t n = next_random(seed) % 8;
    for (uint32_t i = 0; i < n; i++)
        out[i] = "abc"[next_random(seed) % 3];
    out[n] = '\0';
}

static void random_patterns_as_the_c_library(void **state)
{
    (void)state;
    uint64_t seed = 17, yes = 0, no = 0;
    char pattern[512], text[16];
    for (int i = 0; i < 3000; i++) {
        regex_t re;
        random_pattern(pattern, &seed, TOP);
        if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB))
            continue;
        struct dfa *d = make(pattern, false);
        for (int j = 0; j < 30; j++) {
            random_text(text, &seed);
            bool want = !regexec(&re, text, 0, NULL, 0);
            if (accepts(d, text) != want)
                printf("# %s on %s\n", pattern, text);
            assert_int_equal(accepts(d, text), want);
            *(want ? &yes : &no) += 1;
        }
        regfree(&re);
        dfa_free(d);
    }
    assert_true(yes > 10000 && no > 10000);
}

/* From every state as many steps as `shortest` says lead to an end. */
static void check_live(const struct dfa *d)
{
    for (uint32_t s = 0; s < d->states; s++) {
        uint32_t at = s;
        for (uint32_t left = d->shortest[s]; left; left--) {
            uint32_t next = at;
            for (uint32_t e = d->first[at]; e < d->first[at + 1]; e++)
                if (d->shortest[d->edge[e].to] == left - 1)
                    next = (uint32_t)d->edge[e].to;
            assert_true(d->shortest[next] == left - 1);
            at = next;
        }
        assert_true(d->accept[at]);
    }
}

static void strings_and_intersections(void **state)
{
    (void)state;
    static const char *const words[] = { "red", "reef", "re",
                                         "",    "blue", "\xc3\xa9t\xc3\xa9",
                                         "red" };
    size_t bytes[7];
    struct dfa *d, *both;
    for (int i = 0; i < 7; i++)
        bytes[i] = strlen(words[i]);
    assert_int_equal(dfa_strings(&d, words, bytes, 7), 0);
    for (int i = 0; i < 7; i++)
        assert_true(accepts(d, words[i]));
    assert_false(accepts(d, "ree"));
    assert_false(accepts(d, "r"));
    check_live(d);
    struct dfa *e = make("e$", false);
    assert_int_equal(dfa_both(&both, d, e), 0);
    assert_true(accepts(both, "re") && accepts(both, "blue"));
    assert_false(accepts(both, "red") || accepts(both, ""));
    check_live(both);
    dfa_free(both);
    dfa_free(e);
    e = make("^x", false);
    assert_int_equal(dfa_both(&both, d, e), 0);
    assert_int_equal(both->states, 0);
    dfa_free(both);
    dfa_free(e);
    dfa_free(d);
    uint64_t seed = 23;
    char pattern[2][512], text[16];
    for (int i = 0; i < 300; i++) {
        struct dfa *x[2];
        for (int j = 0; j < 2; j++) {
            random_pattern(pattern[j], &seed, TOP);
            x[j] = make(pattern[j], false);
            check_live(x[j]);
        }
        assert_int_equal(dfa_both(&both, x[0], x[1]), 0);
        check_live(both);
        for (int j = 0; j < 40; j++) {
            random_text(text, &seed);
            assert_int_equal(accepts(both, text),
                             accepts(x[0], text) && accepts(x[1], text));
        }
        dfa_free(both);
        dfa_free(x[0]);
        dfa_free(x[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_by_hand),
        cmocka_unit_test(what_is_not_supported_is_refused),
        cmocka_unit_test(random_patterns_as_the_c_library),
        cmocka_unit_test(strings_and_intersections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

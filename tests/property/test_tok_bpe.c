/* Goal    merges are those of the definition, everything comes back, a long
 *         text costs no more a byte than a short one, a long piece a logarithm.
 * Method  random vocabularies; the definition run literally, quadratic, on
 *         random pieces; random bytes there and back; the steps that a text
 *         costs against one of an eighth of its length.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/text/tok_bpe.h"
#include "model/text/tok_internal.h"
#include "tests/unit/tok_files.h"

enum { MORE = 400, TOKEN_MAX = 24, PIECE_MAX = 200 };

struct vocabulary {
    char        text[MORE][TOKEN_MAX + 1];
    const char *more[MORE];
    struct tok *tok;
};

static int index_of(const struct vocabulary *v, int count, const char *s,
                    size_t n)
{
    for (int i = 0; i < count; i++)
        if (strlen(v->more[i]) == n && !memcmp(v->more[i], s, n))
            return i;
    return -1;
}

/* Tokens are random strings or two tokens joined, in no helpful order: some can
 * be reached by merges and some cannot. */
static void make(struct vocabulary *v, uint64_t *seed, const char *letters)
{
    uint32_t kinds = (uint32_t)strlen(letters);
    for (int count = 0; count < MORE;) {
        char s[2 * TOKEN_MAX + 1] = "";
        size_t n = 0;
        if (count > 1 && tok_files_random(seed, 4)) {
            strcpy(s, v->more[tok_files_random(seed, (uint32_t)count)]);
            if (tok_files_random(seed, 2))
                strcat(s, v->more[tok_files_random(seed, (uint32_t)count)]);
            n = strlen(s);
        }
        while (n < 2 || !tok_files_random(seed, 3))
            if (n < TOKEN_MAX)
                s[n++] = letters[tok_files_random(seed, kinds)];
        s[n] = 0;
        if (n > TOKEN_MAX || index_of(v, count, s, n) >= 0)
            continue;
        strcpy(v->text[count], s);
        v->more[count] = v->text[count];
        count++;
    }
    v->tok = tok_files_open(v->more, MORE);
}

static int rank_of(const struct vocabulary *v, const char *s, size_t n)
{
    if (n == 1)
        return (unsigned char)*s;
    int i = index_of(v, MORE, s, n);
    return i < 0 ? -1 : 256 + i;
}

/* The definition: join the pair of lowest rank, leftmost first, till none. */
static size_t define(const struct vocabulary *v, const char *s, size_t n,
                     uint32_t *ids)
{
    size_t cut[PIECE_MAX + 1], count = n;
    if (rank_of(v, s, n) >= 0) {
        ids[0] = (uint32_t)rank_of(v, s, n);
        return 1;
    }
    for (size_t i = 0; i <= n; i++)
        cut[i] = i;
    for (;;) {
        int best = -1;
        size_t where = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(v, s + cut[i], cut[i + 2] - cut[i]);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                where = i;
            }
        }
        if (best < 0)
            break;
        memmove(cut + where + 1, cut + where + 2,
                (count - where - 1) * sizeof *cut);
        count--;
    }
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)rank_of(v, s + cut[i], cut[i + 1] - cut[i]);
    return count;
}

static void test_definition(void **state)
{
    (void)state;
    static const char *const letters[] = { "ab", "abc", "abcdefgh",
                                           "a\xe4\xb8\xad\xff" };
    uint64_t seed = 0x2545f4914f6cdd1du;
    for (size_t kind = 0; kind < sizeof letters / sizeof *letters; kind++) {
        static struct vocabulary v;
        make(&v, &seed, letters[kind]);
        struct tok_bpe bpe = { 0 };
        struct id_list got = { 0 };
        uint32_t kinds = (uint32_t)strlen(letters[kind]);
        for (int round = 0; round < 60; round++) {
            char s[PIECE_MAX];
            uint32_t want[PIECE_MAX];
            size_t n = 1 + tok_files_random(&seed, round % 2 ? 20 : PIECE_MAX);
            for (size_t i = 0; i < n; i++)
                s[i] = letters[kind][tok_files_random(&seed, kinds)];
            got.count = 0;
            assert_int_equal(tok_bpe_piece(v.tok, &bpe, s, n, &got), 0);
            size_t count = define(&v, s, n, want);
            if (got.count != count ||
                memcmp(got.ids, want, count * sizeof *want))
                fail_msg("%.*s in '%s'", (int)n, s, letters[kind]);
        }
        id_list_free(&got);
        tok_bpe_free(&bpe);
        tok_close(v.tok);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char telling[] = "ab \n\xe4\xb8\xad<|open|>"
                                  "[EOS]'s1\xff\xf0\x9f";
    static struct vocabulary v;
    uint64_t seed = 0x14057b7ef767814fu;
    make(&v, &seed, "ab \n\xe4\xb8\xad");
    for (int round = 0; round < 3000; round++) {
        char s[PIECE_MAX];
        struct id_list got = { 0 };
        size_t n = tok_files_random(&seed, PIECE_MAX), at = 0;
        for (size_t i = 0; i < n; i++)
            s[i] = round % 2 ? (char)tok_files_random(&seed, 256)
                             : telling[tok_files_random(&seed,
                                                        sizeof telling - 1)];
        assert_int_equal(tok_encode(v.tok, s, n, round % 3 == 0, &got), 0);
        for (size_t i = 0; i < got.count; i++) {
            const char *piece;
            size_t bytes = tok_piece(v.tok, got.ids[i], &piece);
            assert_in_range(bytes, 1, n - at);
            assert_memory_equal(piece, s + at, bytes);
            at += bytes;
        }
        assert_int_equal(at, n);
        id_list_free(&got);
    }
    tok_close(v.tok);
}

/* Steps for `bytes` bytes of a text that repeats `unit`. */
static uint64_t steps_for(const struct tok *t, const char *unit, size_t bytes,
                          bool structural)
{
    struct id_list got = { 0 };
    uint64_t steps = 0;
    size_t length = strlen(unit);
    char *text = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = unit[i % length];
    assert_int_equal(
        tok_encode_counting(t, text, bytes, structural, &got, &steps), 0);
    free(text);
    id_list_free(&got);
    return steps;
}

static void test_linear(void **state)
{
    (void)state;
    static const char *const units[] = {
        "a", "A", " ", "!", "\n", "1", "\t", "\xff", "'", "a'", "'s", " \n",
        "\xe3\x81\x82" "A",                            /* kana, capital */
        "\xe3\x81\x82" "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", /* and many */
        "\xcc\x81", "\xcc\x81" "A", "!\xcc\x81",       /* marks */
        "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "ab", "<", "<|open", "<|open|>",
        "<|reserved_token_", "                 \r", "the quick brown fox ",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaB",
    };
    static struct vocabulary v;
    uint64_t seed = 0x369dea0f31a53f85u;
    make(&v, &seed, "a ");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        bool structural = units[i][0] == '<';
        uint64_t little = steps_for(v.tok, units[i], 1 << 16, structural);
        uint64_t much = steps_for(v.tok, units[i], 1 << 19, structural);
        if (much > little * 8 + little / 10 || much > 60u << 19)
            fail_msg("'%s': %llu steps for 64 KB, %llu for 512 KB", units[i],
                     (unsigned long long)little, (unsigned long long)much);
    }
    tok_close(v.tok);
}

/* One piece, 64 times as long: 64 times the steps and the longer logarithm. */
static void test_long_piece(void **state)
{
    (void)state;
    enum { SHORT = 1 << 12, LONG = 1 << 18 };
    static struct vocabulary v;
    static char text[LONG];
    uint64_t seed = 0x53c5ca59b7e151a1u, steps[2];
    make(&v, &seed, "ab");
    for (int same = 0; same <= 1; same++) {
        for (size_t i = 0; i < LONG; i++)
            text[i] = same ? 'a' : "ab"[tok_files_random(&seed, 2)];
        for (int i = 0; i < 2; i++) {
            struct tok_bpe bpe = { 0 };
            struct id_list got = { 0 };
            tok_bpe_piece(v.tok, &bpe, text, i ? LONG : SHORT, &got);
            steps[i] = bpe.steps;
            tok_bpe_free(&bpe);
            id_list_free(&got);
        }
        if (steps[1] > steps[0] * (LONG / SHORT) * 18 / 12)
            fail_msg("%llu steps for 4 KB, %llu for 256 KB",
                     (unsigned long long)steps[0],
                     (unsigned long long)steps[1]);
    }
    tok_close(v.tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_long_piece),
    };
    return cmocka_run_group_tests_name("tok_bpe", tests, NULL, NULL);
}

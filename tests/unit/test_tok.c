/* Goal    merges, specials, cuts and refusals are right on paper.
 * Method  a vocabulary of the 256 bytes and a few tokens, small enough to
 *         encode by hand; files that are each wrong in one way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/text/tok.h"
#include "tests/unit/tok_files.h"

/* Ids from 256 on. abc is reached only through bc. */
static const char *const more[] = { "bc", "aa", "ab", "abc", "aaaa", "  ",
                                    "op", "\xe4\xb8\xad", "open" };
enum { BC = 256, AA, AB, ABC, AAAA, BLANKS, OP, HAN, UNREACHED, FIRST };
enum { MORE = sizeof more / sizeof *more };

static struct tok *tok;

static int setup(void **state)
{
    (void)state;
    tok = tok_files_open(more, MORE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

static void check(const char *text, bool structural, const uint32_t *want,
                  size_t count)
{
    struct id_list got = { 0 };
    assert_int_equal(
        tok_encode(tok, text, strlen(text), structural, &got), 0);
    assert_int_equal(got.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(got.ids[i], want[i]);
    id_list_free(&got);
}

#define CHECK(text, structural, ...)                                \
    do {                                                            \
        const uint32_t want[] = { __VA_ARGS__ };                    \
        check(text, structural, want, sizeof want / sizeof *want);  \
    } while (0)

static void test_merges(void **state)
{
    (void)state;
    check("", false, NULL, 0);
    CHECK("a", false, 'a');
    CHECK("abc", false, ABC);            /* the whole piece is a token */
    CHECK("abcc", false, ABC, 'c');      /* bc first, then a+bc */
    CHECK("aaa", false, AA, 'a');        /* leftmost of equals */
    CHECK("aaaaa", false, AAAA, 'a');
    CHECK("aab", false, AA, 'b');        /* aa before ab: lower rank */
    CHECK("xopenx", false, 'x', OP, 'e', 'n', 'x'); /* en is no token */
    CHECK("open", false, UNREACHED);     /* but as a whole piece it is */
    CHECK("\xe4\xb8\xad\xe4\xb8\xad", false, 0xe4, 0xb8, 0xad, 0xe4, 0xb8,
          0xad);
    CHECK("\xe4\xb8\xad", false, HAN);
    CHECK("a\xff\xe4\xb8z", false, 'a', 0xff, 0xe4, 0xb8, 'z');
    CHECK("aa\xff" "aa", false, AA, 0xff, AA);
}

static void test_appends(void **state)
{
    (void)state;
    struct id_list got = { 0 };
    assert_int_equal(tok_encode(tok, "aa", 2, false, &got), 0);
    assert_int_equal(tok_encode(tok, "a\0b", 3, false, &got), 0);
    assert_int_equal(got.count, 4);
    assert_int_equal(got.ids[0], AA);
    assert_int_equal(got.ids[2], 0);
    id_list_free(&got);
    assert_int_equal(got.count, 0);
}

static void test_specials(void **state)
{
    (void)state;
    const uint32_t open = FIRST + 3, sep = FIRST + 5, pad = FIRST + 255;
    char reserved[40];
    CHECK("<|open|>aa<|sep|>", true, open, AA, sep);
    CHECK("\"<|sep|>", true, '"', sep); /* inside a run of punctuation */
    CHECK("<<|sep|>>", true, '<', sep, '>');
    CHECK("a a<|sep|>", true, 'a', ' ', 'a', sep);
    CHECK("<|ope<|sep|", true, '<', '|', OP, 'e', '<', '|', 's', 'e', 'p', '|');
    CHECK("[PAD][PAD]", true, pad, pad);
    CHECK("<|sep|>", false, '<', '|', 's', 'e', 'p', '|', '>');
    snprintf(reserved, sizeof reserved, "<|reserved_token_%d|>", FIRST + 7);
    CHECK(reserved, true, FIRST + 7);
    assert_int_equal(tok_special(tok, reserved), FIRST + 7);
    assert_int_equal(tok_special(tok, "<|open|>"), open);
    assert_int_equal(tok_special(tok, "aa"), -1);
    assert_int_equal(tok_special(tok, ""), -1);
    assert_int_equal(tok_vocab(tok), FIRST + 256);
    for (uint32_t id = 0; id < FIRST + 300; id++)
        assert_int_equal(tok_is_stop(tok, id),
                         id == FIRST + 1 || id == FIRST + 2 || id == pad);
}

static void test_pieces(void **state)
{
    (void)state;
    const char *bytes;
    assert_int_equal(tok_piece(tok, 0, &bytes), 1);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(tok_piece(tok, ABC, &bytes), 3);
    assert_memory_equal(bytes, "abc", 3);
    assert_int_equal(tok_piece(tok, FIRST, &bytes), 5);
    assert_memory_equal(bytes, "[BOS]", 5);
    assert_int_equal(tok_piece(tok, FIRST + 255, &bytes), 5);
    assert_memory_equal(bytes, "[PAD]", 5);
    assert_int_equal(tok_piece(tok, FIRST + 256, &bytes), 0);
    assert_int_equal(tok_piece(tok, UINT32_MAX, &bytes), 0);
}

/* Longest special at the earliest place, from a config of our own. */
static void test_longest_special(void **state)
{
    (void)state;
    static const char config[] =
        "{\"added_tokens_decoder\":{\"256\":{\"content\":\"ab\"},"
        "\"257\":{\"content\":\"abcd\"},\"258\":{\"content\":\"bcd\"},"
        "\"259\":{\"content\":\"a\"},\"260\":{\"content\":\"\\u4e2d\"}},"
        "\"eos_token\":{\"content\":\"bcd\"}}";
    struct tok *own, *kept = tok;
    char *dir = tok_files_make(NULL, 0);
    tok_files_write(dir, "tokenizer_config.json", config, sizeof config - 1);
    assert_int_equal(tok_open(&own, dir, NULL), 0);
    tok_files_remove(dir);
    tok = own;
    CHECK("xabcdabcabbcda", true, 'x', 257, 256, 'c', 256, 258, 259);
    CHECK("abc", true, 256, 'c');
    CHECK("\xe4\xb8\xad" "a", true, 260, 259);
    assert_true(tok_is_stop(own, 258));
    assert_false(tok_is_stop(own, 257));
    tok = kept;
    tok_close(own);
}

static char *fill(char *at, char c, size_t count)
{
    memset(at, c, count);
    return at + count;
}

/* Long texts are cut before they are split: the odd one out of a run of pairs
 * tells where. */
static void test_cuts(void **state)
{
    (void)state;
    static char text[400100];
    struct id_list got = { 0 };

    char *end = fill(text, 'b', 1); /* b a*24999 | a a */
    end = fill(end, 'a', 25001);
    tok_encode(tok, text, (size_t)(end - text), false, &got);
    assert_int_equal(got.count, 1 + 6249 + 1 + 1 + 1);
    assert_int_equal(got.ids[6249], AAAA);
    assert_int_equal(got.ids[6250], AA);
    assert_int_equal(got.ids[6251], 'a');
    assert_int_equal(got.ids[6252], AA);

    got.count = 0; /* U+001C is blank for the cut but not for the split */
    end = fill(fill(text, 0x1c, 12499), ' ', 12502);
    tok_encode(tok, text, (size_t)(end - text), false, &got);
    assert_int_equal(got.count, 12499 + 6250 + 1 + 1);

    got.count = 0; /* slices of 400,000 characters */
    for (size_t i = 0; i < 400010; i++)
        text[i] = i % 10 == 9 ? '\n' : 'x';
    memcpy(text + 399998, "xaax", 4);
    tok_encode(tok, text, 400010, false, &got);
    assert_int_equal(got.count, 400010);
    memcpy(text + 399998, "aaxx", 4);
    got.count = 0;
    tok_encode(tok, text, 400010, false, &got);
    assert_int_equal(got.count, 400009);
    id_list_free(&got);
}

/* Replace the first `from` in a file's text by `to`; opening must fail. */
static void refused(bool config, const char *from, const char *to,
                    const char *sentence)
{
    struct tok *t = (struct tok *)&t;
    struct error error = { 0 };
    char *dir = tok_files_make(more, MORE);
    const char *name = config ? "tokenizer_config.json" : "tiktoken.model";
    char *text = config ? tok_files_config(FIRST) : tok_files_ranks(more, MORE);
    char *at = strstr(text, from);
    assert_non_null(at);
    size_t head = (size_t)(at - text), tail = strlen(at + strlen(from));
    char *bad = malloc(head + strlen(to) + tail + 1);
    memcpy(bad, text, head);
    strcpy(bad + head, to);
    strcat(bad, at + strlen(from));
    tok_files_write(dir, name, bad, strlen(bad));
    assert_int_equal(tok_open(&t, dir, &error), -EBADMSG);
    assert_null(t);
    if (!strstr(error.text, sentence) || !strstr(error.text, name))
        fail_msg("want '%s': %s", sentence, error.text);
    free(text);
    free(bad);
    tok_files_remove(dir);
}

static void test_refusals(void **state)
{
    (void)state;
    char *longest = malloc(2000001);
    memset(longest, 'A', 2000000);
    longest[2000000] = 0;
    refused(false, "AA== 0\n", "", "line 1: ranks do not ascend");
    refused(false, "AQ== 1\n", "AQ== 1\nAQ== 1\n", "line 3: ranks");
    refused(false, "AQ== 1\n", "AQ== 1\nAQ== 2\n", "line 3: the token appears");
    refused(false, "AQ==", "AR==", "line 2: the token is not base64");
    refused(false, "AQ==", "AQ=", "line 2: the token is not base64");
    refused(false, "AQ==", "A===", "line 2: the token is not base64");
    refused(false, "AQ==", "A=Q=", "line 2: the token is not base64");
    refused(false, "AQ==", "A\xffQ=", "line 2: the token is not base64");
    refused(false, "AQ== 1", " 1", "line 2: the token is not base64");
    refused(false, "AQ== 1", "AQ==", "line 2: no space");
    refused(false, "AQ== 1", "AQ== ", "line 2: the rank is not a number");
    refused(false, "AQ== 1", "AQ== 01", "line 2: the rank is not a number");
    refused(false, "AQ== 1", "AQ== -1", "line 2: the rank is not a number");
    refused(false, "AQ== 1", "AQ== 1 ", "line 2: the rank is not a number");
    refused(false, "AQ== 1", "AQ== 18446744073709551617", "line 2: the rank");
    refused(false, "AQ==", "AQID", "no token for the single byte 0x01");
    refused(false, "AQ==", longest, "line 2: token of more than 3072 bytes");
    refused(false, "AQ== 1", longest, "line 2: no space");

    refused(true, "}\n", "", "line");
    refused(true, "{", "[", "line");
    refused(true, "added_tokens_decoder", "added", "added_tokens_decoder");
    refused(true, "\"265\"", "\"264\"", "not in 265..520");
    refused(true, "\"265\"", "\"0265\"", "0265 is not an id");
    refused(true, "\"265\"", "\"-1\"", "-1 is not an id");
    refused(true, "\"265\"", "\"\"", " is not an id");
    refused(true, "\"265\"", "\"521\"", "521 is not in");
    refused(true, "\"265\"", "\"99999999999999999999\"", "is not an id");
    refused(true, "\"265\"", "\"266\"", "duplicate object key");
    refused(true, "[BOS]", "[EOS]", "are both [EOS]");
    refused(true, "[BOS]", "<|reserved_token_272|>", "are both <|reserved");
    refused(true, "[BOS]", "", "content is not a string");
    refused(true, "[BOS]", "\\u0000", "line");
    refused(true, "\"[BOS]\"", "5", "content is not a string");
    refused(true, "{\"content\":\"[BOS]\",\"special\":true}", "[]",
            "content is not a string");
    refused(true, "\"[EOS]\"}\n", "\"[NONE]\"}", "eos_token");
    refused(true, "[BOS]", longest, "content is not a string");
    free(longest);
}

static void test_accepted(void **state)
{
    (void)state;
    struct tok *t;
    struct error error = { 0 };
    char *dir = tok_files_make(NULL, 0), *ranks = tok_files_ranks(NULL, 0);
    char *crlf = malloc(2 * strlen(ranks) + 1), *to = crlf;
    for (const char *c = ranks; *c; c++) {
        if (*c == '\n')
            *to++ = '\r';
        *to++ = *c;
    }
    /* CRLF, and no end of the last line */
    tok_files_write(dir, "tiktoken.model", crlf, (size_t)(to - crlf) - 2);
    assert_int_equal(tok_open(&t, dir, &error), 0);
    assert_int_equal(tok_vocab(t), 512);
    tok_close(t);
    tok_files_remove(dir);
    free(ranks);
    free(crlf);
}

static void test_missing(void **state)
{
    (void)state;
    struct tok *t;
    struct error error = { 0 };
    char path[100], *dir = tok_files_make(NULL, 0);
    snprintf(path, sizeof path, "%s/tiktoken.model", dir);
    unlink(path);
    assert_int_equal(tok_open(&t, dir, &error), -ENOENT);
    assert_non_null(strstr(error.text, "tiktoken.model: No such file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    error.code = 0;
    assert_int_equal(tok_open(&t, dir, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "not a regular file"));
    tok_files_remove(dir);
    error.code = 0;
    assert_int_equal(tok_open(&t, "/nonexistent", &error), -ENOENT);
    assert_null(t);
    tok_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),   cmocka_unit_test(test_appends),
        cmocka_unit_test(test_specials), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_longest_special),
        cmocka_unit_test(test_cuts),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_accepted), cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests_name("tok", tests, setup, teardown);
}

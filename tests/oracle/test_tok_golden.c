/* Goal    the released vocabulary gives the ids of the reference tokenizer.
 * Method  the 629 texts of golden.tsv, and values that are published; left out
 *         where the vocabulary is absent (test_bpe.sh makes one of that size).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/text/tok.h"
#include "tests/skip.h"

#define VOCABULARY "../shared/data/kimi-k3"
#define GOLDEN     "../shared/data/tokenizer/golden.tsv"

static struct tok *tok;

static int open_real(void **state)
{
    (void)state;
    struct error error = { 0 };
    if (tok_open(&tok, VOCABULARY, &error))
        print_error("%s\n", error.text);
    return tok ? 0 : -1;
}

static int close_real(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

static size_t unhex(char *to, const char *hex, size_t digits)
{
    for (size_t i = 0; i < digits / 2; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        to[i] = (char)byte;
    }
    return digits / 2;
}

static void check_line(const char *line, size_t number)
{
    const char *tab = strchr(line, '\t');
    assert_non_null(tab);
    size_t digits = (size_t)(tab - line);
    char *text = malloc(digits / 2 + 1);
    size_t bytes = unhex(text, line, digits);
    struct id_list got = { 0 };
    assert_int_equal(tok_encode(tok, text, bytes, false, &got), 0);

    const char *want = tab + 1;
    size_t at = 0, count = 0;
    while (*want && *want != '\n') {
        char *end;
        unsigned long id = strtoul(want, &end, 10);
        if (count >= got.count || got.ids[count] != id)
            fail_msg("line %zu, id %zu: want %lu", number, count, id);
        const char *piece;
        size_t length = tok_piece(tok, got.ids[count], &piece);
        assert_true(length <= bytes - at);
        assert_memory_equal(piece, text + at, length);
        at += length;
        count++;
        want = *end == ',' ? end + 1 : end;
    }
    assert_int_equal(count, got.count);
    assert_int_equal(at, bytes);
    id_list_free(&got);
    free(text);
}

static void test_golden(void **state)
{
    (void)state;
    FILE *golden = fopen(GOLDEN, "r");
    assert_non_null(golden);
    char *line = NULL;
    size_t room = 0, number = 0;
    while (getline(&line, &room, golden) > 0)
        check_line(line, ++number);
    assert_int_equal(number, 629);
    free(line);
    fclose(golden);
}

static void test_known_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t    ids[5];
        size_t      count;
    } known[] = {
        { "The capital of France is", { 1008, 10484, 318, 15383, 387 }, 5 },
        { " Paris", { 17374 }, 1 }, { "hi", { 9663 }, 1 },
        { "message", { 2778 }, 1 }, { " role", { 6244 }, 1 },
        { "=\"", { 878 }, 1 },      { "system", { 14062 }, 1 },
        { "\"", { 1 }, 1 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct id_list got = { 0 };
        tok_encode(tok, known[i].text, strlen(known[i].text), false, &got);
        assert_int_equal(got.count, known[i].count);
        assert_memory_equal(got.ids, known[i].ids,
                            got.count * sizeof *got.ids);
        id_list_free(&got);
    }
}

static void test_specials(void **state)
{
    (void)state;
    static const struct {
        int         id;
        const char *text;
    } known[] = {
        { 163584, "[BOS]" },          { 163585, "[EOS]" },
        { 163586, "<|end_of_msg|>" }, { 163587, "<|open|>" },
        { 163588, "<|close|>" },      { 163589, "<|sep|>" },
        { 163592, "<|reserved_token_163592|>" },
        { 163649, "<osagent_mode>" }, { 163839, "[PAD]" },
    };
    assert_int_equal(tok_vocab(tok), 163840);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *text = known[i].text;
        assert_int_equal(tok_special(tok, text), known[i].id);
        struct id_list got = { 0 };
        tok_encode(tok, text, strlen(text), true, &got);
        assert_int_equal(got.count, 1);
        assert_int_equal(got.ids[0], known[i].id);
        got.count = 0;
        tok_encode(tok, text, strlen(text), false, &got);
        for (size_t k = 0; k < got.count; k++)
            assert_true(got.ids[k] < 163584);
        id_list_free(&got);
    }
    for (uint32_t id = 0; id < 163840 + 5; id++)
        assert_int_equal(tok_is_stop(tok, id),
                         id == 163585 || id == 163586 || id == 163839);
}

static void absent(void **state)
{
    (void)state;
    skip_because("%s is absent", VOCABULARY "/tiktoken.model");
}

int main(void)
{
    const struct CMUnitTest nothing[] = { cmocka_unit_test(absent) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_specials),
    };
    if (access(VOCABULARY "/tiktoken.model", R_OK))
        return cmocka_run_group_tests_name("tok_golden", nothing, NULL, NULL);
    return cmocka_run_group_tests_name("tok_golden", tests, open_real,
                                       close_real);
}

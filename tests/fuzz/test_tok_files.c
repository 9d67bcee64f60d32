/* Goal    no tiktoken.model and no tokenizer_config.json crashes the reader:
 *         it is refused with a sentence, or it works.
 * Method  mutations of good files: bytes changed, pieces removed, doubled and
 *         moved, lines and numbers exchanged. What is accepted must encode and
 *         give the same bytes back. The seed of a failure is printed.
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

#include "model/text/tok_internal.h"
#include "tests/fuzz/damage.h"
#include "tests/unit/tok_files.h"

enum { ROUNDS = 3000, ROOM = 1 << 16 };

static const char *const more[] = { "ab", "bc", "abc", "  ", "hello" };
enum { MORE = sizeof more / sizeof *more };

static struct tok_class *class;
static char             *dir, paths[2][100];

static int setup(void **state)
{
    (void)state;
    dir = tok_files_make(more, MORE);
    snprintf(paths[0], sizeof paths[0], "%s/tiktoken.model", dir);
    snprintf(paths[1], sizeof paths[1], "%s/tokenizer_config.json", dir);
    return tok_class_open(&class);
}

static int teardown(void **state)
{
    (void)state;
    tok_files_remove(dir);
    tok_class_close(class);
    return 0;
}

static size_t mutate(char *text, size_t bytes, uint64_t *seed)
{
    static const char *const words[] = {
        "\n", " ", "=", "==", "0", "-1", "4294967296", "99999999999999999999",
        "\"", "{", "}", "[", "]", ",", "\\u0000", "\\ud800", "\xff", "\r\n",
        "\"eos_token\":1,", "\"content\":\"\"", "null", "AAAA", "<|open|>",
        "261", "516", "260", "[EOS]",
    };
    for (uint32_t n = 1 + tok_files_random(seed, 3); n > 0 && bytes > 0; n--) {
        size_t at = tok_files_random(seed, (uint32_t)bytes);
        size_t from = tok_files_random(seed, (uint32_t)bytes);
        size_t length = 1 + tok_files_random(seed, 40);
        if (length > bytes - from)
            length = bytes - from;
        const char *word =
            words[tok_files_random(seed, sizeof words / sizeof *words)];
        char byte = (char)tok_files_random(seed, 256);
        switch (tok_files_random(seed, 6)) {
        case 0:
            text[at] = byte;
            break;
        case 1:
            bytes = damage_splice(text, bytes, ROOM, at, length, "", 0);
            break;
        case 2:
            bytes = damage_splice(text, bytes, ROOM, at, 0, text + from,
                                  length);
            break;
        case 3:
            bytes = damage_splice(text, bytes, ROOM, at, length, text + from,
                                  length);
            break;
        case 4:
            bytes = damage_splice(text, bytes, ROOM, at,
                                  tok_files_random(seed, 4), word,
                                  strlen(word));
            break;
        default:
            bytes = tok_files_random(seed, 20) ? bytes : at;
        }
    }
    return bytes;
}

/* Every byte and every special there and back. */
static void use(struct tok *t)
{
    char text[256 + TOK_SPECIALS * 40];
    size_t bytes = 0, at = 0;
    struct id_list got = { 0 };
    const char *piece;
    while (bytes < 256) {
        text[bytes] = (char)bytes;
        bytes++;
    }
    for (uint32_t id = t->ranks; id < tok_vocab(t); id++) {
        size_t n = tok_piece(t, id, &piece);
        assert_true(n > 0);
        assert_int_equal(tok_special(t, piece), id);
        if (n > sizeof text - bytes)
            continue;
        memcpy(text + bytes, piece, n);
        bytes += n;
    }
    assert_int_equal(tok_encode(t, text, bytes, true, &got), 0);
    for (size_t i = 0; i < got.count; i++) {
        size_t n = tok_piece(t, got.ids[i], &piece);
        assert_in_range(n, 1, bytes - at);
        assert_memory_equal(piece, text + at, n);
        at += n;
    }
    assert_int_equal(at, bytes);
    id_list_free(&got);
}

static void fuzz(int which)
{
    static char good[2][ROOM], bad[ROOM];
    size_t size[2];
    char *ranks = tok_files_ranks(more, MORE);
    char *config = tok_files_config(256 + MORE);
    size[0] = (size_t)(stpcpy(good[0], ranks) - good[0]);
    size[1] = (size_t)(stpcpy(good[1], config) - good[1]);
    free(ranks);
    free(config);
    tok_files_write(dir, "tiktoken.model", good[0], size[0]);
    tok_files_write(dir, "tokenizer_config.json", good[1], size[1]);

    uint64_t seed = 0x5851f42d4c957f2du + (uint64_t)which;
    int accepted = 0, refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct error error = { 0 };
        struct tok *t = calloc(1, sizeof *t);
        memcpy(bad, good[which], size[which]);
        size_t bytes = mutate(bad, size[which], &seed);
        tok_files_write(dir, strrchr(paths[which], '/') + 1, bad, bytes);
        t->class = class;
        int err = tok_ranks_load(t, paths[0], &error);
        if (!err)
            err = tok_special_load(t, paths[1], &error);
        if (!err)
            use(t);
        else if (err != -EBADMSG || error.code != err || !error.text[0])
            fail_msg("round %d: %d '%s'", round, err, error.text);
        accepted += !err;
        refused += !!err;
        t->class = NULL;
        tok_close(t);
    }
    /* Mutations that always fail, or never, would try nothing. */
    assert_in_range(accepted, ROUNDS / 100, ROUNDS);
    assert_in_range(refused, ROUNDS / 10, ROUNDS);
}

static void test_ranks(void **state)
{
    (void)state;
    fuzz(0);
}

static void test_config(void **state)
{
    (void)state;
    fuzz(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests_name("tok_files", tests, setup, teardown);
}

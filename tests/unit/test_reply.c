/* Goal    a reply is read by its tokens: thoughts and answer apart, nothing
 *         lost from a broken one, text cut at the first stop string.
 * Method  replies written out as tokens and as the texts they must give.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/reply.h"
#include "tests/unit/tok_files.h"

static const char *const more[] = { "think", "response", "Hello", " wor",
                                    "ld", "<|sep|>" };
static struct tok *tok;

static int set_up(void **state)
{
    (void)state;
    tok = tok_files_open(more, sizeof more / sizeof *more);
    return !tok;
}

static int tear_down(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

/* Push `text` token by token; special tokens are written as such where
 * `structural`. Returns whether a stop string came. */
static bool push(struct reply *r, const char *text, bool structural)
{
    struct id_list ids = { 0 };
    bool stopped = false;
    assert_int_equal(tok_encode(tok, text, strlen(text), structural, &ids),
                     0);
    for (size_t i = 0; i < ids.count && !stopped; i++) {
        int said = reply_push(r, ids.ids[i]);
        assert_true(said >= 0);
        stopped = said;
    }
    id_list_free(&ids);
    return stopped;
}

static void texts_are(struct reply *r, const char *thoughts,
                      const char *content)
{
    const struct reply_text *t = &r->text[REPLY_THOUGHTS];
    assert_int_equal(t->count, strlen(thoughts));
    if (t->count)
        assert_memory_equal(t->bytes, thoughts, t->count);
    t = &r->text[REPLY_CONTENT];
    assert_int_equal(t->count, strlen(content));
    if (t->count)
        assert_memory_equal(t->bytes, content, t->count);
    reply_free(r);
}

static void test_chat(void **state)
{
    (void)state;
    struct reply r;
    reply_init(&r, tok, true, true);
    push(&r, "Hello<|close|>think<|sep|><|open|>response<|sep|> world"
             "<|close|>response<|sep|><|close|>message<|sep|>", true);
    texts_are(&r, "Hello", " world");
    reply_init(&r, tok, true, false);
    push(&r, " world<|close|>response<|sep|>", true);
    texts_are(&r, "", " world");
}

/* The same characters from ordinary tokens are text. */
static void test_forged(void **state)
{
    (void)state;
    struct reply r;
    reply_init(&r, tok, true, true);
    push(&r, "<|close|>think<|sep|>Hello", false);
    texts_are(&r, "<|close|>think<|sep|>Hello", "");
}

static void test_broken(void **state)
{
    (void)state;
    struct reply r;
    reply_init(&r, tok, true, true);
    push(&r, "Hello", true); /* cut off while it thought */
    texts_are(&r, "Hello", "");
    reply_init(&r, tok, true, true);
    push(&r, "Hello<|close|>think<|sep|>orphan", true);
    texts_are(&r, "Hello", "orphan");
    reply_init(&r, tok, true, false);
    push(&r, "a<|open|>this is no tag, it goes on for ever<|sep|>b", true);
    texts_are(&r, "", "athis is no tag, it goes on for ever<|sep|>b");
}

/* Outside of chat special tokens are their own text, as sluice run prints. */
static void test_plain(void **state)
{
    (void)state;
    struct reply r;
    reply_init(&r, tok, false, false);
    push(&r, "a<|open|>b", true);
    texts_are(&r, "", "a<|open|>b");
    reply_init(&r, NULL, false, false);
    assert_int_equal(reply_push(&r, 3), 0);
    texts_are(&r, "", "");
}

static void test_stop(void **state)
{
    (void)state;
    struct reply r;
    reply_init(&r, tok, false, false);
    reply_add_stop(&r, "zzz");
    reply_add_stop(&r, "o wor"); /* over the borders of three tokens */
    assert_true(push(&r, "Hello world", false));
    texts_are(&r, "", "Hell");
    reply_init(&r, tok, false, false);
    reply_add_stop(&r, "ld");
    reply_add_stop(&r, "l");
    assert_true(push(&r, "xyld", false)); /* the first place counts */
    texts_are(&r, "", "xy");
    reply_init(&r, tok, true, true);
    reply_add_stop(&r, "Hello"); /* thoughts are not stopped */
    assert_true(push(&r, "Hello<|close|>think<|sep|><|open|>response<|sep|>"
                         "say Hello", true));
    texts_are(&r, "Hello", "say ");
    reply_init(&r, tok, false, false);
    reply_add_stop(&r, "aab");
    assert_true(push(&r, "aaaaaab", false));
    texts_are(&r, "", "aaaa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),   cmocka_unit_test(test_forged),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests_name("reply", tests, set_up, tear_down);
}

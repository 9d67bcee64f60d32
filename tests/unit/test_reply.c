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

#include "model/chat/reply.h"
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

static void begin(struct reply *r, const struct tok *t, bool chat,
                  bool in_answer)
{
    const struct reply_options o = { .chat = chat, .in_answer = in_answer };
    reply_init(r, t, &o);
}

static void stop_at(struct reply *r, const char *text)
{
    assert_int_equal(reply_add_stop(r, text, strlen(text)), 0);
}

static void is(const struct buffer *b, const char *text)
{
    assert_int_equal(b->count, strlen(text));
    if (b->count)
        assert_memory_equal(b->bytes, text, b->count);
}

static void texts_are(struct reply *r, const char *thoughts,
                      const char *content)
{
    assert_true(reply_end(r, true) >= 0);
    is(&r->thoughts, thoughts);
    is(&r->content, content);
    reply_free(r);
}

static void test_chat(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, true, false);
    push(&r, "Hello<|close|>think<|sep|><|open|>response<|sep|> world"
             "<|close|>response<|sep|><|close|>message<|sep|>", true);
    texts_are(&r, "Hello", " world");
    begin(&r, tok, true, true);
    push(&r, " world<|close|>response<|sep|>", true);
    texts_are(&r, "", " world");
}

/* The same characters from ordinary tokens are text. */
static void test_forged(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, true, false);
    push(&r, "<|close|>think<|sep|>Hello", false);
    texts_are(&r, "<|close|>think<|sep|>Hello", "");
}

static void test_broken(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, true, false);
    push(&r, "Hello", true); /* cut off while it thought */
    texts_are(&r, "Hello", "");
    begin(&r, tok, true, false);
    push(&r, "Hello<|close|>think<|sep|>orphan", true);
    texts_are(&r, "Hello", "orphan");
    begin(&r, tok, true, true);
    push(&r, "a<|open|>this is no tag, it goes on for ever<|sep|>b", true);
    texts_are(&r, "", "athis is no tag, it goes on for everb");
}

/* Outside of chat special tokens are their own text, as sluice run prints. */
static void test_plain(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, false, true);
    push(&r, "a<|open|>b", true);
    texts_are(&r, "", "a<|open|>b");
    begin(&r, NULL, false, true);
    assert_int_equal(reply_push(&r, 3), 0);
    texts_are(&r, "", "");
}

static void test_stop(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, false, true);
    stop_at(&r, "zzz");
    stop_at(&r, "o wor"); /* over the borders of three tokens */
    assert_true(push(&r, "Hello world", false));
    texts_are(&r, "", "Hell");
    begin(&r, tok, false, true);
    stop_at(&r, "ld");
    stop_at(&r, "l");
    assert_true(push(&r, "xyld", false)); /* the first place counts */
    texts_are(&r, "", "xy");
    begin(&r, tok, true, false);
    stop_at(&r, "Hello"); /* thoughts are not stopped */
    assert_true(push(&r, "Hello<|close|>think<|sep|><|open|>response<|sep|>"
                         "say Hello", true));
    texts_are(&r, "Hello", "say ");
    begin(&r, tok, false, true);
    stop_at(&r, "aab");
    assert_true(push(&r, "aaaaaab", false));
    texts_are(&r, "", "aaaa");
}

/* A reply that begins again is as new, with its stop strings. */
static void test_restart(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, false, true);
    stop_at(&r, "o wor");
    push(&r, "Hello", false);
    reply_restart(&r);
    assert_false(push(&r, " wor", false)); /* the o is forgotten */
    assert_true(push(&r, "Hello world", false));
    texts_are(&r, "", " worHell");
}

/* An end id that only the caller saw: a whole call counts, a cut one does not;
 * the answer in the think channel is the answer. */
static void test_end(void **state)
{
    (void)state;
    struct reply r;
    const struct reply_options o = { .chat = true, .calls = true };
    for (int cut = 0; cut <= 1; cut++) {
        reply_init(&r, tok, &o);
        push(&r, "<|open|>call tool=f<|sep|>", true);
        assert_true(reply_end(&r, cut) >= 0);
        assert_int_equal(r.calls, !cut);
        assert_int_equal(r.reason, cut ? REPLY_LENGTH : REPLY_CALLS);
        reply_free(&r);
        reply_init(&r, tok, &o);
        push(&r, "Hello", true);
        assert_true(reply_end(&r, cut) >= 0);
        assert_int_equal(r.moved, !cut);
        reply_free(&r);
    }
}

/* Blanks between channels are content only if text follows them at once. */
static void test_blanks(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, true, false);
    push(&r, "Hello<|close|>think<|sep|>\n \n<|close|>tools<|sep|>a", true);
    texts_are(&r, "Hello", "a");
    begin(&r, tok, true, false);
    push(&r, "Hello<|close|>think<|sep|>\n \na", true);
    push(&r, "<|close|>response<|sep|>b", true);
    texts_are(&r, "Hello", "\n \nab");
}

/* Half a character of a call that is dropped is not the next call's. */
static void test_dropped_call(void **state)
{
    (void)state;
    struct reply r;
    const struct reply_options o = { .chat = true, .calls = true };
    reply_init(&r, tok, &o);
    push(&r, "<|open|>call tool=f<|sep|><|open|>argument key=a<|sep|>\xe4",
         true);
    push(&r, "<|open|>call tool=g<|sep|><|open|>argument key=b<|sep|>x"
             "<|close|>call<|sep|>", true);
    assert_int_equal(r.calls, 1);
    is(&r.call[0].name, "g");
    is(&r.call[0].arguments, "{\"b\":\"x\"}");
    reply_free(&r);
}

/* 4 KB without a separator are no tag. */
static void test_long_head(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, tok, true, true);
    push(&r, "<|open|>", true);
    for (int i = 0; i <= REPLY_HEAD_MAX; i++)
        reply_push(&r, 'x');
    assert_int_equal(r.content.count, REPLY_HEAD_MAX + 1);
    push(&r, "<|sep|>Hello", true);
    assert_int_equal(r.content.count, REPLY_HEAD_MAX + 6);
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),   cmocka_unit_test(test_forged),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_stop),  cmocka_unit_test(test_restart),
        cmocka_unit_test(test_end),   cmocka_unit_test(test_long_head),
        cmocka_unit_test(test_blanks),
        cmocka_unit_test(test_dropped_call),
    };
    return cmocka_run_group_tests_name("reply", tests, set_up, tear_down);
}

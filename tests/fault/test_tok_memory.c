/* Goal    no lack of memory crashes the tokenizer, leaves half a result or is
 *         taken for success.
 * Method  this program's own malloc, calloc and realloc fail at the n-th call,
 *         once and from there on, for every n until a call succeeds untouched.
 *         Skipped under sanitizers, which bring their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/answer.h"
#include "model/chat/chat.h"
#include "model/text/tok_internal.h"
#include "tests/skip.h"
#include "tests/unit/own_malloc.h"
#include "tests/unit/tok_files.h"

static long calls_left = -1; /* -1: never fails */
static bool persistent, fired;

#if OWN_MALLOC
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static bool refuse(void)
{
    if (calls_left < 0)
        return false;
    if (calls_left > 0) {
        calls_left--;
        return false;
    }
    if (!persistent)
        calls_left = -1;
    errno = ENOMEM;
    fired = true;
    return true;
}

void *malloc(size_t bytes)
{
    return refuse() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return refuse() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return refuse() ? NULL : __libc_realloc(old, bytes);
}
#endif

static void arm(long at, int for_ever)
{
    calls_left = at;
    persistent = for_ever != 0;
    fired = false;
}

static void disarm(void)
{
    calls_left = -1;
}

static const char *const more[] = { "ab", "bc", "abc" };

static void test_class(void **state)
{
    (void)state;
    if (!OWN_MALLOC)
        skip_because("a sanitizer has a malloc of its own");
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        fired = true;
        for (long at = 0; fired; at++) {
            struct tok_class *class = (struct tok_class *)&class;
            arm(at, for_ever);
            int err = tok_class_open(&class);
            disarm();
            /* A refused compiler only makes PCRE2 slower. */
            assert_true(err ? fired && !class : class != NULL);
            if (!err)
                assert_true(tok_class_of(class, 0x4e2d) & TOK_HAN);
            tok_class_close(class);
        }
    }
}

/* Both files, without the class tables, which take their time. */
static void test_files(void **state)
{
    (void)state;
    if (!OWN_MALLOC)
        skip_because("a sanitizer has a malloc of its own");
    char *dir = tok_files_make(more, 3), ranks[100], config[100];
    snprintf(ranks, sizeof ranks, "%s/tiktoken.model", dir);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", dir);
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        fired = true;
        for (long at = 0; fired; at++) {
            struct tok *t = calloc(1, sizeof *t);
            struct error error = { 0 };
            arm(at, for_ever);
            int err = tok_ranks_load(t, ranks, &error);
            if (!err)
                err = tok_special_load(t, config, &error);
            disarm();
            assert_true(err ? fired && error.code == err && error.text[0]
                            : tok_vocab(t) == 259 + 256);
            tok_close(t);
        }
    }
    tok_files_remove(dir);
}

static void test_open(void **state)
{
    (void)state;
    if (!OWN_MALLOC)
        skip_because("a sanitizer has a malloc of its own");
    char *dir = tok_files_make(more, 3);
    for (long at = 0; at < 4; at++) {
        struct tok *t = (struct tok *)&t;
        struct error error = { 0 };
        arm(at, true);
        int err = tok_open(&t, dir, &error);
        disarm();
        assert_int_equal(err, -ENOMEM);
        assert_null(t);
        assert_true(error.code == err && error.text[0]);
    }
    tok_files_remove(dir);
}

/* Run `render` with each allocation failing; ids before it must stay. */
static void each_failure(const struct tok *t,
                         int (*render)(const struct tok *, struct id_list *))
{
    for (int for_ever = 0; for_ever <= 1; for_ever++)
        for (long at = 0;; at++) {
            struct id_list got = { 0 };
            for (uint32_t i = 0; i < 60; i++) /* 4 more fit */
                id_list_push(&got, i);
            arm(at, for_ever);
            int err = render(t, &got);
            disarm();
            if (fired) {
                assert_int_equal(err, -ENOMEM);
                assert_int_equal(got.count, 60);
                assert_int_equal(got.ids[59], 59);
            }
            id_list_free(&got);
            if (!fired) {
                assert_int_equal(err, 0);
                assert_true(at > 1);
                break;
            }
        }
}

static int encode(const struct tok *t, struct id_list *out)
{
    static char text[3000];
    memset(text, 'b', sizeof text);
    return tok_encode(t, text, sizeof text, false, out);
}

/* All that can need memory: tools, arguments as text and as an object, results
 * to be sorted, a schema, a name to be escaped. */
static int chat(const struct tok *t, struct id_list *out)
{
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"name\":\"a&b\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\":1}\"}},"
        "{\"id\":\"2\",\"function\":{\"name\":\"g\","
        "\"arguments\":{\"k\":[{\"b\":1,\"a\":2.5}]}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"2\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
        "{\"name\":\"n\",\"schema\":{\"b\":1,\"a\":2}}}}";
    struct jv_doc d;
    struct chat c;
    struct refusal r;
    int err = jv_parse(&d, body, sizeof body - 1, JV_STRICT, NULL);
    if (err)
        return err;
    err = chat_read(&c, d.root, &r);
    if (!err)
        err = chat_encode(&c, t, out, NULL);
    jv_free(&d);
    return err;
}

/* Thoughts, content with stop strings, calls with values of both kinds; and the
 * body of the response. */
static int reply(const struct tok *t, struct id_list *out)
{
    static const char text[] =
        "so\xe4<|close|>think<|sep|>\n<|open|>response<|sep|>a stop st"
        "<|open|>call tool=\"f&amp;\"<|sep|><|open|>argument key=\"k\""
        "<|sep|>v\n<|close|>argument<|sep|><|open|>argument key=n type=number"
        "<|sep|>[1,  2]<|close|>argument<|sep|><|close|>call<|sep|>"
        "<|open|>call tool=g<|sep|><|open|>json<|sep|>{<|close|>json<|sep|>"
        "<|close|>call<|sep|><|close|>message<|sep|>";
    const struct reply_options o = { .chat = true, .calls = true };
    struct id_list ids = { 0 };
    struct buffer body = { 0 };
    struct reply r;
    reply_init(&r, t, &o);
    int err = tok_encode(t, text, sizeof text - 1, true, &ids);
    if (!err)
        err = reply_add_stop(&r, "stop!", 5);
    for (size_t i = 0; i < ids.count && err >= 0 && !r.done; i++)
        err = reply_push(&r, ids.ids[i]);
    if (err > 0) {
        const struct answer_choice choice = { .reply = &r };
        const struct answer a = { .is_chat = true, .number = "1",
                                  .model = "m", .choice = &choice,
                                  .choices = 1 };
        assert_int_equal(r.calls, 2);
        assert_string_equal(r.call[0].arguments.bytes,
                            "{\"k\":\"v\\n\",\"n\":[1,  2]}");
        answer_body(&body, &a);
        err = body.failed ? -ENOMEM : 0;
    }
    (void)out;
    buffer_free(&body);
    reply_free(&r);
    id_list_free(&ids);
    return err;
}

static void test_encode(void **state)
{
    (void)state;
    if (!OWN_MALLOC)
        skip_because("a sanitizer has a malloc of its own");
    struct tok *t = tok_files_open(more, 3);
    each_failure(t, encode);
    each_failure(t, chat);
    each_failure(t, reply);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_encode),
    };
    return cmocka_run_group_tests_name("tok_memory", tests, NULL, NULL);
}

/* Goal    a conversation goes on from a saved sequence: what the next request
 *         is encoded to begins with exactly what the saved one was encoded to,
 *         opening of the reply included, and then the reply follows.
 * Method  the official conversations: each is cut before each of its assistant
 *         messages. The segments of the part must be the first segments of the
 *         whole; each segment is encoded by itself, so the ids are as well.
 *         Where the part ends by a note that the whole has elsewhere, or opens
 *         another channel, all of its messages are still the first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/chat.h"
#include "model/json/buffer.h"

#define GOLDEN "tests/data/chat/encode.jsonl"

/* Segments, one behind the other; where the last message ended. */
struct text {
    struct buffer b;
    size_t messages;
    bool   notes; /* a note stands behind the messages */
};

static int put(void *context, int control, const char *text, size_t bytes)
{
    struct text *t = context;
    char head[32];
    int n = snprintf(head, sizeof head, "\n%d %zu ", control, bytes);
    buffer_put(&t->b, head, (size_t)n);
    buffer_put(&t->b, text ? text : "", bytes);
    if (control == CHAT_END)
        t->messages = t->b.count;
    return t->b.failed ? -1 : 0;
}

static bool render(struct text *t, const char *json, size_t bytes)
{
    struct jv_doc d;
    struct chat c;
    struct refusal r = { 0 };
    assert_int_equal(jv_parse(&d, json, bytes, JV_STRICT, NULL), 0);
    bool good = !chat_read(&c, d.root, &r) && !chat_segments(&c, put, t);
    t->notes = good && (c.choice != CHAT_AUTO || c.format != CHAT_TEXT);
    jv_free(&d);
    return good;
}

/* The request with its first `keep` messages. */
static void cut(struct buffer *out, const struct jv *request, uint32_t keep)
{
    char before = '{';
    for (const struct jv *k = jv_first(request); k; k = jv_next(request, k)) {
        const struct jv *v = k + 1;
        buffer_put(out, &before, 1);
        buffer_put(out, k->raw, k->raw_bytes);
        buffer_text(out, ":");
        before = ',';
        if (!jv_is(k, "messages")) {
            buffer_put(out, v->raw, v->raw_bytes);
            continue;
        }
        uint32_t n = 0;
        for (const struct jv *m = jv_first(v); m && n < keep;
             m = jv_next(v, m)) {
            buffer_text(out, n++ ? "," : "[");
            buffer_put(out, m->raw, m->raw_bytes);
        }
        buffer_text(out, "]");
    }
    buffer_text(out, "}");
    assert_false(out->failed);
}

struct seen {
    unsigned whole, messages, none;
};

static void check(const struct jv *request, struct seen *seen)
{
    const struct jv *messages = jv_get(request, "messages");
    uint32_t i = 0;
    for (const struct jv *m = jv_first(messages); m;
         m = jv_next(messages, m), i++) {
        struct text part = { 0 }, all = { 0 };
        struct buffer json = { 0 };
        bool partial = jv_is_type(jv_get(m, "partial"), JV_TRUE);
        if (!i || partial || !jv_is(jv_get(m, "role"), "assistant"))
            continue;
        cut(&json, request, i);
        if (render(&all, request->raw, request->raw_bytes) &&
            render(&part, json.bytes, json.count)) {
            size_t n = part.b.count, least = part.messages;
            bool same = all.b.count > n &&
                        !memcmp(all.b.bytes, part.b.bytes, n);
            bool most = all.b.count > least &&
                        !memcmp(all.b.bytes, part.b.bytes, least);
            seen->whole += same;
            seen->messages += !same && most;
            seen->none += !same && !most && !part.notes;
            if (!same && !most && !part.notes)
                print_error("%.*s\n", (int)json.count, json.bytes);
        }
        buffer_free(&json);
        buffer_free(&part.b);
        buffer_free(&all.b);
    }
}

static void test_turns(void **state)
{
    (void)state;
    FILE *f = fopen(GOLDEN, "re");
    struct seen seen = { 0 };
    char *line = NULL;
    size_t room = 0;
    ssize_t got;
    assert_non_null(f);
    while ((got = getline(&line, &room, f)) > 0) {
        struct jv_doc d;
        assert_int_equal(jv_parse(&d, line, (size_t)got, JV_STRICT, NULL), 0);
        if (!jv_get(d.root, "error"))
            check(jv_get(d.root, "request"), &seen);
        jv_free(&d);
    }
    free(line);
    fclose(f);
    print_message("# %u turns go on behind the opening, %u behind the last "
                  "message, %u do not\n", seen.whole, seen.messages, seen.none);
    assert_int_equal(seen.none, 0);
    assert_true(seen.whole >= 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_turns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Goal    replies, whole and broken, are read as chat clients need them, and
 *         streamed as early as they may be.
 * Method  125 replies as marked text with their message; with the released
 *         vocabulary, where it is, as ids, with the number of
 *         ids read and every delta. Without it each byte is a token.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/chat/reply.h"
#include "model/json/jv.h"
#include "tests/unit/tok_files.h"

#define GOLDEN     "tests/data/chat/reply.jsonl"
#define VOCABULARY "../shared/data/kimi-k3"
#define OPEN_MARK  "\xc2\xab" /* the guillemets around a mark */
#define CLOSE_MARK "\xc2\xbb"

static bool is_true(const struct jv *row, const char *key)
{
    return jv_is_type(jv_get(row, key), JV_TRUE);
}

static void begin(struct reply *r, const struct tok *t, const struct jv *row)
{
    const struct jv *first = jv_get(row, "first"), *stop = jv_get(row, "stop");
    struct reply_options o = {
        .chat = true,
        .in_answer = first ? jv_is(first, "response")
                           : !is_true(row, "thinking"),
        .calls = is_true(row, "calls"),
        .one_call = is_true(row, "one"),
    };
    reply_init(r, t, &o);
    for (const struct jv *s = jv_first(stop); s; s = jv_next(stop, s))
        assert_int_equal(reply_add_stop(r, s->text, s->bytes), 0);
}

static void same(const struct buffer *got, const struct jv *want)
{
    if (got->count != want->bytes ||
        (want->bytes && memcmp(got->bytes, want->text, want->bytes)))
        fail_msg("%.*s is not %s", (int)got->count,
                 got->bytes ? got->bytes : "", want->text);
}

static void check_message(const struct reply *r, const struct jv *row)
{
    static const struct jv empty = { .type = JV_STRING, .text = "" };
    const struct jv *content = jv_get(row, "content"), *call;
    const struct jv *calls = jv_get(row, "tool_calls");
    same(&r->thoughts, jv_get(row, "reasoning_content"));
    same(&r->content, content ? content : &empty);
    assert_int_equal(r->calls, calls->bytes);
    assert_int_equal(!content, r->calls && !r->content.count);
    call = jv_first(calls);
    for (uint32_t i = 0; i < r->calls; i++, call = jv_next(calls, call)) {
        same(&r->call[i].name, jv_get(call, "name"));
        same(&r->call[i].arguments, jv_get(call, "arguments"));
    }
    assert_true(jv_is(jv_get(row, "finish_reason"),
                      reply_reason_name(r->reason)));
    assert_int_equal(r->moved, is_true(row, "moved"));
}

/* The events of the last push are the next deltas. Returns what follows. */
static const struct jv *check_events(const struct reply *r, int64_t used,
                                     const struct jv *deltas,
                                     const struct jv *next)
{
    static const char *const kinds[] = { [REPLY_THOUGHT_TEXT] = "think",
                                         [REPLY_CONTENT_TEXT] = "text",
                                         [REPLY_CALL_BEGINS] = "call",
                                         [REPLY_CALL_ARGUMENTS] = "args" };
    for (uint32_t i = 0; i < r->events; i++) {
        const struct reply_event *e = &r->event[i];
        const struct jv *part = jv_first(next);
        int64_t number;
        struct buffer text = { r->event_text.bytes + e->begin, e->bytes, 0,
                               false };
        assert_non_null(next);
        assert_true(jv_integer(part, &number));
        assert_int_equal(number, used);
        part = jv_next(next, part);
        assert_true(jv_is(part, kinds[e->kind]));
        part = jv_next(next, part);
        if (e->kind >= REPLY_CALL_BEGINS) {
            assert_true(jv_integer(part, &number));
            assert_int_equal(number, e->call);
            part = jv_next(next, part);
        }
        same(&text, part);
        next = jv_next(deltas, next);
    }
    return next;
}

static void check_ids(const struct jv *row, const struct tok *t)
{
    struct reply r;
    const struct jv *ids = jv_get(row, "ids"), *deltas = jv_get(row, "deltas");
    const struct jv *next = jv_first(deltas);
    int64_t id, used;
    begin(&r, t, row);
    for (const struct jv *v = jv_first(ids); v; v = jv_next(ids, v)) {
        assert_true(jv_integer(v, &id));
        assert_true(reply_push(&r, (uint32_t)id) >= 0);
        next = check_events(&r, r.used, deltas, next);
    }
    assert_true(reply_end(&r, true) >= 0);
    next = check_events(&r, r.used, deltas, next);
    assert_null(next);
    assert_true(jv_integer(jv_get(row, "used"), &used));
    assert_int_equal(r.used, used);
    check_message(&r, row);
    reply_free(&r);
}

/* The byte that an ordinary id below 256 of the released vocabulary is. */
static uint32_t byte_of(uint32_t id)
{
    return id < 94    ? id + 33
           : id < 106 ? id - 94 + 161
           : id < 188 ? id - 106 + 174
           : id < 221 ? id - 188
           : id < 255 ? id - 221 + 127
                      : 173;
}

static uint32_t id_of_mark(const struct tok *t, const char *mark, size_t n)
{
    static const char *const names[][2] = {
        { "open", "<|open|>" },      { "close", "<|close|>" },
        { "sep", "<|sep|>" },        { "end", "<|end_of_msg|>" },
        { "eos", "[EOS]" },          { "pad", "[PAD]" },
        { "bos", "[BOS]" },          { "media_pad", "<|media_pad|>" },
    };
    if (*mark >= '0' && *mark <= '9')
        return byte_of((uint32_t)atoi(mark));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == n && !memcmp(mark, names[i][0], n))
            return (uint32_t)tok_special(t, names[i][1]);
    return tok_vocab(t) - 2; /* reserved */
}

static void check_text(const struct jv *row, const struct tok *t)
{
    struct reply r;
    const char *at = jv_get(row, "text")->text;
    begin(&r, t, row);
    while (*at) {
        uint32_t id = (unsigned char)*at++;
        const char *end = strncmp(at - 1, OPEN_MARK, 2)
                              ? NULL
                              : strstr(at, CLOSE_MARK);
        if (end) {
            id = id_of_mark(t, at + 1, (size_t)(end - at - 1));
            at = end + 2;
        }
        assert_true(reply_push(&r, id) >= 0);
    }
    assert_true(reply_end(&r, true) >= 0);
    check_message(&r, row);
    reply_free(&r);
}

static void each_row(const struct tok *t,
                     void (*check)(const struct jv *row, const struct tok *t))
{
    FILE *f = fopen(GOLDEN, "re");
    char *line = NULL;
    size_t room = 0, seen = 0;
    ssize_t got;
    assert_non_null(f);
    while ((got = getline(&line, &room, f)) > 0) {
        struct jv_doc d;
        assert_int_equal(jv_parse(&d, line, (size_t)got, JV_STRICT, NULL), 0);
        print_message("# %s\n", jv_get(d.root, "name")->text);
        check(d.root, t);
        jv_free(&d);
        seen++;
    }
    assert_int_equal(seen, 125);
    free(line);
    fclose(f);
}

static void messages_of_marked_texts(void **state)
{
    (void)state;
    struct tok *t = tok_files_open(NULL, 0);
    each_row(t, check_text);
    tok_close(t);
}

static void messages_and_deltas_of_ids(void **state)
{
    struct tok *t;
    (void)state;
    assert_int_equal(tok_open(&t, VOCABULARY, NULL), 0);
    each_row(t, check_ids);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_marked_texts),
    };
    const struct CMUnitTest released[] = {
        cmocka_unit_test(messages_and_deltas_of_ids),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* test_tok_golden.c says when it is absent. */
    if (!access(VOCABULARY "/tiktoken.model", R_OK))
        failed += cmocka_run_group_tests(released, NULL, NULL);
    return failed;
}

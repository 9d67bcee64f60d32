/* Goal    whatever a model says, reading it never fails, never depends on how
 *         its text is cut into tokens, shows nothing that the message lacks,
 *         and what was well formed goes back as the same ids.
 * Method  random replies of marks, names, attributes, words and broken bytes,
 *         whole and mutilated: 20,000 of them, REPLIES of them in `make
 *         check-long`. Each is read as long tokens and as single bytes; the
 *         events are put together and compared with the message. Random
 *         messages are encoded, read, written as a response, and encoded again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/answer.h"
#include "model/chat/chat.h"
#include "model/json/jv_write.h"
#include "tests/unit/tok_files.h"

enum { PARTS_MAX = 60, SHARE = 20000, LONG_WORDS = 13 };

static const char *const more[] = {
    "think", "response", "message", "tools", "call", "argument", "json",
    " type", "=\"", "string", "Oder,", "\xe4\xbd", "\"\n",
};

static struct tok *tok;
static uint64_t seed = 1;
static uint32_t rounds = SHARE;

static uint32_t below(uint32_t n)
{
    return tok_files_random(&seed, n);
}

static int set_up(void **state)
{
    (void)state;
    tok = tok_files_open(more, LONG_WORDS);
    if (getenv("REPLIES"))
        rounds = (uint32_t)strtoul(getenv("REPLIES"), NULL, 10);
    if (getenv("SEED"))
        seed = strtoull(getenv("SEED"), NULL, 10);
    print_message("# %u replies, SEED=%llu\n", rounds,
                  (unsigned long long)seed);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

/* ---- replies ---- */

/* A control token, or a text. */
struct part {
    const char *control, *text;
};

struct plan {
    struct part part[PARTS_MAX];
    size_t      parts;
};

static void add(struct plan *p, const char *control, const char *text)
{
    if (p->parts < PARTS_MAX)
        p->part[p->parts++] = (struct part){ control, text };
}

static const char *const words[] = {
    "Oder, ", "a", " ", "\n\t ", "think", "<|sep|>", "<|sep", "1.5", "null",
    "{\"k\": [1, 2]}", "\"quoted\" \\", "\xe4\xbd\xa0", "\xe4", "\xbd\xa0",
    "\xf0\x9f", "\xff", "&amp;&quot;", "=", " key=\"v\"", "STOP", "ST", "OPS",
    "\x01", "", "respon", "  tool=\"x\"",
};
static const char *const names[] = {
    "message", "think", "response", "tools", "call", "argument", "json",
    "nonesuch", " think", "think ", "thin", "", "call tool=\"f\" index=\"1\"",
    "call tool=\"g&amp;\"", "call tool=\"\"", "call index=\"1\"",
    "argument key=\"k\" type=\"string\"", "argument key=\"n\" type=\"number\"",
    "argument key=k type=object", "argument type=\"string\"",
    "argument key=\"z\" type=\"null\"", "json type=\"object\"",
    "message role=\"assistant\"", "message role=\"user\"", "think\n",
};
static const char *const others[] = { "[BOS]", "[EOS]", "<|end_of_msg|>",
                                      "[PAD]", "<|sep|>", "[UNK]" };
#define ONE_OF(list) list[below(sizeof list / sizeof *list)]

static void say(struct plan *p)
{
    for (uint32_t n = below(4); n > 0; n--)
        add(p, NULL, ONE_OF(words));
}

static void tag(struct plan *p, const char *control, const char *name)
{
    add(p, control, NULL);
    add(p, NULL, name);
    add(p, "<|sep|>", NULL);
}

/* Anything, in marks that are mostly whole. */
static void make_any(struct plan *p)
{
    p->parts = 0;
    for (uint32_t n = below(14) + 1; n > 0; n--) {
        if (below(8) == 0)
            add(p, ONE_OF(others), NULL);
        else if (below(3) > 0)
            tag(p, below(2) ? "<|open|>" : "<|close|>", ONE_OF(names));
        say(p);
    }
}

/* The form that replies have. */
static void make_whole(struct plan *p)
{
    p->parts = 0;
    say(p);
    tag(p, "<|close|>", "think");
    tag(p, "<|open|>", "response");
    say(p);
    tag(p, "<|close|>", "response");
    if (below(2)) {
        tag(p, "<|open|>", "tools");
        for (uint32_t n = below(2) + 1; n > 0; n--) {
            tag(p, "<|open|>", names[12 + below(2)]);
            for (uint32_t k = below(3); k > 0; k--) {
                tag(p, "<|open|>", names[16 + below(5)]);
                say(p);
                tag(p, "<|close|>", "argument");
            }
            tag(p, "<|close|>", "call");
        }
        tag(p, "<|close|>", "tools");
    }
    tag(p, "<|close|>", "message");
    add(p, "<|end_of_msg|>", NULL);
}

/* Leave out, double and exchange parts. */
static void mutilate(struct plan *p)
{
    for (uint32_t n = below(4); n > 0 && p->parts > 1; n--) {
        size_t at = below((uint32_t)p->parts);
        size_t other = below((uint32_t)p->parts);
        struct part kept = p->part[at];
        switch (below(4)) {
        case 0:
            p->parts--;
            memmove(p->part + at, p->part + at + 1,
                    (p->parts - at) * sizeof *p->part);
            break;
        case 1:
            p->part[at] = p->part[other];
            break;
        case 2:
            p->part[at] = p->part[other];
            p->part[other] = kept;
            break;
        case 3:
            p->parts = at + 1;
            break;
        }
    }
}

/* The ids of a plan; `bytes`: texts as single bytes. */
static void ids_of(const struct plan *p, bool bytes, struct id_list *out)
{
    out->count = 0;
    for (size_t i = 0; i < p->parts; i++) {
        const char *text = p->part[i].text;
        if (p->part[i].control)
            id_list_push(out, (uint32_t)tok_special(tok, p->part[i].control));
        else if (!bytes)
            tok_encode(tok, text, strlen(text), false, out);
        else
            for (; *text; text++)
                id_list_push(out, (unsigned char)*text);
    }
}

/* ---- reading ---- */

/* What a client has put together from the events. */
struct shown {
    struct buffer think, text, arguments[PARTS_MAX], name[PARTS_MAX];
};

static void take(struct shown *s, const struct reply *r)
{
    for (uint32_t i = 0; i < r->events; i++) {
        const struct reply_event *e = &r->event[i];
        const char *text = r->event_text.bytes + e->begin;
        switch (e->kind) {
        case REPLY_THOUGHT_TEXT:
            buffer_put(&s->think, text, e->bytes);
            break;
        case REPLY_CONTENT_TEXT:
            buffer_put(&s->text, text, e->bytes);
            break;
        case REPLY_CALL_BEGINS:
            /* One that was dropped had this place. */
            s->name[e->call].count = s->arguments[e->call].count = 0;
            buffer_put(&s->name[e->call], text, e->bytes);
            break;
        case REPLY_CALL_ARGUMENTS:
            buffer_put(&s->arguments[e->call], text, e->bytes);
            break;
        }
    }
}

static void equal(const struct buffer *a, const struct buffer *b)
{
    assert_int_equal(a->count, b->count);
    if (a->count)
        assert_memory_equal(a->bytes, b->bytes, a->count);
}

static void all_was_shown(const struct shown *s, const struct reply *r)
{
    equal(&s->text, &r->content);
    if (!r->moved)
        equal(&s->think, &r->thoughts);
    for (uint32_t i = 0; i < r->calls; i++) {
        equal(&s->name[i], &r->call[i].name);
        equal(&s->arguments[i], &r->call[i].arguments);
    }
}

static void forget(struct shown *s)
{
    buffer_free(&s->think);
    buffer_free(&s->text);
    for (int i = 0; i < PARTS_MAX; i++) {
        buffer_free(&s->arguments[i]);
        buffer_free(&s->name[i]);
    }
}

static void is_utf8(const struct buffer *b)
{
    struct buffer clean = { 0 };
    jv_clean(&clean, b->bytes, b->count);
    equal(b, &clean);
    buffer_free(&clean);
}

static void read_all(struct reply *r, const struct reply_options *o, bool stops,
                     const struct id_list *ids, bool cut)
{
    struct shown s = { 0 };
    reply_init(r, tok, o);
    if (stops) {
        reply_add_stop(r, "STOP", 4);
        reply_add_stop(r, "der, a", 6);
    }
    for (size_t i = 0; i < ids->count; i++) {
        bool was_done = r->done;
        int said = reply_push(r, ids->ids[i]);
        assert_int_equal(said, r->done);
        assert_true(!was_done || !r->events);
        take(&s, r);
    }
    assert_true(reply_end(r, cut) >= 0);
    take(&s, r);
    all_was_shown(&s, r);
    forget(&s);
    assert_true(r->done);
    assert_true(o->calls || !r->calls);
    assert_true(!o->one_call || r->calls <= 1);
    assert_true(r->thought_ids <= r->used && r->used <= ids->count);
    is_utf8(&r->thoughts);
    is_utf8(&r->content);
    for (uint32_t i = 0; i < r->calls; i++)
        is_utf8(&r->call[i].arguments);
}

static void same_message(const struct reply *a, const struct reply *b)
{
    equal(&a->thoughts, &b->thoughts);
    equal(&a->content, &b->content);
    assert_int_equal(a->calls, b->calls);
    for (uint32_t i = 0; i < a->calls; i++) {
        equal(&a->call[i].name, &b->call[i].name);
        equal(&a->call[i].arguments, &b->call[i].arguments);
    }
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->moved, b->moved);
    assert_int_equal(a->stopped, b->stopped);
}

static void test_cuts(void **state)
{
    (void)state;
    struct id_list tokens = { 0 }, bytes = { 0 };
    uint32_t calls = 0, moved = 0, stopped = 0, cut_off = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        struct plan p;
        struct reply a, b;
        uint64_t began = seed;
        if (below(2))
            make_any(&p);
        else
            make_whole(&p);
        mutilate(&p);
        struct reply_options o = { .chat = true, .in_answer = !below(3),
                                   .calls = below(3) > 0,
                                   .one_call = !below(6) };
        bool cut = below(4) > 0, stops = !below(3);
        ids_of(&p, false, &tokens);
        ids_of(&p, true, &bytes);
        if (i % 1000 == 0)
            print_message("# from SEED=%llu\n", (unsigned long long)began);
        read_all(&a, &o, stops, &tokens, cut);
        read_all(&b, &o, stops, &bytes, cut);
        same_message(&a, &b);
        calls += a.calls > 0;
        moved += a.moved;
        stopped += a.stopped;
        cut_off += a.reason == REPLY_LENGTH;
        reply_free(&a);
        reply_free(&b);
    }
    assert_true(calls > rounds / 50 && moved > rounds / 100 &&
                stopped > rounds / 200 && cut_off > rounds / 20);
    id_list_free(&tokens);
    id_list_free(&bytes);
}

static void test_random_ids(void **state)
{
    (void)state;
    struct id_list ids = { 0 };
    for (uint32_t i = 0; i < rounds / 4; i++) {
        struct reply r;
        struct reply_options o = { .chat = true, .in_answer = !below(2),
                                   .calls = true };
        ids.count = 0;
        for (uint32_t n = below(80); n > 0; n--)
            id_list_push(&ids, below(2) ? 256 + LONG_WORDS + below(8)
                                        : below(tok_vocab(tok) + 2));
        read_all(&r, &o, below(2), &ids, below(2));
        reply_free(&r);
    }
    id_list_free(&ids);
}

/* ---- there and back ---- */

static void put_words(struct buffer *out, const char *before)
{
    struct buffer text = { 0 }, clean = { 0 };
    for (uint32_t n = below(4); n > 0; n--)
        buffer_text(&text, ONE_OF(words));
    jv_clean(&clean, text.bytes, text.count);
    buffer_text(out, before);
    jv_write_string(out, clean.bytes, clean.count);
    buffer_free(&text);
    buffer_free(&clean);
}

static void put_value(struct buffer *out)
{
    static const char *const literals[] = {
        "1e2", "[1,  2]", "{\"b\" :1,\"a\":{}}", "null", "true", "false",
        "-0.50", "123456789012345678901234567890", "[]", "\"\"",
    };
    if (below(2))
        buffer_text(out, ONE_OF(literals));
    else
        put_words(out, "");
}

/* An assistant's message with arguments as the encoder keeps them. */
static void put_message(struct buffer *out)
{
    struct buffer arguments = { 0 };
    uint32_t calls = below(3);
    buffer_text(out, "{\"role\":\"assistant\"");
    put_words(out, ",\"reasoning_content\":");
    put_words(out, ",\"content\":");
    buffer_text(out, calls ? ",\"tool_calls\":[" : "");
    for (uint32_t i = 0; i < calls; i++) {
        arguments.count = 0;
        buffer_text(&arguments, "{");
        for (uint32_t n = below(4), k = 0; k < n; k++) {
            buffer_text(&arguments, k ? "," : "");
            put_words(&arguments, "");
            buffer_text(&arguments, ":");
            put_value(&arguments);
        }
        buffer_text(&arguments, "}");
        put_words(out, i ? ",{\"function\":{\"name\":"
                         : "{\"function\":{\"name\":");
        out->count--; /* names are not empty */
        buffer_text(out, "f\",\"arguments\":");
        if (below(4) == 0)
            arguments.count = 1; /* broken: it comes back as it is */
        jv_write_string(out, arguments.bytes, arguments.count);
        buffer_text(out, "}}");
    }
    buffer_text(out, calls ? "]}" : "}");
    buffer_free(&arguments);
}

static void encode(const char *before, const char *message, size_t bytes,
                   struct id_list *out)
{
    struct buffer body = { 0 };
    struct jv_doc d;
    struct chat c;
    struct refusal r;
    buffer_text(&body, before);
    buffer_put(&body, message, bytes);
    buffer_text(&body, "]}");
    assert_int_equal(jv_parse(&d, body.bytes, body.count, JV_STRICT, NULL), 0);
    if (chat_read(&c, d.root, &r))
        fail_msg("%s: %s", r.field, r.sentence);
    out->count = 0;
    assert_int_equal(chat_encode(&c, tok, out, NULL), 0);
    jv_free(&d);
    buffer_free(&body);
}

/* A request, a comma, an assistant's message; what the model said of it is what
 * follows the opening of its reply. */
static void test_back(void **state)
{
    (void)state;
    static const char ask[] = "{\"messages\":[{\"role\":\"user\"}";
    struct id_list opening = { 0 }, whole = { 0 }, again = { 0 };
    struct buffer message = { 0 }, body = { 0 };
    encode(ask, "", 0, &opening);
    uint32_t controls = 0, with_calls = 0;
    for (uint32_t i = 0; i < rounds / 10; i++) {
        struct reply r;
        struct jv_doc d;
        const struct reply_options o = { .chat = true, .calls = true };
        message.count = body.count = 0;
        buffer_text(&message, ",");
        put_message(&message);
        encode(ask, message.bytes, message.count, &whole);
        assert_memory_equal(whole.ids, opening.ids,
                            opening.count * sizeof *whole.ids);
        reply_init(&r, tok, &o);
        size_t at = opening.count;
        while (at < whole.count && !reply_push(&r, whole.ids[at]))
            at++;
        assert_true(at < whole.count);
        assert_true(r.reason == (r.calls ? REPLY_CALLS : REPLY_STOP));
        const struct answer_choice choice = { .reply = &r };
        const struct answer a = { .is_chat = true, .number = "1",
                                  .model = "m", .choice = &choice,
                                  .choices = 1 };
        answer_body(&body, &a);
        assert_int_equal(jv_parse(&d, body.bytes, body.count, JV_STRICT, NULL),
                         0);
        const struct jv *said = jv_get(
            jv_first(jv_get(d.root, "choices")), "message");
        message.count = 0;
        buffer_text(&message, ",");
        buffer_put(&message, said->raw, said->raw_bytes);
        encode(ask, message.bytes, message.count, &again);
        jv_free(&d);
        assert_int_equal(again.count, whole.count);
        assert_memory_equal(again.ids, whole.ids,
                            whole.count * sizeof *whole.ids);
        with_calls += r.calls > 0;
        for (size_t k = 0; k < whole.count; k++)
            controls += whole.ids[k] >= 256 + LONG_WORDS;
        reply_free(&r);
    }
    assert_true(with_calls > rounds / 40 && controls > rounds);
    buffer_free(&message);
    buffer_free(&body);
    id_list_free(&opening);
    id_list_free(&whole);
    id_list_free(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_random_ids),
        cmocka_unit_test(test_back),
    };
    return cmocka_run_group_tests_name("replies", tests, set_up, tear_down);
}

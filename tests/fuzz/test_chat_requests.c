/* Goal    no request, however wrong, does more than get refused with a field
 *         and a sentence; what is accepted has a prompt, in which no text is a
 *         control token; JSON is accepted where another reader accepts it.
 * Method  the 229 requests of tests/data/chat with bytes changed, values put in
 *         the place of others, cut and joined: REPLIES / 10 rounds. The other
 *         reader is jansson. Sanitizers see the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/request.h"
#include "model/json/jv_write.h"
#include "tests/unit/tok_files.h"

enum { ROWS = 229, LINE = 1 << 17, SHARE = 20000 };

static struct tok *tok;
static char *body[ROWS];
static uint64_t seed = 1;
static uint32_t rounds = SHARE;

static uint32_t below(uint32_t n)
{
    return tok_files_random(&seed, n);
}

static int set_up(void **state)
{
    (void)state;
    FILE *f = fopen("tests/data/chat/encode.jsonl", "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t got;
    tok = tok_files_open(NULL, 0);
    if (getenv("REPLIES"))
        rounds = (uint32_t)strtoul(getenv("REPLIES"), NULL, 10) / 10;
    for (int i = 0; f && i < ROWS && (got = getline(&line, &room, f)) > 0;
         i++) {
        struct jv_doc d;
        if (jv_parse(&d, line, (size_t)got, JV_STRICT, NULL))
            return -1;
        const struct jv *q = jv_get(d.root, "request");
        body[i] = strndup(q->raw, q->raw_bytes);
        jv_free(&d);
    }
    free(line);
    if (f)
        fclose(f);
    return body[ROWS - 1] ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++)
        free(body[i]);
    tok_close(tok);
    return 0;
}

struct count {
    size_t controls, texts;
};

static int count_segments(void *context, int control, const char *text,
                          size_t bytes)
{
    struct count *c = context;
    assert_true(control < CHAT_CONTROLS && (control >= 0 || bytes > 0));
    assert_true(control >= 0 || text);
    c->controls += control >= 0;
    c->texts += control < 0;
    return 0;
}

static void check_prompt(const struct chat *c)
{
    struct id_list ids = { 0 };
    struct count segments = { 0 };
    size_t controls = 0;
    assert_int_equal(chat_segments(c, count_segments, &segments), 0);
    assert_int_equal(chat_encode(c, tok, &ids, NULL), 0);
    for (size_t i = 0; i < ids.count; i++)
        controls += ids.ids[i] >= 256;
    assert_int_equal(controls, segments.controls);
    assert_true(segments.texts >= 2 && ids.count > CHAT_OPENING_IDS);
    id_list_free(&ids);
}

/* jansson reads what we read, and the other way round, but for what we say
 * that it cannot: numbers out of its range, halves of pairs, its own depth. */
static void check_other(const char *text, size_t bytes, const struct jv_doc *d,
                        int err)
{
    json_error_t e = { 0 };
    json_t *other = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY,
                               &e);
    enum json_error_code code = other ? json_error_unknown
                                      : json_error_code(&e);
    bool known = code == json_error_numeric_overflow ||
                 strstr(e.text, "\\u") || strstr(e.text, "Unicode") ||
                 code == json_error_stack_overflow;
    if (!known && !!other == !!err)
        fail_msg("%s: %.*s", other ? "only jansson reads it" : e.text,
                 (int)bytes, text);
    if (other && !err) {
        struct buffer out = { 0 };
        jv_write(&out, d->root, JV_COMPACT);
        json_t *again = json_loadb(out.bytes, out.count,
                                   JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
        assert_non_null(again);
        if (!json_equal(again, other))
            fail_msg("%s is not %.*s", out.bytes, (int)bytes, text);
        json_decref(again);
        buffer_free(&out);
    }
    json_decref(other);
}

/* Returns whether it was accepted. */
static bool feed(const char *text, size_t bytes)
{
    struct jv_doc d;
    struct request q;
    struct refusal r = { 0 };
    struct jv_wrong wrong = { 0 };
    int err = jv_parse(&d, text, bytes, JV_STRICT, &wrong);
    assert_true(!err || (err == -EBADMSG && wrong.what && wrong.at <= bytes));
    check_other(text, bytes, &d, err);
    if (err)
        return false;
    err = request_read(&q, d.root, NULL, NULL, below(4) == 0, &r);
    if (err) {
        assert_int_equal(err, -EINVAL);
        assert_true(r.code && *r.sentence);
    } else if (q.is_chat) {
        check_prompt(&q.chat);
    }
    jv_free(&d);
    return !err;
}

static void test_as_they_are(void **state)
{
    (void)state;
    int accepted = 0;
    for (int i = 0; i < ROWS; i++)
        accepted += feed(body[i], strlen(body[i]));
    assert_true(accepted >= 184);
}

static void test_bytes(void **state)
{
    (void)state;
    static char line[LINE];
    static const char likely[] = "{}[]\",:\\u0e1- n\xc3";
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const char *from = body[below(ROWS)];
        size_t n = strlen(from);
        memcpy(line, from, n);
        for (uint32_t c = below(4) + 1; c > 0; c--) {
            size_t at = below((uint32_t)n);
            if (below(10) == 0)
                n = at ? at : n;
            else if (below(2))
                line[at] = likely[below(sizeof likely - 1)];
            else
                line[at] = (char)below(256);
        }
        accepted += feed(line, n);
    }
    assert_in_range(accepted, rounds / 100, rounds);
}

/* A value of one request in the place of one of another. */
static void test_values(void **state)
{
    (void)state;
    static char line[2 * LINE];
    static const char *const odd[] = {
        "null", "true", "-1", "1e300", "99999999999999999999", "\"\"", "[]",
        "{}", "[[]]", "[null]", "[{}]", "\"\\u0000\"", "{\"a\":{\"b\":[]}}",
        "\"none\"", "3.0", "{\"type\":\"text\",\"text\":\"t\"}", "false",
        "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1} x\"}", "\"assistant\"",
        "\"tool\"", "\"system\"", "[1,[2,{\"role\":\"user\"}]]",
    };
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        struct jv_doc d, e;
        const char *to = body[below(ROWS)], *from = body[below(ROWS)];
        assert_int_equal(jv_parse(&d, to, strlen(to), JV_STRICT, NULL), 0);
        assert_int_equal(jv_parse(&e, from, strlen(from), JV_STRICT, NULL), 0);
        const struct jv *at = d.root + below(d.count);
        const struct jv *by = e.root + below(e.count);
        const char *value = odd[below(sizeof odd / sizeof *odd)];
        bool is_odd = below(3) > 0;
        int n = snprintf(line, sizeof line, "%.*s%.*s%s",
                         (int)(at->raw - d.text), d.text,
                         is_odd ? (int)strlen(value) : (int)by->raw_bytes,
                         is_odd ? value : by->raw, at->raw + at->raw_bytes);
        accepted += feed(line, (size_t)n);
        jv_free(&d);
        jv_free(&e);
    }
    assert_in_range(accepted, rounds / 20, rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_they_are),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests_name("chat requests", tests, set_up,
                                       tear_down);
}

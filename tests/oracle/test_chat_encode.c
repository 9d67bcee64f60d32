/* Goal    a chat request gives the segments, and the ids, that the official
 *         encoder gives; what cannot be rendered is refused by its field.
 * Method  229 requests with their segments, ids and refusals. The ids need the
 *         released vocabulary, and are left out without it.
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

#include "model/chat/chat.h"

#define GOLDEN     "tests/data/chat/encode.jsonl"
#define VOCABULARY "../shared/data/kimi-k3"

enum { FIRST_CONTROL = 163586 };
static const uint32_t control_id[CHAT_CONTROLS] = {
    [CHAT_OPEN] = 163587,
    [CHAT_CLOSE] = 163588,
    [CHAT_SEP] = 163589,
    [CHAT_END] = 163586,
};

/* The segments that a request must give, one after the other. */
struct want {
    const struct jv *list, *at;
    bool             wrong;
};

static int compare(void *context, int control, const char *text, size_t bytes)
{
    struct want *w = context;
    int64_t id = -1;
    bool same;
    if (!w->at) {
        w->wrong = true;
        return 0;
    }
    if (control >= 0)
        same = jv_integer(w->at, &id) && id == control_id[control];
    else
        same = w->at->type == JV_STRING && w->at->bytes == bytes &&
               !memcmp(w->at->text, text, bytes);
    if (!same && !w->wrong)
        print_error("segment %.*s is %.*s\n", (int)w->at->raw_bytes,
                    w->at->raw, control >= 0 ? 7 : (int)bytes,
                    control >= 0 ? "control" : text);
    w->wrong |= !same;
    w->at = jv_next(w->list, w->at);
    return 0;
}

static void check_ids(const struct chat *c, const struct tok *t,
                      const struct jv *row)
{
    struct id_list got = { 0 };
    const struct jv *ids = jv_get(row, "ids"), *each = jv_first(ids);
    int64_t counted;
    assert_int_equal(chat_encode(c, t, &got, NULL), 0);
    assert_int_equal(got.count, ids->bytes);
    for (size_t i = 0; i < got.count; i++, each = jv_next(ids, each)) {
        int64_t id;
        assert_true(jv_integer(each, &id));
        assert_int_equal(got.ids[i], id);
    }
    assert_true(jv_integer(jv_get(row, "prompt_tokens"), &counted));
    assert_int_equal(got.count - (c->prefill ? 0 : CHAT_OPENING_IDS), counted);
    id_list_free(&got);
}

static void check_row(const struct jv *row, const struct tok *t)
{
    struct chat c;
    struct refusal r = { 0 };
    const struct jv *refused = jv_get(row, "error");
    const struct jv *segments = jv_get(row, "segments");
    int err = chat_read(&c, jv_get(row, "request"), &r);
    if (refused) {
        assert_int_not_equal(err, 0);
        assert_string_equal(r.field, refused->text);
        assert_true(*r.sentence);
        return;
    }
    if (err)
        print_error("refused: %s: %s\n", r.field, r.sentence);
    assert_int_equal(err, 0);
    assert_int_equal(c.calls, jv_is_type(jv_get(row, "calls"), JV_TRUE));
    assert_true(jv_is(jv_get(row, "channel"),
                      c.in_answer ? "response" : "think"));
    if (segments) {
        struct want w = { segments, jv_first(segments), false };
        assert_int_equal(chat_segments(&c, compare, &w), 0);
        assert_false(w.wrong);
        assert_null(w.at);
    }
    if (t)
        check_ids(&c, t, row);
}

static void check_all(const struct tok *t, unsigned rows)
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
        check_row(d.root, t);
        jv_free(&d);
        seen++;
    }
    assert_int_equal(seen, rows);
    free(line);
    fclose(f);
}

static void segments_are_the_official_ones(void **state)
{
    (void)state;
    check_all(NULL, 229);
}

static void ids_are_the_official_ones(void **state)
{
    struct tok *t;
    (void)state;
    assert_int_equal(tok_open(&t, VOCABULARY, NULL), 0);
    check_all(t, 229);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_the_official_ones),
    };
    const struct CMUnitTest released[] = {
        cmocka_unit_test(ids_are_the_official_ones),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* test_tok_golden.c says when it is absent. */
    if (!access(VOCABULARY "/tiktoken.model", R_OK))
        failed += cmocka_run_group_tests(released, NULL, NULL);
    return failed;
}

/* Goal    options and requests of an older and a newer header work or are
 *         refused; what is not a request, a pass or a conversation is refused
 *         with a sentence; passes by hand give the logits of requests; text
 *         comes back.
 * Method  each by itself, against a small random model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/property/subject.h"

/* ---- options of other sizes ---- */

struct newer_options {
    struct sluice_options o;
    uint64_t unknown;
};
struct newer_request {
    struct sluice_request r;
    uint64_t unknown;
};

static void test_sizes(void **state)
{
    (void)state;
    struct sluice *s;
    struct sluice_error e;
    struct newer_options o = { .o = subject_options(2) };
    struct subject x = subject_fresh(1);
    struct newer_request r = { .r = subject_request(&x) };
    o.o.size = sizeof o; /* newer, and nothing new is asked for */
    s = subject_open_with(&o.o);
    r.r.size = sizeof r;
    assert_int_equal(sluice_generate(s, &r.r, NULL), 0);
    subject_check(&x, 1);
    r.unknown = 1;
    assert_int_equal(sluice_submit(s, &r.r, NULL, &e), -EINVAL);
    r.r.size = 3;
    assert_int_equal(sluice_submit(s, &r.r, NULL, &e), -EINVAL);
    sluice_close(s);
    o.unknown = 1;
    assert_int_equal(sluice_open(&s, subject_model.dir, &o.o, &e), -EINVAL);
    assert_null(s);
    assert_non_null(strstr(e.text, "size"));
    o.o.size = 0;
    assert_int_equal(sluice_open(&s, subject_model.dir, &o.o, &e), -EINVAL);
    /* Older: what stands behind its end is not read. */
    o.o.size = offsetof(struct sluice_options, drafts);
    o.o.drafts = 12345678;
    memset(&o.o.text, 0xff, sizeof o - offsetof(struct sluice_options, text));
    s = subject_open_with(&o.o);
    x = subject_fresh(2);
    r.r = subject_request(&x);
    r.r.size = offsetof(struct sluice_request, arg);
    memset((char *)&r.r + r.r.size, 0xff, sizeof r.r - r.r.size);
    assert_int_equal(sluice_generate(s, &r.r, NULL), 0);
    struct sluice_counters c;
    sluice_counters(s, &c, sizeof c);
    assert_int_equal(c.new_ids, truth[2].made);
    assert_int_equal(x.finished, 0);
    /* A caller that knows two numbers gets two. */
    c.finished = 77;
    sluice_counters(s, &c, offsetof(struct sluice_counters, finished));
    assert_int_equal(c.finished, 77);
    sluice_close(s);
}

static void test_refused(void **state)
{
    (void)state;
    struct sluice *s = subject_open(1);
    struct sluice_error e = { 0 };
    struct subject x = subject_fresh(0);
    const struct sluice_request good = subject_request(&x);
    struct sluice_request bad[8];
    uint32_t strange[2] = { 1, VOCAB };
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].count = 0;
    bad[1].ids = strange;
    bad[1].count = 2;
    bad[2].max_ids = 65;
    bad[3].temperature = -1;
    bad[4].temperature = NAN;
    bad[5].top_p = 1.5;
    bad[6].given = bad[6].count;
    bad[7].logits = (bool (*)(void *, uint64_t, const float *))(void *)abort;
    for (int i = 0; i < 8; i++) {
        e.text[0] = 0;
        assert_int_equal(sluice_submit(s, &bad[i], NULL, &e), -EINVAL);
        assert_int_equal(e.code, -EINVAL);
        assert_true(e.text[0]);
    }
    assert_int_equal(sluice_step(s, &e), 0);
    sluice_close(s);
    struct sluice_options o = subject_options(1);
    o.memory_bytes = 1;
    assert_int_equal(sluice_open(&s, subject_model.dir, &o, &e), -ENOBUFS);
    o.memory_bytes = UINT64_C(1) << 50;
    assert_int_equal(sluice_open(&s, subject_model.dir, &o, &e), 0);
    sluice_close(s); /* a model that is smaller than its budget */
    assert_int_equal(sluice_open(&s, "/nowhere", NULL, &e), -ENOENT);
    assert_non_null(strstr(e.text, "/nowhere"));
}

/* ---- passes by hand ---- */

static float rows_of_request[PROMPT_MAX][VOCAB];
static uint32_t rows_seen;

static bool keep(void *arg, uint64_t request, const float *row)
{
    (void)arg, (void)request;
    memcpy(rows_of_request[rows_seen++], row, sizeof rows_of_request[0]);
    return false;
}

static void test_by_hand(void **state)
{
    (void)state;
    struct sluice_error e = { 0 };
    struct sluice_options o = subject_options(2);
    struct subject x = subject_fresh(1);
    struct sluice_request r = subject_request(&x);
    struct sluice_row row[2 * PROMPT_MAX];
    o.logits = true;
    o.rows = 2 * PROMPT_MAX;
    struct sluice *s = subject_open_with(&o);
    r.logits = keep;
    r.max_ids = 0;
    rows_seen = 0;
    assert_int_equal(sluice_submit(s, &r, NULL, &e), 0);
    row[0] = (struct sluice_row){ .id = 1 };
    assert_int_equal(sluice_pass(s, row, 1, &e), -EBUSY);
    assert_int_equal(sluice_run(s, &e), 0);
    assert_int_equal(rows_seen, x.count);
    for (uint32_t i = 0; i < 2 * x.count; i++)
        row[i] = (struct sluice_row){ .sequence = i / x.count,
                                      .position = i % x.count,
                                      .id = x.prompt[i % x.count],
                                      .logits = true };
    assert_int_equal(sluice_pass(s, row, 2 * x.count, &e), 0);
    for (uint32_t i = 0; i < 2 * x.count; i++)
        assert_memory_equal(sluice_logits(s, i), rows_of_request[i % x.count],
                            sizeof rows_of_request[0]);
    /* What is not a pass. */
    row[0] = (struct sluice_row){ .position = x.count + 1, .id = 1 };
    assert_int_equal(sluice_pass(s, row, 1, &e), -EINVAL);
    row[0].position = x.count;
    row[0].id = VOCAB;
    assert_int_equal(sluice_pass(s, row, 1, &e), -EINVAL);
    row[0].id = 1;
    row[0].sequence = 2;
    assert_int_equal(sluice_pass(s, row, 1, &e), -EINVAL);
    for (uint32_t i = 0; i < 3; i++) /* 0, 1, 0 */
        row[i] = (struct sluice_row){ .sequence = i % 2,
                                      .position = x.count + i / 2, .id = 1 };
    assert_int_equal(sluice_pass(s, row, 3, &e), -EINVAL);
    assert_int_equal(sluice_pass(s, row, 2, &e), 0);
    assert_int_equal(sluice_pass(s, row, 0, &e), -EINVAL);
    sluice_reset(s, 0);
    row[0] = (struct sluice_row){ .id = x.prompt[0], .logits = true };
    assert_int_equal(sluice_pass(s, row, 1, &e), 0);
    assert_memory_equal(sluice_logits(s, 0), rows_of_request[0],
                        sizeof rows_of_request[0]);
    sluice_close(s);
}

/* ---- text ---- */

static void test_text(void **state)
{
    (void)state;
    const char text[] = "a \xc3\xa9 \xff\xe2\x82 [EOS]";
    char back[64];
    struct sluice_ids ids = { 0 };
    struct sluice_text *t;
    struct sluice_error e = { 0 };
    assert_int_equal(sluice_text_open(&t, subject_model.dir, &e), 0);
    assert_int_equal(sluice_tokenize(t, text, sizeof text - 1, &ids), 0);
    size_t n = sluice_detokenize(t, ids.ids, ids.count, back, sizeof back);
    assert_int_equal(n, sizeof text - 1);
    assert_memory_equal(back, text, n);
    memset(back, '#', sizeof back);
    assert_int_equal(sluice_detokenize(t, ids.ids, ids.count, back, 3), n);
    assert_memory_equal(back, "a \xc3#", 4);
    for (size_t i = 0; i < ids.count; i++)
        assert_false(sluice_is_end(t, ids.ids[i])); /* [EOS] is text */
    sluice_ids_free(&ids);
    assert_null(ids.ids);
    struct sluice_reply reply;
    const char good[] = "{\"messages\": [{\"role\": \"user\", "
                        "\"content\": \"hi\"}], "
                        "\"reasoning_effort\": \"none\"}";
    const char *bad[] = { "{", "[]", "{\"messages\": []}",
                          "{\"messages\": [{\"role\": \"nobody\"}]}" };
    for (int i = 0; i < 4; i++) {
        e.text[0] = 0;
        assert_int_equal(sluice_chat(t, bad[i], strlen(bad[i]), &ids, &reply,
                                     &e), -EINVAL);
        assert_true(e.text[0]);
        assert_int_equal(ids.count, 0);
    }
    assert_int_equal(sluice_chat(t, good, strlen(good), &ids, &reply, &e), 0);
    assert_true(ids.count > 0 && reply.chat && reply.in_answer);
    assert_false(reply.calls);
    /* A session may borrow it, and gives the text of its ids. */
    struct sluice_options o = subject_options(1);
    o.text = t;
    struct sluice *s = subject_open_with(&o);
    assert_ptr_equal(sluice_text_of(s), t);
    struct subject x = subject_fresh(1);
    struct sluice_request r = subject_request(&x);
    assert_int_equal(sluice_generate(s, &r, NULL), 0);
    subject_check(&x, 1);
    char want[TEXT_MAX];
    n = sluice_detokenize(t, x.ids, x.made, want, sizeof want);
    assert_int_equal(x.bytes, n);
    assert_memory_equal(x.text, want, n);
    sluice_close(s);
    sluice_ids_free(&ids);
    sluice_text_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests_name("sluice calls", tests, subjects_make,
                                       subjects_remove);
}

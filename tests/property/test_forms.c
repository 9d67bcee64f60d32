/* Goal    what a request with a form says is of that form, whatever else is
 *         asked of its ids, and the reply around it is a whole one; requests
 *         without a form do not notice; ids do not depend on drafts, company or
 *         memory; probabilities are those of the logits.
 * Method  a small random model, whose own text is noise, asked in many ways
 *         with bounded schemas and a limit above their longest texts: every
 *         answer must end by itself, parse, and be taken whole by a match.
 *         FORMS=N in the environment asks N times (make check-long).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/property/subject.h"

enum { ROOM = 400, CONTEXT = 480 };

struct answer {
    uint32_t ids[ROOM], count;
    char     content[TEXT_MAX], thoughts[TEXT_MAX];
    size_t   bytes, thought_bytes;
    enum sluice_finish finish;
    double   logprob, top_sum;
    uint32_t tops;
    bool     ordered, best; /* tops fall; greedy chose the first */
};

static bool on_token(void *arg, const struct sluice_token *t)
{
    struct answer *a = arg;
    bool thought = t->kind == SLUICE_THOUGHTS;
    char *to = thought ? a->thoughts : a->content;
    size_t *n = thought ? &a->thought_bytes : &a->bytes;
    assert_true(*n + t->bytes < TEXT_MAX);
    memcpy(to + *n, t->text, t->bytes);
    *n += t->bytes;
    if (t->id == SLUICE_NO_ID)
        return false;
    a->tops = t->tops;
    for (uint32_t i = 0; i < t->tops; i++) {
        a->top_sum += exp(t->top[i].logprob);
        a->ordered &= !i || t->top[i].logprob <= t->top[i - 1].logprob;
    }
    a->best &= !t->tops || t->top[0].id == t->id;
    a->logprob += t->logprob;
    return false;
}

static void on_finished(void *arg, const struct sluice_result *r)
{
    struct answer *a = arg;
    a->finish = r->finish;
    a->count = r->count;
    memcpy(a->ids, r->ids, r->count * sizeof *a->ids);
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"},\"n\":"
    "{\"enum\":[1,2,3]}},\"required\":[\"ok\",\"n\"],"
    "\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},"
    "\"minItems\":1,\"maxItems\":3}",
    "{\"enum\":[\"red\",\"green\",null,{\"a\":[true]}]}",
    "{\"type\":\"string\",\"pattern\":\"^[a-f]{2,6}$\"}",
    "{\"anyOf\":[{\"const\":\"x\"},{\"type\":\"object\",\"properties\":{\"k\":"
    "{\"type\":\"null\"}},\"required\":[\"k\"],\"additionalProperties\":false}"
    "]}",
};
enum { SCHEMAS = sizeof schemas / sizeof *schemas };

static struct sluice *open_with(uint32_t sequences, uint32_t drafts,
                                uint64_t memory)
{
    struct sluice_options o = subject_options(sequences);
    o.forms = true;
    o.context = CONTEXT;
    o.drafts = drafts;
    o.memory_bytes = memory ? memory : o.memory_bytes;
    return subject_open_with(&o);
}

static struct sluice_request request_of(uint64_t i, struct answer *a)
{
    static const uint32_t prompt[] = { 7, 99, 23, 4 };
    struct sluice_request r = {
        .size = sizeof r, .ids = prompt, .count = 1 + (uint32_t)(i % 4),
        .max_ids = ROOM, .temperature = i % 3 ? .5 + (double)(i % 7) / 4 : 0,
        .seed = i, .arg = a, .token = on_token, .finished = on_finished,
        .form = SLUICE_SCHEMA, .form_text = schemas[i % SCHEMAS],
        .form_bytes = strlen(schemas[i % SCHEMAS]) };
    r.top_k = i % 5 == 4 ? 3 : 0;
    r.frequency_penalty = i % 4 == 3 ? .7 : 0;
    return r;
}

static void every_answer_is_of_its_form(void **state)
{
    (void)state;
    const char *often = getenv("FORMS");
    uint64_t n = often ? strtoull(often, NULL, 10) : 60;
    struct sluice *s = open_with(6, 0, 0);
    struct answer *a = calloc(n, sizeof *a);
    assert_non_null(a);
    for (uint64_t i = 0; i < n; i++) {
        struct sluice_request r = request_of(i, &a[i]);
        struct sluice_error e = { 0 };
        if (sluice_submit(s, &r, NULL, &e))
            printf("# %s\n", e.text);
        assert_int_equal(e.code, 0);
        if (i % 6 == 5 || i + 1 == n)
            assert_int_equal(sluice_run(s, NULL), 0);
    }
    for (uint64_t i = 0; i < n; i++) {
        bool good = subject_is_of(schemas[i % SCHEMAS], a[i].content,
                                  a[i].bytes);
        if (!good || a[i].finish != SLUICE_END)
            printf("# %d: %d %.*s\n", (int)i, a[i].finish, (int)a[i].bytes,
                   a[i].content);
        assert_true(good);
        assert_int_equal(a[i].finish, SLUICE_END);
    }
    sluice_close(s);
    free(a);
}

/* Chat replies: free thoughts, then an answer of the form, then the end. */
static void chat_replies_are_led(void **state)
{
    (void)state;
    struct sluice *s = open_with(1, 0, 0);
    int thought = 0;
    for (uint64_t i = 0; i < 12; i++) {
        struct answer a = { 0 };
        struct sluice_request r = request_of(i, &a);
        r.reply = (struct sluice_reply){ .chat = true, .in_answer = i % 2 };
        assert_int_equal(sluice_generate(s, &r, NULL), 0);
        if (a.finish == SLUICE_END) {
            assert_true(subject_is_of(schemas[i % SCHEMAS], a.content,
                                      a.bytes));
        } else { /* it never stopped to think */
            assert_int_equal(a.finish, SLUICE_LENGTH);
            assert_int_equal(a.bytes, 0);
            assert_false(i % 2);
        }
        thought += a.thought_bytes > 0;
    }
    assert_true(thought > 0);
    sluice_close(s);
}

static void ids_depend_on_nothing_else(void **state)
{
    (void)state;
    static const struct { uint32_t sequences, drafts; uint64_t memory; } with[]
        = { { 1, 0, 0 }, { 1, 4, 0 }, { 5, SLUICE_DRAFTS_AUTO, 0 },
            { 5, 0, 100 << 20 } };
    struct answer want[10] = { 0 };
    for (size_t w = 0; w < sizeof with / sizeof *with; w++) {
        struct sluice *s = open_with(with[w].sequences, with[w].drafts,
                                     with[w].memory);
        struct answer got[10] = { 0 };
        for (uint64_t i = 0; i < 10; i++) {
            struct sluice_request r = request_of(i, &got[i]);
            if (i % 2) {
                r.form = SLUICE_FREE;
                r.max_ids = 30;
            }
            assert_int_equal(sluice_submit(s, &r, NULL, NULL), 0);
        }
        assert_int_equal(sluice_run(s, NULL), 0);
        for (int i = 0; i < 10; i++) {
            if (!w)
                want[i] = got[i];
            assert_int_equal(got[i].count, want[i].count);
            assert_memory_equal(got[i].ids, want[i].ids,
                                got[i].count * sizeof *got[i].ids);
        }
        sluice_close(s);
    }
}

static void probabilities_are_of_the_logits(void **state)
{
    (void)state;
    struct sluice *s = open_with(1, 0, 0);
    struct answer a = { .ordered = true, .best = true };
    struct sluice_request r = request_of(0, &a);
    r.form = SLUICE_FREE;
    r.temperature = 0;
    r.max_ids = 1;
    r.logprobs = 1 + SLUICE_LOGPROBS_MAX;
    r.ignore_end = true;
    assert_int_equal(sluice_generate(s, &r, NULL), 0);
    assert_int_equal(a.tops, SLUICE_LOGPROBS_MAX);
    assert_true(a.ordered && a.best && a.logprob < 0);
    assert_true(a.top_sum > 0 && a.top_sum < 1);
    double before = a.logprob;
    /* A bias moves what is chosen, not what is said of it. */
    struct sluice_bias bias = { (a.ids[0] + 1) % VOCAB, 1000 };
    a = (struct answer){ .ordered = true };
    r.bias = &bias;
    r.biases = 1;
    assert_int_equal(sluice_generate(s, &r, NULL), 0);
    assert_int_equal(a.ids[0], bias.id);
    assert_true(a.logprob <= before);
    sluice_close(s);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct sluice *s = open_with(1, 0, 0), *plain = subject_open(1);
    struct answer a;
    static const struct { const char *text; int err; } bad[] = {
        { "{", -EINVAL }, { "{\"not\":{}}", -ENOTSUP }, { "false", -ENOENT },
        { NULL, -EINVAL },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sluice_error e = { 0 };
        struct sluice_request r = request_of(0, &a);
        r.form_text = bad[i].text;
        r.form_bytes = bad[i].text ? strlen(bad[i].text) : 0;
        assert_int_equal(sluice_submit(s, &r, NULL, &e), bad[i].err);
        assert_true(e.text[0]);
    }
    struct sluice_request r = request_of(0, &a);
    r.max_ids = 10;
    assert_int_equal(sluice_submit(plain, &r, NULL, NULL), -EINVAL);
    struct sluice_bias bias = { VOCAB + 100000, 1 };
    r = request_of(0, &a);
    r.bias = &bias;
    r.biases = 1;
    assert_int_equal(sluice_submit(s, &r, NULL, NULL), -EINVAL);
    r = request_of(0, &a);
    r.min_p = 2;
    assert_int_equal(sluice_submit(s, &r, NULL, NULL), -EINVAL);
    sluice_close(s);
    sluice_close(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_of_its_form),
        cmocka_unit_test(chat_replies_are_led),
        cmocka_unit_test(ids_depend_on_nothing_else),
        cmocka_unit_test(probabilities_are_of_the_logits),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, subjects_make, subjects_remove);
}

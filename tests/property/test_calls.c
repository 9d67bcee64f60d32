/* Goal    calls that are kept to their tools are whole: each is of a tool that
 *         is offered, its arguments parse and are of the tool's schema; a
 *         required call comes; ids that have to come cost no pass and change
 *         nothing; what is no form of calls is refused.
 * Method  a small random model with a lean towards control ids, asked with
 *         tools of every kind of argument; arguments are checked as JSON by a
 *         match of the schema. Ids that have to come are computed, too, where
 *         probabilities are wanted: so the same requests with and without must
 *         agree. FORMS=N in the environment asks N times (make check-long).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/knobs.h"
#include "tests/property/subject.h"

enum { ROOM = 400, CONTEXT = 440, CALLS_MAX = 8, SAME = 6 };

static const char *const parameters[] = {
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"maxLength\":4},\"days\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":9}},\"required\":[\"city\"],\"additionalProperties\":false}",
    "{\"type\":\"object\",\"properties\":{\"a\\\"b&c\":{\"enum\":[\"x\",1,"
    "null,true,[2],{\"k\":\"v\"}]},\"s\":{\"type\":\"string\",\"pattern\":"
    "\"^[a-f<]{2,3}$\"}},\"required\":[\"a\\\"b&c\",\"s\"],"
    "\"additionalProperties\":false}",
    "{\"type\":\"object\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":"
    "{\"type\":\"boolean\"},\"maxItems\":2}},\"properties\":{\"list\":"
    "{\"$ref\":\"#/$defs/t\"}},\"additionalProperties\":{\"type\":\"string\","
    "\"maxLength\":1},\"maxProperties\":2}",
    NULL,
};
enum { TOOLS = sizeof parameters / sizeof *parameters };

struct answer {
    uint32_t ids[ROOM], count, calls;
    char     name[CALLS_MAX][32], arguments[CALLS_MAX][TEXT_MAX];
    size_t   bytes[CALLS_MAX], content;
    enum sluice_finish finish;
};

static char tools[2][4096]; /* strict; and not */
static struct sluice_bias lean[4]; /* towards control ids and quotes */

static bool on_token(void *arg, const struct sluice_token *t)
{
    struct answer *a = arg;
    if (t->kind == SLUICE_CALL) {
        assert_true(a->calls < CALLS_MAX && t->bytes < sizeof a->name[0]);
        memcpy(a->name[a->calls++], t->text, t->bytes);
    } else if (t->kind == SLUICE_ARGUMENTS) {
        size_t *n = &a->bytes[t->call];
        assert_true(t->call < a->calls && *n + t->bytes < TEXT_MAX);
        memcpy(a->arguments[t->call] + *n, t->text, t->bytes);
        *n += t->bytes;
    } else if (t->kind == SLUICE_CONTENT) {
        a->content += t->bytes;
    }
    return false;
}

static void on_finished(void *arg, const struct sluice_result *r)
{
    struct answer *a = arg;
    a->finish = r->finish;
    a->count = r->count;
    memcpy(a->ids, r->ids, r->count * sizeof *a->ids);
}

static int setup(void **state)
{
    static const char *const control[] = { "<|open|>", "<|close|>", "<|sep|>" };
    struct sluice_text *text;
    subjects_make(state);
    for (int strict = 0; strict < 2; strict++) {
        char *at = tools[!strict];
        for (int i = 0; i < TOOLS; i++)
            at += sprintf(at, "%s{\"type\":\"function\",\"function\":{\"name\":"
                          "\"tool_%d\"%s%s%s}}", i ? "," : "[", i,
                          strict ? ",\"strict\":true" : "",
                          parameters[i] ? ",\"parameters\":" : "",
                          parameters[i] ? parameters[i] : "");
        sprintf(at, "]");
    }
    assert_int_equal(sluice_text_open(&text, subject_model.dir, NULL), 0);
    for (int i = 0; i < 3; i++) {
        int id = tok_special(knobs_tok(text), control[i]);
        assert_true(id >= 0);
        lean[i] = (struct sluice_bias){ (uint32_t)id, 6 };
    }
    struct sluice_ids quote = { 0 };
    assert_int_equal(sluice_tokenize(text, "\"", 1, &quote), 0);
    lean[3] = (struct sluice_bias){ quote.ids[0], 6 };
    sluice_ids_free(&quote);
    sluice_text_close(text);
    return 0;
}

static struct sluice *open_with(uint32_t sequences, uint32_t drafts,
                                uint32_t rows)
{
    struct sluice_options o = subject_options(sequences);
    o.forms = true;
    o.context = CONTEXT;
    o.drafts = drafts;
    o.rows = rows;
    return subject_open_with(&o);
}

static struct sluice_request request_of(uint64_t i, struct answer *a)
{
    static const uint32_t prompt[] = { 7, 99, 23, 4 };
    struct sluice_request r = {
        .size = sizeof r, .ids = prompt, .count = 1 + (uint32_t)(i % 4),
        .max_ids = ROOM, .temperature = .5 + (double)(i % 7) / 4, .seed = i,
        .arg = a, .token = on_token, .finished = on_finished,
        .bias = lean, .biases = 4, .tools = tools[i % 5 == 4],
        .reply = { .chat = true, .in_answer = i % 2, .calls = true } };
    r.tools_bytes = strlen(r.tools);
    r.must_call = i % 5 == 4 || i % 3;
    if (i % 4 == 3) {
        r.form = SLUICE_SCHEMA;
        r.form_text = "{\"enum\":[\"yes\",\"no\"]}";
        r.form_bytes = strlen(r.form_text);
    }
    return r;
}

/* How many calls are whole: the last of a text that was cut off is not. */
static uint32_t check(const struct answer *a, uint64_t i)
{
    uint32_t whole = a->calls - (a->finish == SLUICE_LENGTH && a->calls > 0);
    for (uint32_t k = 0; k < whole; k++) {
        unsigned which = TOOLS;
        assert_int_equal(sscanf(a->name[k], "tool_%u", &which), 1);
        assert_true(which < TOOLS);
        const char *said = a->arguments[k];
        bool good = parameters[which]
                        ? subject_is_of(parameters[which], said, a->bytes[k])
                        : a->bytes[k] == 2 && !memcmp(said, "{}", 2);
        if (!good)
            printf("# %d: %s %.*s\n", (int)i, a->name[k], (int)a->bytes[k],
                   said);
        assert_true(good);
    }
    return whole;
}

static void every_call_is_of_its_tool(void **state)
{
    (void)state;
    const char *often = getenv("FORMS");
    uint64_t n = often ? strtoull(often, NULL, 10) : 24, cut = 0, calls = 0;
    struct sluice *s = open_with(6, 0, 24);
    struct answer *a = calloc(6, sizeof *a);
    int called[TOOLS] = { 0 };
    assert_non_null(a);
    for (uint64_t i = 0; i < n; i++) {
        struct sluice_request r = request_of(i, &a[i % 6]);
        struct sluice_error e = { 0 };
        memset(&a[i % 6], 0, sizeof *a);
        if (sluice_submit(s, &r, NULL, &e))
            printf("# %s\n", e.text);
        assert_int_equal(e.code, 0);
        if (i % 6 != 5 && i + 1 < n)
            continue;
        assert_int_equal(sluice_run(s, NULL), 0);
        for (uint64_t k = i - i % 6; k <= i; k++) {
            const struct answer *x = &a[k % 6];
            uint32_t whole = check(x, k);
            cut += x->finish == SLUICE_LENGTH;
            calls += whole;
            for (uint32_t c = 0; c < whole; c++)
                called[x->name[c][5] - '0']++;
            bool must = request_of(k, NULL).must_call;
            assert_true(x->finish == SLUICE_LENGTH || x->calls || !must);
            assert_true(x->finish == SLUICE_LENGTH ||
                        x->finish == SLUICE_END);
        }
    }
    printf("# %d requests, %d whole calls, %d cut off\n", (int)n, (int)calls,
           (int)cut);
    assert_true(calls > n / 2 && cut < n);
    for (int i = 0; i < TOOLS; i++) {
        printf("# %d of tool_%d\n", called[i], i);
        assert_true(called[i] > 0 || n < 100);
    }
    sluice_close(s);
    free(a);
}

/* In what ever way ids that have to come are found, they are the same. */
static void forced_ids_change_nothing(void **state)
{
    (void)state;
    static const struct {
        uint32_t sequences, drafts, rows;
        bool logprobs;
    } with[] = { { 1, 0, 24, true }, { 1, 0, 24, false }, { 1, 4, 24, false },
                 { 5, SLUICE_DRAFTS_AUTO, 6, false } };
    struct answer *want = calloc(SAME, sizeof *want);
    struct answer *got = calloc(SAME, sizeof *got);
    uint64_t passes[2] = { 0, 0 };
    assert_true(want && got);
    for (size_t w = 0; w < sizeof with / sizeof *with; w++) {
        struct sluice_counters c;
        struct sluice *s = open_with(with[w].sequences, with[w].drafts,
                                     with[w].rows);
        memset(got, 0, SAME * sizeof *got);
        for (uint64_t i = 0; i < SAME; i++) {
            struct sluice_request r = request_of(i, &got[i]);
            r.logprobs = with[w].logprobs;
            assert_int_equal(sluice_submit(s, &r, NULL, NULL), 0);
        }
        assert_int_equal(sluice_run(s, NULL), 0);
        sluice_counters(s, &c, sizeof c);
        assert_true(with[w].logprobs ? !c.forced_ids : c.forced_ids > 0);
        if (w < 2)
            passes[w] = c.passes;
        if (w == 1) {
            printf("# %d ids in %d passes; without those that have to come "
                   "%d\n", (int)c.new_ids, (int)passes[0], (int)passes[1]);
            /* All of them, but for runs that are longer than a pass. */
            assert_true(passes[1] * 4 < passes[0]);
            assert_true(passes[0] <= passes[1] + c.forced_ids);
        }
        for (int i = 0; i < SAME; i++) {
            if (!w)
                want[i] = got[i];
            assert_int_equal(got[i].count, want[i].count);
            assert_memory_equal(got[i].ids, want[i].ids,
                                got[i].count * sizeof *got[i].ids);
            assert_int_equal(got[i].calls, want[i].calls);
            assert_memory_equal(got[i].arguments, want[i].arguments,
                                sizeof want[i].arguments);
        }
        sluice_close(s);
    }
    free(want);
    free(got);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct sluice *s = open_with(1, 0, 24), *plain = subject_open(1);
    static const struct { const char *tools; int err; bool must; } bad[] = {
        { "[", -EINVAL, true }, { "{}", -EINVAL, true },
        { "[]", -EINVAL, true }, { NULL, -EINVAL, true },
        { "[{\"function\":{}}]", -EINVAL, true },
        { "[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":"
          "{\"not\":{}}}}]", -ENOTSUP, false },
        { "[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":"
          "{\"type\":\"string\"}}}]", -ENOENT, false },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sluice_error e = { 0 };
        struct sluice_request r = request_of(0, NULL);
        r.tools = bad[i].tools;
        r.tools_bytes = r.tools ? strlen(r.tools) : 0;
        r.must_call = bad[i].must;
        assert_int_equal(sluice_submit(s, &r, NULL, &e), bad[i].err);
        assert_true(e.text[0]);
    }
    struct sluice_request r = request_of(0, NULL);
    r.max_ids = 10;
    assert_int_equal(sluice_submit(plain, &r, NULL, NULL), -EINVAL);
    /* Tools of which none is strict, and no call is required: nothing. */
    struct answer a = { 0 };
    r = request_of(0, &a);
    r.tools = tools[1];
    r.tools_bytes = strlen(r.tools);
    r.must_call = false;
    r.max_ids = 10;
    assert_int_equal(sluice_generate(plain, &r, NULL), 0);
    /* A schema that is not supported, of a tool that is not strict. */
    r = request_of(1, &a);
    r.tools = "[{\"function\":{\"name\":\"tool_9\",\"parameters\":{\"not\":{}}"
              "}}]";
    r.tools_bytes = strlen(r.tools);
    r.must_call = true;
    memset(&a, 0, sizeof a);
    assert_int_equal(sluice_generate(s, &r, NULL), 0);
    assert_true(a.calls && !strcmp(a.name[0], "tool_9"));
    sluice_close(s);
    sluice_close(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_of_its_tool),
        cmocka_unit_test(forced_ids_change_nothing),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, subjects_remove);
}

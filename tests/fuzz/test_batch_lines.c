/* Goal    no line of a batch, however wrong, does more than get an error; what
 *         is accepted keeps to its bounds, and its answer is JSON.
 * Method  good lines with bytes and values changed, cut and joined at random,
 *         and values of every type in every place. Sanitizers see the rest.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "bin/batch/job.h"
#include "tests/unit/tok_files.h"

enum { ROUNDS = 6000, CONTEXT = 2048, LINE = 1024 };

static const char *const good[] = {
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\","
    "\"body\":{\"model\":\"k3\",\"prompt\":\"Hello\",\"max_tokens\":7,"
    "\"temperature\":0.5,\"top_p\":0.9,\"seed\":3,\"stop\":[\"a\",\"b\"]}}",
    "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
    "\"body\":{\"messages\":[{\"role\":\"system\",\"content\":\"x\"},"
    "{\"role\":\"user\",\"name\":\"n\",\"content\":[{\"type\":\"text\","
    "\"text\":\"y\"}]},{\"role\":\"assistant\",\"content\":null,"
    "\"reasoning_content\":\"z\",\"tool_calls\":[]}],\"n\":1,"
    "\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"thinking\":true}"
    "}}",
    ("{\"id\":7,\"prompt\":[1,2,3],\"max_tokens\":5,\"return_token_ids\":true,"
     "\"ignore_eos\":false,\"logit_bias\":{},\"tools\":null,\"user\":\"u\"}"),
};

static const char *const values[] = {
    "[\"a\",\"b\"]", "[[1],[2],\"c\"]",
    "null", "true", "-1", "0", "1e300", "99999999999999999999", "\"\"", "[]",
    "{}", "[[]]", "[null]", "[{}]", "\"\\u0000\"", "[1,\"a\"]", "{\"a\":1}",
    "\"\xf0\x9f\x98\x80\"", "0.5", "[[1,2],[3]]",
};

static struct tok *tok;
static struct batch_rules rules;
static struct samplers_args samplers;

static int set_up(void **state)
{
    (void)state;
    tok = tok_files_open(NULL, 0);
    samplers_defaults(&samplers);
    assert_int_equal(samplers_load(&samplers, "m", NULL), 0);
    rules = (struct batch_rules){ .model = "m", .samplers = &samplers,
                                  .name = "m",
                                  .tok = tok,
                                  .vocab = tok_vocab(tok),
                                  .context = CONTEXT,
                                  .max = 9 };
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

/* Check a request and let it end with a byte that is no UTF-8. Returns 1 when
 * its line is whole. */
static int read_and_end(struct batch_job *j)
{
    struct batch_job *next = j->next;
    assert_in_range(j->prompt_count, 1, CONTEXT);
    assert_true(j->r.max_ids >= 1);
    assert_true(j->prompt_count + j->r.max_ids - 1 <= CONTEXT);
    for (uint32_t i = 0; i < j->prompt_count; i++)
        assert_true(j->ids[i] < rules.vocab);
    j->ids[j->prompt_count] = 0xff;
    assert_true(batch_job_push(j, 0xff) >= 0);
    int whole = batch_job_end(j, 1, SLUICE_LENGTH);
    j->next = next; /* for this test: it was given up */
    return whole;
}

/* The line's answer, from its last request. */
static char *answer_of(struct batch_job *j)
{
    while (j->next)
        j = j->next;
    return batch_job_answer(j, &rules);
}

/* Returns whether the line was accepted. */
static bool feed(const char *line, size_t bytes)
{
    struct batch_job j;
    struct error error = { 0 };
    int err = batch_job_read(&j, 1, line, bytes, &error);
    if (!err)
        err = batch_job_body(&j, &rules, &error);
    assert_true(!err || err == -EINVAL);
    char *text;
    if (!err) {
        int whole = 0;
        for (struct batch_job *each = &j; each; each = each->next)
            whole += read_and_end(each);
        assert_int_equal(whole, 1);
        text = answer_of(&j);
    } else {
        assert_true(error.text[0] && j.code);
        text = batch_job_error(&j, &error, NULL);
    }
    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    json_t *answer = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(answer);
    json_decref(answer);
    free(text);
    for (struct batch_job *each = j.next; each;) {
        struct batch_job *next = each->next;
        batch_job_free(each);
        free(each);
        each = next;
    }
    batch_job_free(&j);
    return !err;
}

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(feed(good[i], strlen(good[i])));
}

static void test_changed(void **state)
{
    (void)state;
    uint64_t seed = 41;
    uint32_t accepted = 0;
    for (uint32_t r = 0; r < ROUNDS; r++) {
        char line[LINE];
        const char *from = good[tok_files_random(&seed, 3)];
        size_t n = strlen(from);
        memcpy(line, from, n);
        for (uint32_t c = tok_files_random(&seed, 3) + 1; c > 0; c--) {
            size_t at = tok_files_random(&seed, (uint32_t)n);
            if (tok_files_random(&seed, 8) == 0)
                n = at ? at : n; /* cut */
            else
                line[at] = (char)tok_files_random(&seed, 256);
        }
        accepted += feed(line, n);
    }
    assert_in_range(accepted, 10, ROUNDS - 10);
}

/* Put every value in the place of every other. */
static void test_types(void **state)
{
    (void)state;
    char line[LINE];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (const char *at = strchr(good[i], ':'); at;
             at = strchr(at + 1, ':'))
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                const char *end = at + 1;
                int depth = 0;
                bool text = false;
                for (; *end; end++) {
                    if (*end == '"')
                        text = !text;
                    if (text)
                        continue;
                    if (!depth && (*end == ',' || *end == '}' || *end == ']'))
                        break;
                    depth += *end == '{' || *end == '[';
                    depth -= *end == '}' || *end == ']';
                }
                int n = snprintf(line, sizeof line, "%.*s%s%s",
                                 (int)(at + 1 - good[i]), good[i], values[v],
                                 end);
                feed(line, (size_t)n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests_name("batch lines", tests, set_up,
                                       tear_down);
}

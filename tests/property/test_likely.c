/* Goal    what a form probably goes on with is what a text written as models
 *         write it has: passes that are saved, by count, with the released
 *         vocabulary and without.
 * Method  replies of calls and of a schema, encoded piece by piece as a model
 *         would give them, walked id by id: a pass gives an id, then those that
 *         must come, then the drafts that are right. The form has to allow
 *         every id. The counts need no model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/constraint.h"
#include "tests/property/small_model.h"
#include "tests/skip.h"

enum { IDS_MAX = 4000, DRAFTS = 8 };

static const char tools[] =
    "[{\"function\":{\"name\":\"get_weather_forecast\",\"strict\":true,"
    "\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"location_name\":{\"type\":\"string\"},"
    "\"temperature_unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]}},"
    "\"required\":[\"location_name\",\"temperature_unit\"],"
    "\"additionalProperties\":false}}}]";
/* O, C, S stand for <|open|>, <|close|>, <|sep|>. */
static const char *const calls[] = {
    "Ocall tool=\"get_weather_forecast\" index=\"1\"S"
    "Oargument key=\"location_name\" type=\"string\"SParisCargumentS"
    "Oargument key=\"temperature_unit\" type=\"string\"ScelsiusCargumentS"
    "CcallSOcall tool=\"get_weather_forecast\" index=\"2\"S"
    "Oargument key=\"location_name\" type=\"string\"SRomeCargumentS"
    "Oargument key=\"temperature_unit\" type=\"string\"SfahrenheitCargumentS"
    "CcallSCtoolsS",
};
static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"customer_identifier\":{\"type\":"
    "\"integer\"},\"shipping_address\":{\"type\":\"string\"},"
    "\"confirmation_required\":{\"type\":\"boolean\"}},\"required\":["
    "\"customer_identifier\",\"shipping_address\",\"confirmation_required\"],"
    "\"additionalProperties\":false}";
static const char answer[] =
    "{\"customer_identifier\":48213,\"shipping_address\":\"12 High Street\","
    "\"confirmation_required\":true}";

static bool is_end(void *arg, uint32_t id)
{
    return tok_is_stop(arg, id);
}

/* A text with control ids, as a model gives it. */
static uint32_t encode(const struct tok *t, const char *text, bool marked,
                       uint32_t *ids)
{
    static const char letter[] = "OCS";
    static const char *const name[] = { "<|open|>", "<|close|>", "<|sep|>" };
    struct id_list list = { 0 };
    uint32_t n = 0;
    for (const char *at = text; *at;) {
        const char *which = marked ? strchr(letter, *at) : NULL;
        if (which) {
            ids[n++] = (uint32_t)tok_special(t, name[which - letter]);
            at++;
            continue;
        }
        size_t bytes = marked ? strcspn(at, letter) : strlen(at);
        list.count = 0;
        assert_int_equal(tok_encode(t, at, bytes, false, &list), 0);
        for (size_t i = 0; i < list.count; i++)
            ids[n++] = list.ids[i];
        at += bytes;
    }
    id_list_free(&list);
    return n;
}

/* Passes for ids that a form allows: alone, and with drafts. */
static uint32_t passes(struct constraint *c, const uint32_t *ids, uint32_t n,
                       bool forced, uint32_t drafts)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; count++) {
        uint32_t draft[DRAFTS], right = 0, only;
        uint32_t made = drafts ? constraint_likely(c, draft, drafts) : 0;
        while (right < made && i + right < n && draft[right] == ids[i + right])
            right++;
        for (uint32_t k = 0; k <= right && i < n; k++) {
            bool failed;
            const uint64_t *mask = constraint_mask(c, &failed);
            assert_true(mask && mask[ids[i] / 64] >> ids[i] % 64 & 1);
            assert_int_equal(constraint_push(c, ids[i++]), 0);
        }
        while (forced && i < n && constraint_choices(c, &only) == 1) {
            assert_int_equal(only, ids[i]);
            assert_int_equal(constraint_push(c, ids[i++]), 0);
        }
    }
    return count;
}

static void count(const struct forms *f, const struct form *form,
                  const uint32_t *begin, uint32_t begun, const uint32_t *ids,
                  uint32_t n, const char *what)
{
    uint32_t got[3];
    for (int way = 0; way < 3; way++) {
        struct constraint *c;
        assert_int_equal(constraint_open(&c, f, form, NULL), 0);
        for (uint32_t i = 0; i < begun; i++)
            assert_int_equal(constraint_push(c, begin[i]), 0);
        got[way] = passes(c, ids, n, way > 0, way > 1 ? DRAFTS : 0);
        constraint_close(c);
    }
    printf("# %s: %u ids in %u passes; without those that must come %u; with "
           "%d drafts of the form %u\n", what, n, got[0], got[1], DRAFTS,
           got[2]);
    assert_int_equal(got[0], n);
    assert_true(got[1] <= got[0] && got[2] <= got[1]);
    assert_true(got[2] * 3 < n * 2);
}

static void with(const char *dir)
{
    struct tok *t;
    struct forms *f;
    struct error error = { 0 };
    uint32_t ids[IDS_MAX], begin[64], n, begun;
    if (tok_open(&t, dir, &error))
        fail_msg("%s", error.text);
    assert_int_equal(forms_open(&f, t, tok_vocab(t), is_end, t, &error), 0);
    struct form form = { .kind = FORM_FREE, .chat = true, .in_answer = true,
                         .calls = true, .tools = tools,
                         .tools_bytes = strlen(tools), .must_call = true };
    begun = encode(t, "OtoolsS", true, begin);
    n = encode(t, calls[0], true, ids);
    count(f, &form, begin, begun, ids, n, "calls");
    form = (struct form){ .kind = FORM_SCHEMA, .text = schema,
                          .bytes = strlen(schema) };
    n = encode(t, answer, false, ids);
    count(f, &form, NULL, 0, ids, n, "a schema");
    forms_close(f);
    tok_close(t);
}

static void a_small_vocabulary(void **state)
{
    (void)state;
    struct small_model model;
    small_model_make(&model, 0);
    with(model.dir);
    small_model_remove(&model);
}

static void the_released_vocabulary(void **state)
{
    (void)state;
    static const char dir[] = "../shared/data/kimi-k3";
    if (access("../shared/data/kimi-k3/tiktoken.model", R_OK))
        skip_because("the released vocabulary is not here");
    with(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_vocabulary),
        cmocka_unit_test(the_released_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

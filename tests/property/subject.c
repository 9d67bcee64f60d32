#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/grammar/match.h"
#include "tests/property/subject.h"

struct small_model subject_model;
struct subject truth[REQUESTS];

static bool token(void *arg, const struct sluice_token *t)
{
    struct subject *x = arg;
    assert_true(x->bytes + t->bytes <= TEXT_MAX);
    memcpy(x->text + x->bytes, t->text, t->bytes);
    x->bytes += t->bytes;
    x->made += t->id != SLUICE_NO_ID;
    if (x->s && x->victim)
        sluice_cancel(x->s, x->victim->id);
    return false;
}

static void finished(void *arg, const struct sluice_result *r)
{
    struct subject *x = arg;
    assert_true(r->count <= NEW_MAX);
    assert_true(r->count == x->made);
    memcpy(x->ids, r->ids, r->count * sizeof *r->ids);
    x->finish = r->finish;
    x->id = r->request;
    x->finished++;
}

struct subject subject_fresh(uint32_t i)
{
    struct subject x = truth[i];
    x.made = 0;
    x.bytes = 0;
    x.finished = 0;
    memset(x.ids, 0, sizeof x.ids);
    return x;
}

struct sluice_request subject_request(struct subject *x)
{
    uint32_t i = x->prompt[0] % 2;
    return (struct sluice_request){
        .size = sizeof(struct sluice_request), .ids = x->prompt,
        .count = x->count, .max_ids = x->max, .seed = x->count,
        .temperature = i ? 1.5 : 0, .top_p = i ? 0.99 : 0, .ignore_end = true,
        .arg = x, .token = token, .finished = finished };
}

struct sluice_options subject_options(uint32_t sequences)
{
    return (struct sluice_options){ .size = sizeof(struct sluice_options),
                                    .memory_bytes = 1u << 30, .threads = 2,
                                    .context = 64, .sequences = sequences,
                                    .rows = 24 };
}

struct sluice *subject_open_with(const struct sluice_options *o)
{
    struct sluice *s;
    struct sluice_error e = { 0 };
    if (sluice_open(&s, subject_model.dir, o, &e))
        fail_msg("%s", e.text);
    return s;
}

struct sluice *subject_open(uint32_t sequences)
{
    struct sluice_options o = subject_options(sequences);
    return subject_open_with(&o);
}

void subject_check(const struct subject *x, uint32_t i)
{
    assert_int_equal(x->finished, 1);
    assert_int_equal(x->finish, SLUICE_LENGTH);
    assert_int_equal(x->made, truth[i].made);
    assert_memory_equal(x->ids, truth[i].ids, x->made * sizeof *x->ids);
    assert_int_equal(x->bytes, truth[i].bytes);
    assert_memory_equal(x->text, truth[i].text, x->bytes);
}

int subjects_make(void **state)
{
    uint64_t seed = 3;
    (void)state;
    small_model_make(&subject_model, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct subject *x = &truth[i];
        x->count = 1 + small_model_random(&seed) % PROMPT_MAX;
        x->max = 2 + small_model_random(&seed) % (NEW_MAX - 1);
        for (uint32_t j = 0; j < x->count; j++)
            x->prompt[j] = small_model_random(&seed) % VOCAB;
        struct sluice *s = subject_open(1);
        struct sluice_request r = subject_request(x);
        assert_int_equal(sluice_generate(s, &r, NULL), 0);
        assert_int_equal(x->made, x->max);
        sluice_close(s);
    }
    return 0;
}

int subjects_remove(void **state)
{
    (void)state;
    small_model_remove(&subject_model);
    return 0;
}

bool subject_is_of(const char *schema, const char *text, size_t bytes)
{
    struct jv_doc doc, said;
    struct grammar *g;
    struct match *m;
    assert_int_equal(jv_parse(&doc, schema, strlen(schema), JV_STRICT, NULL),
                     0);
    assert_int_equal(grammar_schema(&g, doc.root, NULL), 0);
    assert_int_equal(match_open(&m, g), 0);
    bool good = match_push(m, text, bytes) == 1 && match_complete(m) &&
                !jv_parse(&said, text, bytes, JV_STRICT, NULL);
    if (good)
        jv_free(&said);
    match_close(m);
    grammar_free(g);
    jv_free(&doc);
    return good;
}

/* Goal    a sequence has the ids and logits that it has alone, in any company
 *         and any order of arrival, drafts or not; nobody waits for a long
 *         prompt; a pass reads the streamed trunk once and each distinct expert
 *         once, also when there are more of those than frames.
 * Method  requests of random lengths, greedy and sampled, with end ids and
 *         stops. What generate() gives for each of them alone is the truth.
 *         Then all of them go through one batch: few places and many, narrow
 *         passes and wide ones, requests that come late, the trunk resident and
 *         streamed. Ids and logits must be the same bytes. The routing callback
 *         counts distinct experts a layer and pass.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/ckpt/tensors.h"
#include "model/decode/batch.h"
#include "model/decode/generate.h"
#include "model/k3/tiles.h"
#include "tests/property/small_model.h"

enum {
    REQUESTS = 10,
    VOCAB = 512,
    PROMPT_MAX = 32,
    NEW_MAX = 12,
    TEXT = PROMPT_MAX + NEW_MAX
};

struct expected {
    uint32_t prompt[PROMPT_MAX], prompt_count, max;
    struct sample_options sample;
    bool     ignore_end;
    uint32_t ids[NEW_MAX], count;
    enum batch_reason reason;
    float   *logits; /* [rows][VOCAB] */
    uint32_t rows;
};

/* One model whose output is random, one whose output repeats. */
static struct small_model random_model, echo_model;
static struct expected random_truth[REQUESTS], echo_truth[REQUESTS];

static bool is_end(void *arg, uint32_t id)
{
    (void)arg;
    return id % 19 == 3;
}

static bool is_stop(uint64_t tag, uint32_t id)
{
    return tag % 3 == 0 && id % 13 == 5;
}

static int keep_row(void *arg, const float *row)
{
    struct expected *e = arg;
    memcpy(e->logits + (size_t)e->rows++ * VOCAB, row, VOCAB * sizeof *row);
    return 0;
}

static void make_truth(struct k3 *k, struct expected *e, uint32_t tag,
                       uint64_t *seed)
{
    struct generate_result result = { .ids = e->ids };
    struct error error = { 0 };
    uint32_t period = 3 + small_model_random(seed) % 60;
    e->prompt_count = 1 + small_model_random(seed) % PROMPT_MAX;
    e->max = 1 + small_model_random(seed) % NEW_MAX;
    for (uint32_t i = 0; i < e->prompt_count; i++)
        e->prompt[i] = i < period ? small_model_random(seed) % VOCAB
                                  : e->prompt[i - period];
    e->sample = (struct sample_options){ .top_p = 0.9, .seed = tag };
    e->sample.temperature = tag % 2 ? 0.8 : 0;
    e->ignore_end = tag % 4 == 1;
    e->logits = malloc(sizeof *e->logits * VOCAB * TEXT);
    struct generate_options g = { .prompt = e->prompt,
                                  .prompt_count = e->prompt_count,
                                  .max = e->max,
                                  .sample = e->sample,
                                  .ignore_end = e->ignore_end,
                                  .is_end = is_end,
                                  .logits = keep_row,
                                  .arg = e };
    k3_reset(k, 0);
    assert_int_equal(generate(k, &g, &result, &error), 0);
    e->count = result.count;
    e->reason = result.ended ? BATCH_END : BATCH_LENGTH;
    for (uint32_t i = 0; i < result.count; i++)
        if (is_stop(tag, e->ids[i])) {
            e->reason = BATCH_STOPPED;
            e->count = i + 1;
            e->rows = e->prompt_count + i;
            break;
        }
}

static void make_world(struct small_model *m, uint32_t echo,
                       struct expected *truth)
{
    uint64_t seed = 3;
    small_model_make(m, echo);
    struct k3_options o = small_model_options(1u << 30);
    struct k3 *k = small_model_open(m, &o);
    for (uint32_t t = 0; t < REQUESTS; t++)
        make_truth(k, &truth[t], t, &seed);
    k3_close(k);
}

static int set_up(void **state)
{
    (void)state;
    make_world(&random_model, 0, random_truth);
    make_world(&echo_model, 5, echo_truth);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < REQUESTS; t++) {
        free(random_truth[t].logits);
        free(echo_truth[t].logits);
    }
    small_model_remove(&random_model);
    small_model_remove(&echo_model);
    return 0;
}

/* ---- a job ---- */

struct job {
    const struct expected *truth;
    uint32_t order[REQUESTS], next, finished;
    uint32_t ids[REQUESTS][TEXT], rows[REQUESTS], said[REQUESTS];
    bool     late; /* requests come only now and then */
    bool     given; /* some have part of their text already */
    bool     cancel; /* some are cancelled */
    uint32_t cancelled;
    uint64_t seed;
    /* bytes */
    struct k3 *k;
    bool     chosen[8][64]; /* [layer][expert], of this pass */
    uint64_t distinct, embeds;
};

static bool next(void *arg, struct batch_request *out)
{
    struct job *j = arg;
    if (j->next == REQUESTS)
        return false;
    if (j->late && small_model_random(&j->seed) % 4)
        return false;
    uint32_t tag = j->order[j->next++];
    const struct expected *e = &j->truth[tag];
    memcpy(j->ids[tag], e->prompt, sizeof e->prompt);
    uint32_t given = j->given && tag % 2 && e->count > 1 ? e->count / 2 : 0;
    memcpy(j->ids[tag] + e->prompt_count, e->ids, given * sizeof *e->ids);
    j->said[tag] = given;
    *out = (struct batch_request){ .tag = tag,
                                   .ids = j->ids[tag],
                                   .prompt_count = e->prompt_count,
                                   .max = e->max,
                                   .given = given,
                                   .sample = e->sample,
                                   .ignore_end = e->ignore_end,
                                   .logits = true };
    assert_int_equal(batch_check(j->k, out, NULL), 0);
    return true;
}

static bool token(void *arg, uint64_t tag, uint32_t id)
{
    struct job *j = arg;
    assert_true(j->said[tag] < j->truth[tag].count);
    assert_int_equal(id, j->truth[tag].ids[j->said[tag]++]);
    return is_stop(tag, id);
}

/* One of five, as soon as it has said an id; one more before it has. */
static bool is_cancelled(void *arg, uint64_t tag)
{
    struct job *j = arg;
    return j->cancel && ((tag % 5 == 2 && j->said[tag]) || tag == 4);
}

static bool logits(void *arg, uint64_t tag, const float *row)
{
    struct job *j = arg;
    const struct expected *e = &j->truth[tag];
    assert_true(j->rows[tag] < e->rows);
    assert_memory_equal(row, e->logits + (size_t)j->rows[tag]++ * VOCAB,
                        VOCAB * sizeof *row);
    return false;
}

static void finished(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason)
{
    struct job *j = arg;
    const struct expected *e = &j->truth[tag];
    j->finished++;
    if (reason == BATCH_CANCELLED) {
        assert_true(is_cancelled(arg, tag));
        assert_int_equal(count, j->said[tag]);
        j->cancelled++;
        return;
    }
    assert_int_equal(count, e->count);
    assert_int_equal(j->said[tag], e->count);
    assert_int_equal(j->rows[tag], e->rows);
    assert_int_equal(reason, e->reason);
}

static void routed(void *arg, uint32_t layer, uint32_t row,
                   const uint32_t *ids, const float *weights,
                   const uint8_t *how)
{
    struct job *j = arg;
    (void)row, (void)weights, (void)how;
    for (uint32_t i = 0; i < k3_config(j->k)->top_k; i++) {
        j->distinct += !j->chosen[layer][ids[i]];
        j->chosen[layer][ids[i]] = true;
    }
}

/* The bytes of the pass are those of the trunk and the distinct experts. */
static void check_bytes(struct job *j)
{
    const struct k3_totals *last = k3_last(j->k);
    assert_int_equal(last->trunk_bytes,
                     k3_plan_of(j->k)->streamed_payload_bytes);
    assert_int_equal(last->demand_bytes,
                     j->distinct * expert_bytes(k3_config(j->k)));
    assert_int_equal(last->prefetch_bytes + last->wasted_bytes, 0);
    assert_int_equal(last->expert_items, j->distinct);
    j->distinct = 0;
    memset(j->chosen, 0, sizeof j->chosen);
}

struct variant {
    uint32_t places, rows, drafts;
    bool     adaptive, late, streamed, echo, given, cancel;
};

static void run(const struct variant *v, uint64_t seed)
{
    struct job *j = calloc(1, sizeof *j);
    struct error error = { 0 };
    const struct small_model *m = v->echo ? &echo_model : &random_model;
    j->truth = v->echo ? echo_truth : random_truth;
    struct k3_options o = small_model_options(1u << 30);
    o.sequences = v->places;
    o.rows = v->rows;
    o.drafts = v->drafts * v->places;
    o.policy = "none";
    o.prefetch = "none";
    o.routed = routed;
    o.routed_arg = j;
    if (v->streamed)
        o.memory_bytes = small_model_floor(m, o) + (200 << 10);
    j->k = small_model_open(m, &o);
    assert_int_equal(k3_plan_of(j->k)->streamed_tiles > 0, v->streamed);
    j->late = v->late;
    j->given = v->given;
    j->cancel = v->cancel;
    j->seed = seed;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t at = small_model_random(&seed) % (i + 1);
        j->order[i] = j->order[at];
        j->order[at] = i;
    }
    struct batch_options b = {
        .sequences = v->places, .draft = { v->drafts, v->adaptive },
        .next = next, .is_end = is_end, .token = token, .logits = logits,
        .cancelled = is_cancelled, .finished = finished, .arg = j };
    struct batch *batch;
    assert_int_equal(batch_open(&batch, j->k, &b, &error), 0);
    while (j->finished < REQUESTS) {
        int step = batch_step(batch, &error);
        assert_true(step == 1 || (step == 0 && v->late));
        if (step)
            check_bytes(j);
    }
    assert_int_equal(batch_step(batch, &error), 0);
    struct batch_counts counts = *batch_counts(batch);
    batch_close(batch);
    assert_int_equal(counts.finished, REQUESTS);
    assert_int_equal(counts.running, 0);
    assert_true((j->cancelled > 1) == v->cancel);
    if (v->drafts && !v->adaptive && !v->streamed)
        assert_true(counts.drafted > counts.accepted &&
                    (counts.accepted > 0) == v->echo);
    k3_close(j->k);
    free(j);
}

static void test_alone(void **state)
{
    (void)state;
    run(&(struct variant){ .places = 1, .rows = 32 }, 1);
}

static void test_together(void **state)
{
    (void)state;
    run(&(struct variant){ .places = 10, .rows = 64 }, 2);
    run(&(struct variant){ .places = 5, .rows = 6, .late = true }, 3);
}

static void test_given(void **state)
{
    (void)state;
    run(&(struct variant){ .places = 4, .rows = 11, .given = true }, 7);
}

static void test_cancel(void **state)
{
    (void)state;
    run(&(struct variant){ .places = 4, .rows = 32, .cancel = true }, 8);
    run(&(struct variant){ .places = 3, .rows = 9, .drafts = 4, .echo = true,
                           .cancel = true }, 9);
}

static void test_drafts(void **state)
{
    (void)state;
    run(&(struct variant){ .places = 4, .rows = 24, .drafts = 3,
                           .echo = true }, 4);
    run(&(struct variant){ .places = 3, .rows = 9, .drafts = 4, .echo = true,
                           .adaptive = true, .late = true }, 5);
}

static void test_streamed(void **state)
{
    (void)state;
    run(&(struct variant){ .places = 4, .rows = 32, .drafts = 1,
                           .streamed = true }, 6);
}

/* ---- fairness ---- */

enum { LONG_PROMPT = 4000 };

struct fair {
    uint32_t long_ids[LONG_PROMPT + 4], short_ids[8][40];
    uint32_t handed, said[9], stalls;
    uint32_t beside; /* passes that said ids while the long prompt was read */
    bool     started[9], over[9];
};

static bool fair_next(void *arg, struct batch_request *out)
{
    struct fair *f = arg;
    if (f->handed == 9)
        return false;
    uint32_t tag = f->handed++;
    bool is_long = tag == 2;
    *out = (struct batch_request){ .tag = tag,
                                   .ids = is_long ? f->long_ids
                                                  : f->short_ids[tag % 8],
                                   .prompt_count = is_long ? LONG_PROMPT : 3,
                                   .ignore_end = true,
                                   .max = is_long ? 4 : 30 };
    return true;
}

static bool fair_token(void *arg, uint64_t tag, uint32_t id)
{
    struct fair *f = arg;
    (void)id;
    f->said[tag]++;
    f->started[tag] = true;
    return false;
}

static void fair_finished(void *arg, uint64_t tag, uint32_t count,
                          enum batch_reason reason)
{
    struct fair *f = arg;
    (void)count, (void)reason;
    f->over[tag] = true;
}

/* Every sequence that has begun says an id in every pass, and a short prompt
 * takes one pass although the long one is being read. */
static void check_stalls(struct fair *f)
{
    f->beside += f->started[0] && !f->started[2];
    for (uint32_t t = 0; t < 4; t++) {
        bool waits = t != 2 && !f->said[t] && !f->over[t];
        f->stalls += waits;
        f->said[t] = 0;
    }
}

static void test_fair(void **state)
{
    (void)state;
    struct fair *f = calloc(1, sizeof *f);
    struct error error = { 0 };
    struct k3_options o = small_model_options(1u << 30);
    o.sequences = 4;
    o.rows = 256;
    o.context = 4096;
    struct k3 *k = small_model_open(&random_model, &o);
    struct batch_options b = {
        .sequences = 4, .next = fair_next, .token = fair_token,
        .finished = fair_finished, .arg = f };
    struct batch *batch;
    int step;
    assert_int_equal(batch_open(&batch, k, &b, &error), 0);
    while ((step = batch_step(batch, &error)) == 1)
        check_stalls(f);
    assert_int_equal(step, 0);
    assert_int_equal(batch_counts(batch)->finished, 9);
    batch_close(batch);
    assert_int_equal(f->stalls, 0);
    assert_true(f->beside >= LONG_PROMPT / 256);
    k3_close(k);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_fair),
    };
    return cmocka_run_group_tests_name("batch", tests, set_up, tear_down);
}

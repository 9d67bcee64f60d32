/* sampling.c - what a request asks of its ids: samplers, forms, probabilities.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/session_internal.h"

static int check_real(double value, double min, double max, const char *name,
                      struct error *error)
{
    if (value >= min && value <= max)
        return 0;
    return error_set(error, -EINVAL, "%s is not from %g to %g", name, min,
                     max);
}

/* What the text has to be. */
static int form_of(struct form *form, const struct sluice_request *r,
                   struct error *error)
{
    static const enum form_kind kind[] = { [SLUICE_FREE] = FORM_FREE,
                                           [SLUICE_JSON] = FORM_JSON,
                                           [SLUICE_SCHEMA] = FORM_SCHEMA,
                                           [SLUICE_PATTERN] = FORM_PATTERN };
    if (r->form < SLUICE_FREE || r->form > SLUICE_PATTERN)
        return error_set(error, -EINVAL, "there is no such form");
    *form = (struct form){ .kind = kind[r->form], .text = r->form_text,
                           .bytes = r->form_bytes, .chat = r->reply.chat,
                           .in_answer = r->reply.in_answer,
                           .calls = r->reply.chat && r->reply.calls,
                           .tools = r->tools, .tools_bytes = r->tools_bytes,
                           .must_call = r->must_call };
    if (form->kind > FORM_JSON && !form->text)
        return error_set(error, -EINVAL, "the form has no text");
    if (r->must_call && !(form->calls && r->tools))
        return error_set(error, -EINVAL, "a call is required, and there are no "
                         "tools");
    return 0;
}

int sampling_check(const struct sluice *s, const struct sluice_request *r,
                   struct error *error)
{
    if (!(r->temperature >= 0) || !isfinite(r->temperature))
        return error_set(error, -EINVAL, "temperature is not a number from 0");
    if (!(r->top_p > 0 && r->top_p <= 1))
        return error_set(error, -EINVAL,
                         "top_p is not above 0 and at most 1");
    int err = check_real(r->min_p, 0, 1, "min_p", error);
    if (!err)
        err = check_real(r->presence_penalty, -100, 100, "presence_penalty",
                         error);
    if (!err)
        err = check_real(r->frequency_penalty, -100, 100, "frequency_penalty",
                         error);
    if (!err)
        err = check_real(r->repetition_penalty, 0, 100, "repetition_penalty",
                         error);
    for (uint32_t i = 0; i < r->biases && !err; i++) {
        if (r->bias[i].id >= k3_config(s->k)->vocab)
            return error_set(error, -EINVAL, "a bias is of id %" PRIu32
                             ", the vocabulary has %" PRIu32, r->bias[i].id,
                             k3_config(s->k)->vocab);
        err = check_real((double)r->bias[i].add, -1e4, 1e4, "a bias", error);
    }
    if (!err && r->logprobs > 1 + SLUICE_LOGPROBS_MAX)
        err = error_set(error, -EINVAL, "logprobs is at most 1 + %d",
                        SLUICE_LOGPROBS_MAX);
    struct form form;
    if (!err)
        err = form_of(&form, r, error);
    if (!err && !form_is_free(&form) && !s->forms)
        err = error_set(error, -EINVAL, s->text
                                            ? "the session was opened without "
                                              "options.forms"
                                            : "the model has no tokenizer");
    return err;
}

static int open_form(struct request *q, const struct sluice *s,
                     const struct sluice_request *r, struct error *error)
{
    struct form form;
    int err = form_of(&form, r, error);
    if (err || form_is_free(&form))
        return err;
    err = constraint_open(&q->form, s->forms, &form, error);
    const uint32_t *given = r->ids + (r->count - r->given);
    for (uint32_t i = 0; i < r->given && !err; i++)
        if (!session_is_end((void *)(uintptr_t)s, given[i]) &&
            constraint_push(q->form, given[i]))
            err = error_set(error, -ENOMEM, "no memory for a form");
    return err;
}

int sampling_open(struct request *q, const struct sluice *s,
                  const struct sluice_request *r, struct error *error)
{
    int err = 0;
    if (r->biases) {
        q->bias = calloc(r->biases, sizeof *q->bias);
        for (uint32_t i = 0; q->bias && i < r->biases; i++)
            q->bias[i] = (struct sample_bias){ r->bias[i].id, r->bias[i].add };
    }
    if (r->logprobs)
        q->top = calloc(r->logprobs, sizeof *q->top);
    if ((r->biases && !q->bias) || (r->logprobs && !q->top))
        err = error_set(error, -ENOMEM, "no memory for a request");
    if (!err)
        err = open_form(q, s, r, error);
    if (err)
        sampling_close(q);
    return err;
}

void sampling_close(struct request *q)
{
    constraint_close(q->form);
    free(q->bias);
    free(q->top);
    q->form = NULL;
    q->bias = NULL;
    q->top = NULL;
}

struct sample_options sampling_options(const struct request *q)
{
    const struct sluice_request *r = &q->r;
    return (struct sample_options){
        .temperature = r->temperature, .top_p = r->top_p, .seed = r->seed,
        .top_k = r->top_k, .min_p = r->min_p,
        .presence = r->presence_penalty, .frequency = r->frequency_penalty,
        .repetition = r->repetition_penalty, .bias = q->bias,
        .biases = r->biases };
}

void sampling_chosen(struct request *q, uint32_t id, const float *logits,
                     uint32_t vocab)
{
    uint32_t wanted = q->r.logprobs - 1;
    double max = -INFINITY, sum = 0;
    q->tops = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        double l = (double)logits[i];
        max = l > max ? l : max;
        if (!wanted || (q->tops == wanted && l <= q->top[wanted - 1].logprob))
            continue;
        uint32_t at = q->tops < wanted ? q->tops++ : wanted - 1;
        for (; at && q->top[at - 1].logprob < l; at--)
            q->top[at] = q->top[at - 1];
        q->top[at] = (struct sluice_logprob){ i, l };
    }
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - max);
    double all = max + log(sum);
    q->logprob = (double)logits[id] - all;
    for (uint32_t i = 0; i < q->tops; i++)
        q->top[i].logprob -= all;
}

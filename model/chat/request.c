/* request.c - fields of a request that are not the conversation's. */
#include "model/chat/request.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int unsupported(struct refusal *r, const char *field)
{
    refusal_set(r, field, "this field is not supported");
    r->code = REFUSED_UNSUPPORTED;
    return -EINVAL;
}

/* ---- fields that are read ---- */

static int read_count(const struct jv *v, const char *field, uint32_t *out,
                      struct refusal *r)
{
    int64_t n;
    if (!v)
        return 0;
    double real;
    if (jv_integer(v, &n) && n >= 1)
        *out = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    else if (jv_real(v, &real) && real > UINT32_MAX && floor(real) == real)
        *out = UINT32_MAX; /* a limit that limits nothing */
    else
        return refusal_set(r, field, "it is not a whole number from 1");
    return 0;
}

static int read_flag(const struct jv *v, const char *field, bool *out,
                     struct refusal *r)
{
    if (v && !jv_is_bool(v))
        return refusal_set(r, field, "it is neither true nor false");
    if (v)
        *out = v->type == JV_TRUE;
    return 0;
}

static int add_stop(struct request *q, const struct jv *v, struct refusal *r)
{
    if (jv_is_empty(v))
        return 0;
    if (v->type != JV_STRING)
        return refusal_set(r, "stop",
                           "it is neither a text nor a list of texts");
    if (q->stops == REQUEST_STOPS_MAX)
        return refusal_set(r, "stop", "it has more than %d texts",
                           (int)REQUEST_STOPS_MAX);
    q->stop[q->stops++] = v;
    return 0;
}

static int read_stop(struct request *q, const struct jv *v, struct refusal *r)
{
    int err = 0;
    if (!jv_is_type(v, JV_ARRAY))
        return add_stop(q, v, r);
    for (const struct jv *s = jv_first(v); s && !err; s = jv_next(v, s))
        err = add_stop(q, s, r);
    return err;
}

static int read_stop_ids(struct request *q, const struct jv *list,
                         struct refusal *r)
{
    static const char *const name = "stop_token_ids";
    if (list && list->type != JV_ARRAY)
        return refusal_set(r, name, "it is not a list of token ids");
    for (const struct jv *v = jv_first(list); v; v = jv_next(list, v)) {
        int64_t id;
        if (!jv_integer(v, &id) || id < 0 || id > UINT32_MAX)
            return refusal_set(r, name, "it is not a list of token ids");
        if (q->stop_ids == REQUEST_STOPS_MAX)
            return refusal_set(r, name, "it has more than %d ids",
                               (int)REQUEST_STOPS_MAX);
        q->stop_id[q->stop_ids++] = (uint32_t)id;
    }
    return 0;
}

/* A chat says true and top_logprobs; a completion the number. */
static int read_logprobs(struct request *q, const struct jv *body,
                         struct refusal *r)
{
    const struct jv *all = jv_given(body, "logprobs");
    const struct jv *top = jv_given(body, "top_logprobs");
    int64_t n = 0;
    if (all && !jv_is_bool(all) &&
        (q->is_chat || !jv_integer(all, &n) || n < 0))
        return refusal_set(r, "logprobs",
                           q->is_chat ? "it is neither true nor false"
                                      : "it is not a whole number from 0");
    if (n > REQUEST_LOGPROBS_MAX)
        return refusal_set(r, "logprobs", "it is above %d",
                           (int)REQUEST_LOGPROBS_MAX);
    q->logprobs = all && all->type != JV_FALSE;
    q->top_logprobs = (uint32_t)n;
    if (!top)
        return 0;
    if (!jv_integer(top, &n) || n < 0 || n > REQUEST_LOGPROBS_MAX)
        return refusal_set(r, "top_logprobs",
                           "it is not a whole number from 0 to %d",
                           (int)REQUEST_LOGPROBS_MAX);
    if (n && !q->logprobs)
        return refusal_set(r, "top_logprobs", "it needs logprobs: true");
    if (n > q->top_logprobs)
        q->top_logprobs = (uint32_t)n;
    return 0;
}

static int read_choices(struct request *q, const struct jv *body,
                        struct refusal *r)
{
    uint32_t best = 0;
    q->choices = 1;
    int err = read_count(jv_given(body, "n"), "n", &q->choices, r);
    if (!err)
        err = read_count(jv_given(body, "best_of"), "best_of", &best, r);
    if (!err && q->choices > REQUEST_CHOICES_MAX)
        err = refusal_set(r, "n", "it is above %d", (int)REQUEST_CHOICES_MAX);
    if (!err && best && best != q->choices)
        err = unsupported(r, "best_of");
    return err;
}

/* What a form is made of: a schema is JSON, or JSON in a text. */
static int take_form(struct request *q, enum request_form form,
                     const struct jv *v, const char *field, struct refusal *r)
{
    bool good = v->type == JV_STRING ||
                (form == REQUEST_SCHEMA &&
                 (v->type == JV_OBJECT || jv_is_bool(v)));
    if (!good)
        return refusal_set(r, field,
                           form == REQUEST_SCHEMA ? "it is not a schema"
                                                  : "it is not a text");
    if (q->form != REQUEST_FREE)
        return refusal_set(r, field, "the answer has a format already");
    q->form = form;
    q->form_value = v;
    return 0;
}

static int read_form(struct request *q, const struct jv *body,
                     struct refusal *r)
{
    static const struct {
        const char *name;
        enum request_form form;
    } names[] = { { "regex", REQUEST_PATTERN },
                  { "guided_regex", REQUEST_PATTERN },
                  { "guided_json", REQUEST_SCHEMA } };
    static const enum request_form forms[] = { [CHAT_TEXT] = REQUEST_FREE,
                                               [CHAT_JSON] = REQUEST_JSON,
                                               [CHAT_SCHEMA] =
                                                   REQUEST_SCHEMA };
    int err = chat_read_format(&q->chat, body, r);
    q->form = forms[q->chat.format];
    q->form_value = q->chat.schema;
    for (size_t i = 0; i < sizeof names / sizeof *names && !err; i++) {
        const struct jv *v = jv_given(body, names[i].name);
        err = v ? take_form(q, names[i].form, v, names[i].name, r) : 0;
    }
    return err;
}

static int read_stream(struct request *q, const struct jv *body,
                       struct refusal *r)
{
    const struct jv *options = jv_given(body, "stream_options");
    int err = read_flag(jv_given(body, "stream"), "stream", &q->stream, r);
    if (!err && options && options->type != JV_OBJECT)
        err = refusal_set(r, "stream_options", "it is not an object");
    if (!err)
        err = read_flag(jv_given(options, "include_usage"),
                        "stream_options.include_usage", &q->stream_usage, r);
    return err;
}

static int read_plain(struct request *q, const struct jv *body,
                      struct refusal *r)
{
    const struct jv *ignore_end = jv_given(body, "ignore_eos");
    /* The newer name of the limit counts. */
    int err =
        read_count(jv_given(body, "max_tokens"), "max_tokens", &q->max, r);
    if (!err)
        err = read_count(jv_given(body, "max_completion_tokens"),
                         "max_completion_tokens", &q->max, r);
    if (!err)
        err = request_sampling(&q->sampling, body, r);
    if (!err)
        err = read_stop(q, jv_given(body, "stop"), r);
    if (!err)
        err = read_stop_ids(q, jv_given(body, "stop_token_ids"), r);
    if (!err)
        err = read_choices(q, body, r);
    if (!err)
        err = read_logprobs(q, body, r);
    if (!err)
        err = read_flag(jv_given(body, "echo"), "echo", &q->echo, r);
    if (!err && q->echo && (q->is_chat || q->logprobs))
        err = unsupported(r, "echo");
    q->bias = jv_given(body, "logit_bias");
    if (!err)
        err = read_flag(ignore_end, "ignore_eos", &q->ignore_end, r);
    q->has_ignore_end = ignore_end != NULL;
    if (!err)
        err = read_flag(jv_given(body, "return_token_ids"), "return_token_ids",
                        &q->want_ids, r);
    if (!err)
        err = read_stream(q, body, r);
    q->model = jv_given(body, "model");
    if (!err && q->model && q->model->type != JV_STRING)
        err = refusal_set(r, "model", "it is not a text");
    return err;
}

/* ---- fields that are only looked at ---- */

/* Fields that are supported with one value, that which changes nothing. */
static const struct neutral {
    const char *name;
    double number; /* NAN: no number is neutral */
    double other;
    const char *text; /* or NULL */
    int flag;         /* true, false, -1: neither */
} neutrals[] = {
    { "prompt_logprobs", NAN, NAN, NULL, -1 },
    { "typical_p", 1, 1, NULL, -1 },
    { "length_penalty", 1, 1, NULL, -1 },
    { "min_tokens", 0, 0, NULL, -1 },
    { "use_beam_search", NAN, NAN, NULL, 0 },
    { "early_stopping", NAN, NAN, NULL, 0 },
    { "include_stop_str_in_output", NAN, NAN, NULL, 0 },
    { "skip_special_tokens", NAN, NAN, NULL, 1 },
    { "spaces_between_special_tokens", NAN, NAN, NULL, 1 },
    { "add_generation_prompt", NAN, NAN, NULL, 1 },
    { "continue_final_message", NAN, NAN, NULL, 0 },
    { "add_special_tokens", NAN, NAN, NULL, 0 },
    { "include_reasoning", NAN, NAN, NULL, 1 },
    { "verbosity", NAN, NAN, "medium", -1 },
    /* no value but an empty one */
    { "suffix", NAN, NAN, NULL, -1 },
    { "prediction", NAN, NAN, NULL, -1 },
    { "audio", NAN, NAN, NULL, -1 },
    { "web_search_options", NAN, NAN, NULL, -1 },
};

static bool is_neutral(const struct neutral *n, const struct jv *v)
{
    double number;
    if (jv_is_bool(v))
        return n->flag == (v->type == JV_TRUE);
    if (v->type == JV_STRING)
        return n->text && jv_is(v, n->text);
    return jv_real(v, &number) && (number == n->number || number == n->other);
}

/* Fields that are read above, or that say nothing about the answer. */
static const char *const known[] = {
    "messages",
    "prompt",
    "model",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "stop",
    "stop_token_ids",
    "n",
    "best_of",
    "logprobs",
    "top_logprobs",
    "echo",
    "regex",
    "guided_regex",
    "guided_json",
    "ignore_eos",
    "return_token_ids",
    "stream",
    "stream_options",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "priority",
    "request_id",
    "modalities",
};

static bool is_in(const struct jv *key, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count && names[i]; i++)
        if (jv_is(key, names[i]))
            return true;
    return false;
}

static int check_modalities(const struct jv *v, struct refusal *r)
{
    const struct jv *only = jv_first(v);
    bool text =
        v && v->type == JV_ARRAY && v->bytes == 1 && jv_is(only, "text");
    return !v || text ? 0 : unsupported(r, "modalities");
}

/* Every field is one that is read, changes nothing, or says nothing. Equal keys
 * are all looked at. */
static int check_names(struct request *q, const struct jv *body,
                       const char *const *beside, bool lenient,
                       struct refusal *r)
{
    for (const struct jv *k = jv_first(body); k; k = jv_next(body, k)) {
        size_t i = 0, n = sizeof neutrals / sizeof *neutrals;
        if (jv_is_empty(k + 1) ||
            is_in(k, known, sizeof known / sizeof *known) ||
            (beside && is_in(k, beside, SIZE_MAX)) || chat_knows(k))
            continue;
        while (i < n && !jv_is(k, neutrals[i].name))
            i++;
        if (i < n && is_neutral(&neutrals[i], k + 1))
            continue;
        if (lenient) {
            q->ignored++;
            continue;
        }
        if (i < n)
            return unsupported(r, neutrals[i].name);
        refusal_set(r, k->text, "this field is not known");
        r->code = REFUSED_UNKNOWN;
        return -EINVAL;
    }
    return check_modalities(jv_given(body, "modalities"), r);
}

/* ---- the prompt of a completion ---- */

static bool is_id_list(const struct jv *v)
{
    return jv_is_type(v, JV_ARRAY) && jv_is_type(jv_first(v), JV_NUMBER);
}

static int read_prompt(struct request *q, const struct jv *v, struct refusal *r)
{
    q->prompt = v;
    q->prompts = 1;
    if (!v)
        return refusal_set(r, "prompt",
                           "there is neither a prompt nor messages");
    if (v->type == JV_STRING || is_id_list(v))
        return 0;
    q->prompts = v->type == JV_ARRAY ? v->bytes : 0;
    bool good = q->prompts > 0;
    for (const struct jv *p = jv_first(v); p && good; p = jv_next(v, p))
        good = p->type == JV_STRING || is_id_list(p);
    if (!good)
        return refusal_set(r, "prompt",
                           "it is not a text, a list of ids, or a list "
                           "of such");
    return 0;
}

static int read_ids(const struct jv *list, uint32_t vocab, struct id_list *out,
                    struct refusal *r)
{
    for (const struct jv *v = jv_first(list); v; v = jv_next(list, v)) {
        int64_t id;
        if (!jv_integer(v, &id))
            return refusal_set(r, "prompt",
                               "a list of ids has something else in "
                               "it");
        if (id < 0 || id >= vocab)
            return refusal_set(r, "prompt",
                               "token id %" PRId64 " is out of range, "
                               "the vocabulary has %" PRIu32,
                               id, vocab);
        if (id_list_push(out, (uint32_t)id))
            return -ENOMEM;
    }
    return 0;
}

int request_prompt(const struct request *q, uint32_t which, const struct tok *t,
                   uint32_t vocab, struct id_list *out, struct refusal *r)
{
    const struct jv *v = q->prompt;
    if (v->type == JV_ARRAY && !is_id_list(v)) {
        const struct jv *list = v;
        v = jv_first(list);
        while (which--)
            v = jv_next(list, v);
    }
    if (v->type == JV_ARRAY)
        return read_ids(v, vocab, out, r);
    if (t)
        return tok_encode(t, v->text, v->bytes, false, out);
    refusal_set(r, "prompt", "this model has no tokenizer: give a list of ids");
    r->code = REFUSED_UNSUPPORTED;
    return -EINVAL;
}

int request_read(struct request *q, const struct jv *body,
                 const struct request_sampling *defaults,
                 const char *const *beside, bool lenient, struct refusal *r)
{
    static const struct request_sampling off = { .top_p = 1, .repetition = 1 };
    memset(q, 0, sizeof *q);
    q->sampling = defaults ? *defaults : off;
    const struct jv *messages = jv_get(body, "messages");
    const struct jv *prompt = jv_get(body, "prompt");
    if (!jv_is_type(body, JV_OBJECT))
        return refusal_set(r, "", "the request is not an object");
    q->is_chat = messages && (!jv_is_empty(messages) || jv_is_empty(prompt));
    q->prompts = 1;
    if (q->is_chat && !jv_is_empty(prompt))
        return refusal_set(r, "prompt", "there are messages, too");
    int err = check_names(q, body, beside, lenient, r);
    if (!err)
        err = read_plain(q, body, r);
    if (!err && q->is_chat)
        err = chat_read(&q->chat, body, r);
    else if (!err)
        err = read_prompt(q, prompt, r);
    if (!err)
        err = read_form(q, body, r);
    return err;
}

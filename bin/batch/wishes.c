/* wishes.c - how the text of a job is chosen, what it has to be, and what is
 * told of its ids. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bin/batch/job_internal.h"
#include "bin/batch/keys.h"
#include "model/constraint.h"
#include "model/grammar/grammar.h"
#include "model/json/jv_write.h"

/* ---- samplers ---- */

/* Equal prompts differ, and a second run repeats. A seed of the request's own
 * is that of a prompt's first choice. */
static int choose_seed(struct batch_job *j, const struct batch_rules *rules,
                       const struct request *q)
{
    struct buffer b = { 0 };
    uint64_t hash[2];
    bool own = q->sampling.has_seed;
    uint32_t choice = own ? j->index % q->choices : j->index;
    j->r.seed = q->sampling.seed;
    if (own && !choice)
        return 0;
    buffer_format(&b, "%" PRIu64 "/%" PRIu32 "/",
                  own ? q->sampling.seed : rules->samplers->seed, choice);
    if (own)
        buffer_text(&b, "seed");
    else if (j->id_text.count)
        buffer_put(&b, j->id_text.bytes, j->id_text.count);
    else
        buffer_format(&b, "line %" PRIu64, j->line);
    bool failed = b.failed;
    if (!failed)
        batch_keys_hash(b.bytes, b.count, hash);
    buffer_free(&b);
    j->r.seed = failed ? 0 : hash[1];
    return failed ? -ENOMEM : 0;
}

static int take_biases(struct batch_job *j, const struct batch_rules *rules,
                       const struct request *q, struct error *error)
{
    struct request_bias bias[REQUEST_BIASES_MAX];
    struct refusal r = { 0 };
    uint32_t count;
    j->r.bias = rules->samplers->bias;
    j->r.biases = rules->samplers->biases;
    if (!q->bias)
        return 0;
    int err = request_biases(q->bias, rules->vocab, bias, &count, &r);
    if (err)
        return job_refused(j, err, &r, error);
    j->bias = calloc(count, sizeof *j->bias);
    if (!j->bias)
        return job_no_memory(j, error);
    for (uint32_t i = 0; i < count; i++)
        j->bias[i] = (struct sluice_bias){ bias[i].id, bias[i].add };
    j->r.bias = j->bias;
    j->r.biases = count;
    return 0;
}

/* ---- the form ---- */

static int check_schema(struct batch_job *j, struct grammar **g,
                        struct error *said)
{
    struct jv_wrong wrong;
    struct jv_doc d;
    int err = jv_parse(&d, j->r.form_text, j->r.form_bytes, JV_STRICT, &wrong);
    if (err == -EBADMSG)
        return error_set(said, -EINVAL, "not JSON: %s at byte %zu", wrong.what,
                         wrong.at + 1);
    if (err)
        return err;
    err = grammar_schema(g, d.root, said);
    jv_free(&d);
    return err;
}

static int refuse_form(struct batch_job *j, int err, const char *field,
                       const struct error *said, struct error *error)
{
    struct refusal r = { .code = REFUSED_INVALID };
    if (err != -ENOMEM)
        refusal_set(&r, field, "%.300s", said->text);
    if (err == -ENOTSUP)
        r.code = REFUSED_UNSUPPORTED;
    return job_refused(j, err, &r, error);
}

/* What is no form, or not served, is refused before anything is computed. */
static int check_form(struct batch_job *j, struct error *error)
{
    struct grammar *g = NULL;
    struct error said = { 0 };
    if (j->r.form == SLUICE_JSON || j->r.form == SLUICE_FREE)
        return 0;
    bool pattern = j->r.form == SLUICE_PATTERN;
    int err = pattern ? grammar_pattern(&g, j->r.form_text, j->r.form_bytes,
                                        &said)
                      : check_schema(j, &g, &said);
    grammar_free(g);
    return err ? refuse_form(j, err, pattern ? "regex" : "response_format",
                             &said, error)
               : 0;
}

/* Tools whose calls are kept to their schemas. */
static int take_tools(struct batch_job *j, const struct request *q,
                      struct error *error)
{
    struct grammar *g = NULL;
    struct error said = { 0 };
    if (!q->is_chat || !chat_keeps_calls(&q->chat))
        return 0;
    chat_offered(&j->tools, &q->chat);
    if (j->tools.failed)
        return job_no_memory(j, error);
    j->r.tools = j->tools.bytes;
    j->r.tools_bytes = j->tools.count;
    j->r.must_call = q->chat.choice == CHAT_REQUIRED;
    if (j->index)
        return 0; /* looked at before */
    int err = form_calls(&g, j->r.tools, j->r.tools_bytes, j->r.must_call,
                         &said);
    grammar_free(g);
    return err ? refuse_form(j, err, "tools", &said, error) : 0;
}

static int take_form(struct batch_job *j, const struct batch_rules *rules,
                     const struct request *q, struct error *error)
{
    static const enum sluice_form form[] = { [REQUEST_FREE] = SLUICE_FREE,
                                             [REQUEST_JSON] = SLUICE_JSON,
                                             [REQUEST_SCHEMA] = SLUICE_SCHEMA,
                                             [REQUEST_PATTERN] =
                                                 SLUICE_PATTERN };
    const struct jv *v = q->form_value;
    if (v && v->type == JV_STRING)
        buffer_put(&j->form, v->text, v->bytes);
    else if (v)
        jv_write(&j->form, v, JV_SPACED);
    if (j->form.failed)
        return job_no_memory(j, error);
    j->r.form = form[q->form];
    j->r.form_text = j->form.bytes;
    j->r.form_bytes = j->form.count;
    if (q->form == REQUEST_FREE) {
        j->r.form = rules->samplers->form;
        j->r.form_text = rules->samplers->form_text;
        j->r.form_bytes = rules->samplers->form_bytes;
    }
    int err = take_tools(j, q, error);
    if (err || (j->r.form == SLUICE_FREE && !j->r.tools))
        return err;
    /* The session's own reader of the reply knows the channel. */
    j->r.reply = (struct sluice_reply){ .chat = q->is_chat,
                                        .in_answer = q->chat.in_answer,
                                        .calls = q->chat.calls,
                                        .one_call = q->chat.one_call };
    if (!rules->tok || rules->no_forms)
        return job_refuse(j, REFUSED_UNSUPPORTED, error, "%s: %s",
                          j->r.tools ? "tools" : "response_format",
                          rules->tok ? "the memory has no room to keep a text "
                                       "of a pipe to a form (see --memory)"
                                     : "this model has no tokenizer");
    return j->index ? 0 : check_form(j, error);
}

int job_take_options(struct batch_job *j, const struct batch_rules *rules,
                     const struct request *q, struct error *error)
{
    j->r.size = sizeof j->r;
    samplers_request(&j->r, &q->sampling);
    j->r.ignore_end = q->has_ignore_end ? q->ignore_end
                                        : rules->samplers->ignore_eos;
    j->r.max_ids = q->max ? q->max : rules->max;
    j->chat = q->is_chat;
    j->prefill = q->chat.prefill;
    j->want_ids = q->want_ids;
    j->stream = q->stream;
    j->stream_usage = q->stream_usage;
    j->ignored = q->ignored;
    j->choices = q->choices;
    memcpy(j->stop_id, q->stop_id, sizeof j->stop_id);
    j->stop_ids = q->stop_ids;
    if (choose_seed(j, rules, q))
        return job_no_memory(j, error);
    int err = take_biases(j, rules, q, error);
    return err ? err : take_form(j, rules, q, error);
}

/* ---- the reader of the reply ---- */

/* A line's stop strings, or else the command's; they become the job's. */
static int add_stops(struct batch_job *j, const struct batch_rules *rules,
                     const struct request *q)
{
    const struct samplers_args *a = rules->samplers;
    uint32_t count = q->stops ? q->stops : a->stops;
    size_t bytes[REQUEST_STOPS_MAX], at = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = q->stops ? q->stop[i]->bytes : strlen(a->stop[i]);
        buffer_put(&j->stop, q->stops ? q->stop[i]->text : a->stop[i],
                   bytes[i]);
    }
    for (uint32_t i = 0; i < count && !j->stop.failed; i++) {
        int err = reply_add_stop(&j->reply, j->stop.bytes + at, bytes[i]);
        if (err)
            return err;
        at += bytes[i];
    }
    return j->stop.failed ? -ENOMEM : 0;
}

static int take_echo(struct batch_job *j, const struct batch_rules *rules)
{
    const char *bytes;
    for (uint32_t i = 0; i < j->prompt_count && rules->tok; i++) {
        size_t n = tok_piece(rules->tok, j->ids[i], &bytes);
        buffer_put(&j->echo, bytes, n);
    }
    return j->echo.failed ? -ENOMEM : 0;
}

static int open_scores(struct batch_job *j, const struct request *q)
{
    size_t tops = (size_t)j->r.max_ids * q->top_logprobs;
    j->r.logprobs = 1 + q->top_logprobs;
    j->score = calloc(j->r.max_ids, sizeof *j->score);
    j->top = calloc(tops + 1, sizeof *j->top);
    return j->score && j->top ? 0 : -ENOMEM;
}

int job_begin_reply(struct batch_job *j, const struct batch_rules *rules,
                    const struct request *q, struct error *error)
{
    const struct reply_options o = { .chat = q->is_chat,
                                     .in_answer = q->chat.in_answer,
                                     .calls = q->chat.calls,
                                     .one_call = q->chat.one_call };
    reply_init(&j->reply, rules->tok, &o);
    int err = add_stops(j, rules, q);
    if (rules->held_max && j->stop.count > rules->held_max)
        return job_refuse(j, REFUSED_INVALID, error,
                          "stop: the strings have more than %" PRIu32
                          " bytes", rules->held_max);
    if (!err && q->echo)
        err = take_echo(j, rules);
    if (!err && q->logprobs)
        err = open_scores(j, q);
    return err ? job_no_memory(j, error) : 0;
}

/* ---- ids ---- */

int batch_job_push(struct batch_job *j, uint32_t id)
{
    for (uint32_t i = 0; i < j->stop_ids; i++)
        if (j->stop_id[i] == id)
            return 1;
    int said = reply_push(&j->reply, id);
    /* Past end ids only a stop string ends the text. */
    return said > 0 && j->r.ignore_end ? j->reply.stopped : said;
}

int batch_job_token(struct batch_job *j, const struct sluice_token *t)
{
    assert(j->count < j->r.max_ids);
    if (j->score) {
        size_t each = j->r.logprobs - 1;
        struct answer_logprob *top = j->top + j->count * each;
        for (uint32_t i = 0; i < t->tops && i < each; i++)
            top[i] = (struct answer_logprob){ t->top[i].id,
                                              t->top[i].logprob };
        j->score[j->count] = (struct answer_score){
            .own = { t->id, t->logprob }, .region = reply_place(&j->reply),
            .top = top, .tops = t->tops };
    }
    j->ids[j->prompt_count + j->count++] = t->id;
    return batch_job_push(j, t->id);
}

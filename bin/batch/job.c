#include "bin/batch/job_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/json/jv_write.h"

struct batch_group {
    uint32_t jobs, left;   /* of the line; that still point here */
    uint32_t ended;
    struct batch_job part[]; /* [jobs], those that have ended */
};

int job_refuse(struct batch_job *j, const char *code, struct error *error,
               const char *format, ...)
{
    char text[sizeof error->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    j->code = code;
    return error_set(error, -EINVAL, "%s", text);
}

int job_no_memory(const struct batch_job *j, struct error *error)
{
    return error_set(error, -ENOMEM, "no memory for line %" PRIu64, j->line);
}

int job_refused(struct batch_job *j, int err, const struct refusal *r,
                struct error *error)
{
    if (err == -ENOMEM)
        return job_no_memory(j, error);
    snprintf(j->field, sizeof j->field, "%s", r->field);
    return job_refuse(j, r->code, error, "%s%s%s", r->field,
                      *r->field ? ": " : "", r->sentence);
}

/* ---- the line ---- */

int batch_job_read(struct batch_job *j, uint64_t line, const char *text,
                   size_t bytes, struct error *error)
{
    struct jv_wrong wrong;
    int64_t number;
    memset(j, 0, sizeof *j);
    j->line = line;
    int err = jv_parse(&j->doc, text, bytes, JV_STRICT, &wrong);
    if (err == -ENOMEM)
        return job_no_memory(j, error);
    if (err)
        return job_refuse(j, "invalid_json", error,
                           "not JSON: %s at byte %zu", wrong.what,
                           wrong.at + 1);
    if (j->doc.root->type != JV_OBJECT)
        return job_refuse(j, "invalid_json", error,
                           "the line is not an object");
    const struct jv *id = jv_get(j->doc.root, "custom_id");
    if (!id)
        id = jv_get(j->doc.root, "id");
    if (!jv_is_type(id, JV_STRING) && !jv_integer(id, &number))
        return job_refuse(j, REFUSED_INVALID, error,
                           "the line has no custom_id (text), or id");
    j->id = id;
    if (id->type == JV_STRING)
        jv_write_line_string(&j->id_text, id->text, id->bytes);
    else
        buffer_put(&j->id_text, id->raw, id->raw_bytes);
    return j->id_text.failed ? job_no_memory(j, error) : 0;
}

/* Is this the path of an endpoint, with or without a host and a version. */
static bool is_endpoint(const struct jv *url, const char *end)
{
    size_t n = strlen(end), bytes = url->bytes;
    const char *text = url->text;
    if (url->type != JV_STRING)
        return false;
    while (bytes > 0 && text[bytes - 1] == '/')
        bytes--;
    if (bytes < n || memcmp(text + bytes - n, end, n))
        return false;
    const char *before = text + bytes - n;
    return before == text || before[-1] == '/';
}

/* The part that asks. */
static int find_body(struct batch_job *j, const struct batch_rules *rules,
                     const struct jv **body, struct error *error)
{
    static const char *const outer[] = { "custom_id", "id", "method", "url",
                                         "body" };
    const struct jv *root = j->doc.root, *method, *url;
    *body = jv_get(root, "body");
    if (!*body) {
        *body = root;
        return 0;
    }
    if ((*body)->type != JV_OBJECT)
        return job_refuse(j, REFUSED_INVALID, error,
                           "body is not an object");
    for (const struct jv *k = jv_first(root); k; k = jv_next(root, k)) {
        size_t i = 0;
        while (i < 5 && !jv_is(k, outer[i]))
            i++;
        if (i == 5 && !jv_is_empty(k + 1) && !rules->lenient)
            return job_refuse(j, REFUSED_UNKNOWN, error,
                               "unknown field %.100s beside body", k->text);
    }
    method = jv_get(root, "method");
    if (!jv_is_empty(method) &&
        (method->type != JV_STRING || strcasecmp(method->text, "POST")))
        return job_refuse(j, REFUSED_INVALID, error, "method is not POST");
    url = jv_get(root, "url");
    bool chat = jv_get(*body, "messages") != NULL;
    if (jv_is_empty(url) || is_endpoint(url, "chat/completions") == chat)
        if (jv_is_empty(url) || is_endpoint(url, "completions"))
            return 0;
    return job_refuse(j, REFUSED_INVALID, error, "url is not %s",
                       chat ? "/v1/chat/completions, where messages are"
                            : "/v1/completions, where a prompt is");
}

/* One of the names served; or the folder, its name, or anything that says K3.
 */
static bool is_ours(const struct batch_rules *rules, const struct jv *model)
{
    for (size_t i = 0; rules->served && rules->served[i] && model; i++)
        if (jv_is(model, rules->served[i]))
            return true;
    if (rules->served)
        return !model;
    return !model || jv_is(model, rules->model) || jv_is(model, rules->name) ||
           strcasestr(model->text, "k3");
}

/* ---- what is asked ---- */

/* Room for the prompt and what follows it. */
static int fit(struct batch_job *j, const struct batch_rules *rules,
               struct id_list *prompt, struct error *error)
{
    snprintf(j->field, sizeof j->field, "%s", j->chat ? "messages" : "prompt");
    if (!prompt->count)
        return job_refuse(j, REFUSED_INVALID, error, "the prompt is empty");
    if (prompt->count > rules->context)
        return job_refuse(j, "context_length_exceeded", error,
                           "the prompt has %zu ids, the context %" PRIu32
                           " positions (see --context)",
                           prompt->count, rules->context);
    *j->field = 0;
    uint64_t room = (uint64_t)rules->context + 1 - prompt->count;
    if (j->r.max_ids > room)
        j->r.max_ids = (uint32_t)room;
    uint32_t *ids = realloc(prompt->ids,
                            (prompt->count + j->r.max_ids) * sizeof *ids);
    if (!ids)
        return job_no_memory(j, error);
    j->ids = ids;
    j->prompt_count = (uint32_t)prompt->count;
    *prompt = (struct id_list){ 0 };
    return 0;
}

/* Prompt number `which` of the line. */
static int encode(struct batch_job *j, const struct batch_rules *rules,
                  const struct request *q, uint32_t which,
                  struct id_list *prompt, struct error *error)
{
    struct refusal r = { 0 };
    struct error said = { 0 };
    int err;
    if (q->is_chat && !rules->tok)
        err = job_refuse(j, REFUSED_UNSUPPORTED, error,
                         "this model has no tokenizer: give a prompt that is "
                         "a list of ids");
    else if (q->is_chat)
        err = chat_encode(&q->chat, rules->tok, prompt, &said);
    else
        err = request_prompt(q, which, rules->tok, rules->vocab, prompt, &r);
    if (err == -ENOTSUP)
        err = job_refuse(j, REFUSED_UNSUPPORTED, error, "%s", said.text);
    else if (err && !error->code)
        err = job_refused(j, err, &r, error);
    return err;
}

int job_longest(struct batch_job *j, const struct batch_rules *rules,
                const struct request *q, uint64_t *ids, struct error *error)
{
    int err = 0;
    *ids = 0;
    for (uint32_t i = 0; i < q->prompts && !err; i++) {
        struct id_list prompt = { 0 };
        err = encode(j, rules, q, i, &prompt, error);
        *ids = prompt.count > *ids ? prompt.count : *ids;
        id_list_free(&prompt);
    }
    return err;
}

static int take_prompt(struct batch_job *j, const struct batch_rules *rules,
                       const struct request *q, struct error *error)
{
    struct id_list prompt = { 0 };
    int err = job_take_options(j, rules, q, error);
    if (!err)
        err = encode(j, rules, q, j->index / q->choices, &prompt, error);
    if (!err)
        err = fit(j, rules, &prompt, error);
    id_list_free(&prompt);
    return err ? err : job_begin_reply(j, rules, q, error);
}

/* A job for each choice of each prompt but the first, which `j` has. */
static int add_choices(struct batch_job *j, const struct batch_rules *rules,
                       const struct request *q, struct error *error)
{
    struct batch_job *last = j;
    uint32_t jobs = q->prompts * q->choices;
    struct batch_group *g = calloc(1, sizeof *g + jobs * sizeof *g->part);
    if (!g)
        return job_no_memory(j, error);
    *g = (struct batch_group){ .jobs = jobs, .left = 1 };
    j->group = g;
    for (uint32_t i = 1; i < jobs; i++) {
        struct batch_job *other = calloc(1, sizeof *other);
        if (!other)
            return job_no_memory(j, error);
        last = last->next = other;
        other->line = j->line;
        other->index = i;
        other->group = g;
        g->left++;
        buffer_put(&other->id_text, j->id_text.bytes, j->id_text.count);
        if (other->id_text.failed)
            return job_no_memory(j, error);
        int err = take_prompt(other, rules, q, error);
        if (err) {
            j->code = other->code;
            return err;
        }
    }
    return 0;
}

static void drop_others(struct batch_job *j)
{
    while (j->next) {
        struct batch_job *other = j->next;
        j->next = other->next;
        batch_job_free(other);
        free(other);
    }
}

static int read_request(struct batch_job *j, const struct batch_rules *rules,
                        const struct jv *body, const char *const *beside,
                        struct request *q, struct error *error)
{
    struct refusal r = { 0 };
    int err = request_read(q, body, &rules->samplers->chosen, beside,
                           rules->lenient, &r);
    if (err)
        return job_refused(j, err, &r, error);
    if (is_ours(rules, q->model))
        return 0;
    if (rules->served)
        return job_refuse(j, "model_not_found", error,
                          "model %.100s is not here: this is %.200s",
                          q->model->text, rules->name);
    return job_refuse(j, "model_not_found", error,
                      "model %.100s is not here: this is Kimi K3 in "
                      "%.200s",
                      q->model->text, rules->name);
}

int job_request(struct batch_job *j, const struct batch_rules *rules,
                struct request *q, struct error *error)
{
    static const char *const beside[] = { "custom_id", "id", NULL };
    const struct jv *body;
    int err = find_body(j, rules, &body, error);
    return err ? err
               : read_request(j, rules, body,
                              body == j->doc.root ? beside : NULL, q, error);
}

/* The jobs of a request that was read. */
static int make_jobs(struct batch_job *j, const struct batch_rules *rules,
                     const struct request *q, struct error *error)
{
    uint32_t most = rules->one_prompt ? 1 : BATCH_PROMPTS_MAX;
    if (q->prompts > most || q->choices > most / q->prompts)
        return job_refuse(j, REFUSED_UNSUPPORTED, error,
                          "%s: %" PRIu64 " texts in one request, where %" PRIu32
                          "%s supported",
                          q->choices > 1 ? "n" : "prompt",
                          (uint64_t)q->prompts * q->choices, most,
                          most == 1 ? " (--logits) is" : " are");
    int err = take_prompt(j, rules, q, error);
    if (!err && q->prompts * q->choices > 1)
        err = add_choices(j, rules, q, error);
    if (err) {
        drop_others(j);
        return err;
    }
    jv_free(&j->doc);
    j->id = NULL;
    return 0;
}

int batch_job_body(struct batch_job *j, const struct batch_rules *rules,
                   struct error *error)
{
    struct request q;
    int err = job_request(j, rules, &q, error);
    return err ? err : make_jobs(j, rules, &q, error);
}

int batch_job_request(struct batch_job *j, uint64_t number, const char *text,
                      size_t bytes, const struct batch_rules *rules,
                      struct error *error)
{
    struct jv_wrong wrong;
    struct request q;
    memset(j, 0, sizeof *j);
    j->line = number;
    int err = jv_parse(&j->doc, text, bytes, JV_STRICT, &wrong);
    if (err == -ENOMEM)
        return error_set(error, err, "no memory for a request");
    if (err)
        return job_refuse(j, "invalid_json", error,
                          "the body is not JSON: %s at byte %zu", wrong.what,
                          wrong.at + 1);
    err = read_request(j, rules, j->doc.root, NULL, &q, error);
    return err ? err : make_jobs(j, rules, &q, error);
}

int batch_job_end(struct batch_job *j, uint32_t count,
                  enum sluice_finish finish)
{
    struct batch_group *g = j->group;
    assert(count <= j->r.max_ids);
    int said = reply_end(&j->reply, finish == SLUICE_LENGTH);
    if (said < 0)
        return said;
    if (finish == SLUICE_LENGTH && j->r.ignore_end)
        j->reply.reason = REPLY_LENGTH;
    j->count = count;
    j->finish = finish;
    if (!g)
        return 1;
    struct batch_job *part = &g->part[j->index];
    *part = *j;
    part->group = NULL;
    part->next = NULL;
    *j = (struct batch_job){ .after = part->after, .owner = part->owner,
                             .line = part->line, .group = g };
    if (++g->ended == g->jobs)
        return 1;
    g->left--;
    j->group = NULL;
    return 0;
}

const struct batch_job *batch_job_parts(const struct batch_job *j,
                                        uint32_t *count)
{
    *count = j->group ? j->group->jobs : 1;
    return j->group ? j->group->part : j;
}

static void leave_group(struct batch_group *g)
{
    if (!g || --g->left > 0)
        return;
    for (uint32_t i = 0; i < g->jobs; i++)
        batch_job_free(&g->part[i]);
    free(g);
}

void batch_job_free(struct batch_job *j)
{
    leave_group(j->group);
    jv_free(&j->doc);
    buffer_free(&j->id_text);
    reply_free(&j->reply);
    buffer_free(&j->stop);
    buffer_free(&j->form);
    buffer_free(&j->tools);
    buffer_free(&j->echo);
    free(j->bias);
    free(j->score);
    free(j->top);
    free(j->ids);
    memset(j, 0, sizeof *j);
}

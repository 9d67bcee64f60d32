#include "bin/batch_job.h"

#include "bin/batch_prompt.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int batch_refuse(struct batch_job *j, const char *code, struct why *why,
                 const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    j->code = code;
    return why_set(why, -EINVAL, "%s", text);
}

static int invalid(struct batch_job *j, struct why *why, const char *name,
                   const char *want)
{
    return batch_refuse(j, "invalid_request", why, "%s is not %s", name, want);
}

/* ---- the line ---- */

int batch_job_read(struct batch_job *j, uint64_t line, const char *text,
                   size_t bytes, struct why *why)
{
    json_error_t e;
    memset(j, 0, sizeof *j);
    j->line = line;
    j->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                         &e);
    if (!j->root && json_error_code(&e) == json_error_out_of_memory)
        return why_set(why, -ENOMEM, "no memory for line %" PRIu64, line);
    if (!j->root)
        return batch_refuse(j, "invalid_json", why, "not JSON: %s at byte %d",
                            e.text, e.position);
    if (!json_is_object(j->root))
        return batch_refuse(j, "invalid_json", why, "the line is not an "
                            "object");
    json_t *id = json_object_get(j->root, "custom_id");
    if (!id)
        id = json_object_get(j->root, "id");
    if (!json_is_string(id) && !json_is_integer(id))
        return batch_refuse(j, "invalid_request", why, "the line has no "
                            "custom_id (text), or id");
    j->id = json_incref(id);
    return 0;
}

/* ---- fields ---- */

typedef int field_fn(struct batch_job *j, const struct batch_rules *rules,
                     const char *name, json_t *value, struct why *why);

static int read_most(struct batch_job *j, const struct batch_rules *rules,
                     const char *name, json_t *value, struct why *why)
{
    json_int_t n = json_integer_value(value);
    (void)rules;
    if (!json_is_integer(value) || n < 1)
        return invalid(j, why, name, "a whole number from 1");
    j->r.most = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return 0;
}

static int read_temperature(struct batch_job *j,
                            const struct batch_rules *rules, const char *name,
                            json_t *value, struct why *why)
{
    double t = json_number_value(value);
    (void)rules;
    if (!json_is_number(value) || t < 0 || !isfinite(t))
        return invalid(j, why, name, "a number from 0");
    j->r.sample.temperature = t;
    return 0;
}

static int read_top_p(struct batch_job *j, const struct batch_rules *rules,
                      const char *name, json_t *value, struct why *why)
{
    double p = json_number_value(value);
    (void)rules;
    if (!json_is_number(value) || !(p > 0 && p <= 1))
        return invalid(j, why, name, "a number above 0 and at most 1");
    j->r.sample.top_p = p;
    return 0;
}

static int read_seed(struct batch_job *j, const struct batch_rules *rules,
                     const char *name, json_t *value, struct why *why)
{
    (void)rules;
    if (!json_is_integer(value))
        return invalid(j, why, name, "a whole number");
    j->r.sample.seed = (uint64_t)json_integer_value(value);
    return 0;
}

static int read_flag(struct batch_job *j, const struct batch_rules *rules,
                     const char *name, json_t *value, struct why *why)
{
    (void)rules;
    if (!json_is_boolean(value))
        return invalid(j, why, name, "true or false");
    if (!strcmp(name, "ignore_eos"))
        j->r.ignore_end = json_is_true(value);
    else
        j->want_ids = json_is_true(value);
    return 0;
}

static int read_stop(struct batch_job *j, const struct batch_rules *rules,
                     const char *name, json_t *value, struct why *why)
{
    json_t *list = json_is_array(value) ? json_incref(value)
                                        : json_pack("[O]", value);
    size_t i;
    json_t *text;
    (void)rules;
    j->stop = list;
    if (!list)
        return why_set(why, -ENOMEM, "no memory for a stop string");
    if (json_array_size(list) > REPLY_STOPS_MAX)
        return invalid(j, why, name, "a text or at most 16 of them");
    json_array_foreach(list, i, text) {
        const char *s = json_string_value(text);
        if (!s || !*s || strlen(s) != json_string_length(text))
            return invalid(j, why, name, "a text or a list of texts, none of "
                           "them empty");
    }
    return 0;
}

/* The folder, its name, or anything that says K3. */
static int read_model(struct batch_job *j, const struct batch_rules *rules,
                      const char *name, json_t *value, struct why *why)
{
    const char *want = json_string_value(value);
    if (!want)
        return invalid(j, why, name, "a text");
    if (!strcmp(want, rules->model) || !strcmp(want, rules->name) ||
        strcasestr(want, "k3"))
        return 0;
    return batch_refuse(j, "model_not_found", why, "model %.100s is not here: "
                        "this is Kimi K3 in %.200s", want, rules->model);
}

/* Fields that are served only with a value that changes nothing. */
static bool is_neutral(const char *name, json_t *value)
{
    static const char *const choices[] = { "n", "best_of" };
    for (int i = 0; i < 2; i++)
        if (!strcmp(name, choices[i]))
            return json_is_integer(value) && json_integer_value(value) == 1;
    if (!strcmp(name, "response_format")) {
        const char *type =
            json_string_value(json_object_get(value, "type"));
        return type && !strcmp(type, "text");
    }
    if (!strcmp(name, "tool_choice")) {
        const char *choice = json_string_value(value);
        return choice && (!strcmp(choice, "none") || !strcmp(choice, "auto"));
    }
    return json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && !json_string_length(value)) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

static int read_neutral(struct batch_job *j, const struct batch_rules *rules,
                        const char *name, json_t *value, struct why *why)
{
    (void)rules;
    return is_neutral(name, value)
               ? 0
               : batch_refuse(j, "unsupported", why, "%s is not served",
                              name);
}

static int ignore(struct batch_job *j, const struct batch_rules *rules,
                  const char *name, json_t *value, struct why *why)
{
    (void)j, (void)rules, (void)name, (void)value, (void)why;
    return 0;
}

static const struct field {
    const char *name;
    field_fn   *read;
} fields[] = {
    { "model", read_model },
    { "max_tokens", read_most },
    { "max_completion_tokens", read_most },
    { "temperature", read_temperature },
    { "top_p", read_top_p },
    { "seed", read_seed },
    { "stop", read_stop },
    { "ignore_eos", read_flag },
    { "return_token_ids", read_flag },
    /* read with the prompt */
    { "prompt", ignore },
    { "messages", ignore },
    { "reasoning_effort", ignore },
    { "chat_template_kwargs", ignore },
    /* say nothing about the text */
    { "user", ignore },
    { "metadata", ignore },
    { "store", ignore },
    { "service_tier", ignore },
    { "stream_options", ignore },
    { "parallel_tool_calls", ignore },
    { "safety_identifier", ignore },
    { "prompt_cache_key", ignore },
    { "n", read_neutral },
    { "best_of", read_neutral },
    { "stream", read_neutral },
    { "echo", read_neutral },
    { "suffix", read_neutral },
    { "logprobs", read_neutral },
    { "top_logprobs", read_neutral },
    { "logit_bias", read_neutral },
    { "presence_penalty", read_neutral },
    { "frequency_penalty", read_neutral },
    { "tools", read_neutral },
    { "tool_choice", read_neutral },
    { "functions", read_neutral },
    { "function_call", read_neutral },
    { "response_format", read_neutral },
};

static int read_fields(struct batch_job *j, const struct batch_rules *rules,
                       json_t *body, struct why *why)
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value) {
        size_t i = 0, n = sizeof fields / sizeof *fields;
        if (body == j->root && (!strcmp(name, "id") ||
                                !strcmp(name, "custom_id")))
            continue;
        while (i < n && strcmp(fields[i].name, name))
            i++;
        if (i == n)
            return batch_refuse(j, "unknown_field", why, "unknown field "
                                "%.100s", name);
        int err = json_is_null(value)
                      ? 0
                      : fields[i].read(j, rules, name, value, why);
        if (err)
            return err;
    }
    return 0;
}

/* ---- the whole ---- */

/* The part that asks, and whether it is a chat. */
static int find_body(struct batch_job *j, json_t **body, struct why *why)
{
    static const char *const outer[] = { "custom_id", "method", "url",
                                         "body" };
    const char *name, *method, *url;
    json_t *value;
    *body = json_object_get(j->root, "body");
    if (!*body) {
        *body = j->root;
        j->chat = json_object_get(j->root, "messages") != NULL;
        return 0;
    }
    if (!json_is_object(*body))
        return invalid(j, why, "body", "an object");
    json_object_foreach(j->root, name, value) {
        size_t i = 0;
        while (i < 4 && strcmp(outer[i], name))
            i++;
        if (i == 4)
            return batch_refuse(j, "unknown_field", why, "unknown field "
                                "%.100s", name);
    }
    value = json_object_get(j->root, "method");
    method = json_string_value(value);
    if (value && (!method || strcmp(method, "POST")))
        return invalid(j, why, "method", "POST");
    value = json_object_get(j->root, "url");
    url = json_string_value(value);
    j->chat = json_object_get(*body, "messages") != NULL;
    if (value && (!url || strcmp(url, j->chat ? "/v1/chat/completions"
                                              : "/v1/completions")))
        return invalid(j, why, "url", j->chat
                       ? "/v1/chat/completions, where messages are"
                       : "/v1/completions, where a prompt is");
    return 0;
}

/* Room for the prompt and what follows it, if that fits the context. */
static int fit(struct batch_job *j, const struct batch_rules *rules,
               struct id_list *prompt, bool says_most, struct why *why)
{
    if (!prompt->count)
        return batch_refuse(j, "invalid_request", why, "the prompt is empty");
    if (prompt->count > rules->context)
        return batch_refuse(j, "context_length_exceeded", why, "the prompt "
                            "has %zu ids, the context %" PRIu32 " positions "
                            "(see --context)", prompt->count, rules->context);
    uint64_t room = (uint64_t)rules->context + 1 - prompt->count;
    if (j->r.most > room && says_most)
        return batch_refuse(j, "context_length_exceeded", why, "a prompt of "
                            "%zu ids and %" PRIu32 " new ones do not fit the "
                            "context of %" PRIu32 " positions (see "
                            "--context)", prompt->count, j->r.most,
                            rules->context);
    if (j->r.most > room)
        j->r.most = (uint32_t)room;
    uint32_t *ids = realloc(prompt->ids, (prompt->count + j->r.most) *
                                             sizeof *ids);
    if (!ids)
        return why_set(why, -ENOMEM, "no memory for a prompt");
    j->r.ids = ids;
    j->r.prompt_count = (uint32_t)prompt->count;
    *prompt = (struct id_list){ 0 };
    return 0;
}

int batch_job_body(struct batch_job *j, const struct batch_rules *rules,
                   struct why *why)
{
    json_t *body;
    struct id_list prompt = { 0 };
    bool thinking = false;
    int err = find_body(j, &body, why);
    j->r.sample = rules->sample;
    j->r.ignore_end = rules->ignore_end;
    if (!err)
        err = read_fields(j, rules, body, why);
    if (!err)
        err = batch_prompt(j, rules, body, &prompt, &thinking, why);
    bool says_most = j->r.most;
    j->r.most = says_most ? j->r.most : rules->most;
    if (!err)
        err = fit(j, rules, &prompt, says_most, why);
    id_list_free(&prompt);
    if (err)
        return err;
    reply_init(&j->reply, rules->tok, j->chat, thinking);
    for (size_t i = 0; i < json_array_size(j->stop); i++)
        reply_add_stop(&j->reply,
                       json_string_value(json_array_get(j->stop, i)));
    json_decref(j->root);
    j->root = NULL;
    return 0;
}

void batch_job_free(struct batch_job *j)
{
    json_decref(j->root);
    json_decref(j->id);
    json_decref(j->stop);
    reply_free(&j->reply);
    free(j->r.ids);
    memset(j, 0, sizeof *j);
}

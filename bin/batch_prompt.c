#include "bin/batch_prompt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat.h"

static int no_memory(struct why *why)
{
    return why_set(why, -ENOMEM, "no memory for a prompt");
}

static int no_text(struct batch_job *j, struct why *why)
{
    return batch_refuse(j, "unsupported", why, "this model has no tokenizer: "
                        "a prompt is a list of ids");
}

static int read_ids(struct batch_job *j, const struct batch_rules *rules,
                    json_t *list, struct id_list *out, struct why *why)
{
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value))
            return batch_refuse(j, "invalid_request", why, "prompt is not "
                                "one text or one list of ids");
        if (id < 0 || id >= rules->vocab)
            return batch_refuse(j, "invalid_request", why, "token id "
                                "%" JSON_INTEGER_FORMAT " is out of range, "
                                "the vocabulary has %" PRIu32, id,
                                rules->vocab);
        if (id_list_push(out, (uint32_t)id))
            return no_memory(why);
    }
    return 0;
}

static int read_prompt(struct batch_job *j, const struct batch_rules *rules,
                       json_t *prompt, struct id_list *out, struct why *why)
{
    if (json_is_array(prompt))
        return read_ids(j, rules, prompt, out, why);
    if (!json_is_string(prompt))
        return batch_refuse(j, "invalid_request", why, "the line has no "
                            "prompt and no messages");
    if (!rules->tok)
        return no_text(j, why);
    if (tok_encode(rules->tok, json_string_value(prompt),
                   json_string_length(prompt), false, out))
        return no_memory(why);
    return 0;
}

/* ---- messages ---- */

/* The texts of a message's content. parts[] has room for all of them. */
static int read_content(struct batch_job *j, json_t *content,
                        struct chat_message *m, struct chat_part *part,
                        struct why *why)
{
    size_t i;
    json_t *each;
    if (!content || json_is_null(content))
        return 0;
    if (json_is_string(content)) {
        m->content = json_string_value(content);
        m->content_bytes = json_string_length(content);
        return 0;
    }
    m->part = part;
    m->parts = json_array_size(content);
    json_array_foreach(content, i, each) {
        const char *type = json_string_value(json_object_get(each, "type"));
        json_t *text = json_object_get(each, "text");
        if (!type || strcmp(type, "text") || !json_is_string(text))
            return batch_refuse(j, "unsupported", why, "content of type "
                                "%.60s is not served, only text",
                                type ? type : "(none)");
        part[i].text = json_string_value(text);
        part[i].bytes = json_string_length(text);
    }
    if (!json_is_array(content))
        return batch_refuse(j, "invalid_request", why, "content is not a text "
                            "or a list of parts");
    return 0;
}

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_array(value) && !json_array_size(value));
}

static int read_message(struct batch_job *j, json_t *from,
                        struct chat_message *m, struct chat_part *part,
                        struct why *why)
{
    static const char *const known[] = { "role", "content", "name",
                                         "reasoning_content", "tool_calls",
                                         "refusal" };
    const char *name;
    json_t *value;
    if (!json_is_object(from))
        return batch_refuse(j, "invalid_request", why, "a message is not an "
                            "object");
    json_object_foreach(from, name, value) {
        size_t i = 0, n = sizeof known / sizeof *known;
        while (i < n && strcmp(known[i], name))
            i++;
        if (i == n || (i >= 4 && !is_empty(value)))
            return batch_refuse(j, "unsupported", why, "%.100s of a message "
                                "is not served", name);
    }
    m->role = json_string_value(json_object_get(from, "role"));
    if (m->role && !strcmp(m->role, "tool"))
        return batch_refuse(j, "unsupported", why, "tools are not served");
    m->name = json_string_value(json_object_get(from, "name"));
    value = json_object_get(from, "reasoning_content");
    m->reasoning = json_string_value(value);
    m->reasoning_bytes = json_string_length(value);
    return read_content(j, json_object_get(from, "content"), m, part, why);
}

/* reasoning_effort: none, low, high, max; chat_template_kwargs.thinking. */
static int read_thinking(struct batch_job *j, json_t *body,
                         struct chat_options *o, struct why *why)
{
    json_t *effort = json_object_get(body, "reasoning_effort");
    json_t *more = json_object_get(body, "chat_template_kwargs");
    const char *name;
    json_t *value;
    *o = chat_default;
    if (effort && !json_is_null(effort)) {
        o->effort = json_string_value(effort);
        if (!o->effort)
            return batch_refuse(j, "invalid_request", why, "reasoning_effort "
                                "is not none, low, high or max");
        o->thinking = strcmp(o->effort, "none") != 0;
    }
    json_object_foreach(more, name, value) {
        if (strcmp(name, "thinking") || !json_is_boolean(value))
            return batch_refuse(j, "unsupported", why, "chat_template_kwargs "
                                "serves only thinking, true or false");
        o->thinking = json_is_true(value);
    }
    if (!o->thinking)
        o->effort = NULL;
    return 0;
}

static int render(struct batch_job *j, const struct batch_rules *rules,
                  json_t *list, const struct chat_options *o,
                  struct id_list *out, struct why *why)
{
    size_t n = json_array_size(list), parts = 0, i;
    json_t *each;
    json_array_foreach(list, i, each)
        parts += json_array_size(json_object_get(each, "content"));
    struct chat_message *m = calloc(n, sizeof *m);
    struct chat_part *part = calloc(parts + 1, sizeof *part);
    int err = m && part ? 0 : no_memory(why);
    parts = 0;
    for (i = 0; i < n && !err; i++) {
        err = read_message(j, json_array_get(list, i), &m[i], part + parts,
                           why);
        parts += m[i].parts;
    }
    if (!err) {
        struct why said = { 0 };
        err = chat_render(rules->tok, m, n, o, out, &said);
        if (err == -ENOMEM)
            err = no_memory(why);
        else if (err)
            err = batch_refuse(j, "invalid_request", why, "%s", said.text);
    }
    free(m);
    free(part);
    return err;
}

int batch_prompt(struct batch_job *j, const struct batch_rules *rules,
                 json_t *body, struct id_list *out, bool *thinking,
                 struct why *why)
{
    json_t *messages = json_object_get(body, "messages");
    struct chat_options o;
    int err = read_thinking(j, body, &o, why);
    if (err)
        return err;
    if (!j->chat)
        return read_prompt(j, rules, json_object_get(body, "prompt"), out,
                           why);
    *thinking = o.thinking;
    if (json_object_get(body, "prompt"))
        return batch_refuse(j, "invalid_request", why, "the line has a prompt "
                            "and messages");
    if (!json_is_array(messages) || !json_array_size(messages))
        return batch_refuse(j, "invalid_request", why, "messages is not a "
                            "list of messages");
    if (!rules->tok)
        return no_text(j, why);
    return render(j, rules, messages, &o, out, why);
}

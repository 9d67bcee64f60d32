/* chat_read.c - what a chat request asks for: format, choice, thinking. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "model/chat/chat_internal.h"

/* An effort as requests name it, as the prompt does. "" is none. */
static const char *effort_of(const struct jv *v)
{
    static const struct {
        const char *name, *effort;
    } efforts[] = {
        { "none", "" },       { "minimal", "low" }, { "low", "low" },
        { "medium", "high" }, { "high", "high" },   { "xhigh", "max" },
        { "max", "max" },     { "ultra", "max" },
    };
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (jv_is(v, efforts[i].name))
            return efforts[i].effort;
    return NULL;
}

/* Take an effort; the first that is there stays. */
static int take_effort(const struct jv *v, const char *field,
                       const char **effort, struct refusal *r)
{
    if (jv_is_empty(v))
        return 0;
    const char *named = effort_of(v);
    if (!named)
        return refusal_set(r, field,
                           "it is none of none, minimal, low, medium, "
                           "high, xhigh, max and ultra");
    if (!*effort)
        *effort = named;
    return 0;
}

static int take_bool(const struct jv *v, const char *field, int *out,
                     struct refusal *r)
{
    if (!v)
        return 0;
    if (!jv_is_bool(v))
        return refusal_set(r, field, "it is neither true nor false");
    if (*out < 0)
        *out = v->type == JV_TRUE;
    return 0;
}

/* Only these members, and those that say nothing. */
static int only(const struct jv *object, const char *field,
                const char *const *known, size_t count, struct refusal *r)
{
    char path[160];
    for (const struct jv *k = jv_first(object); k; k = jv_next(object, k)) {
        size_t i = 0;
        while (i < count && !jv_is(k, known[i]))
            i++;
        if (i < count || jv_is_empty(k + 1))
            continue;
        snprintf(path, sizeof path, "%s.%.100s", field, k->text);
        return refusal_set(r, path, "this field is not known");
    }
    return 0;
}

/* thinking: true, false, or {"type": .., "effort": .., "keep": ..}. */
static int read_object(const struct jv *v, int *on, const char **effort,
                       struct refusal *r)
{
    static const char *const known[] = { "type", "effort", "keep" };
    const struct jv *type = jv_given(v, "type");
    if (!v || jv_is_bool(v))
        return take_bool(v, "thinking", on, r);
    if (v->type != JV_OBJECT)
        return refusal_set(r, "thinking",
                           "it is neither an object nor true or "
                           "false");
    if (jv_is(type, "enabled") || jv_is(type, "adaptive"))
        *on = *on < 0 ? 1 : *on;
    else if (jv_is(type, "disabled"))
        *on = *on < 0 ? 0 : *on;
    else if (!jv_is_empty(type))
        return refusal_set(r, "thinking.type",
                           "it is none of enabled, disabled "
                           "and adaptive");
    int err = take_effort(jv_given(v, "effort"), "thinking.effort", effort, r);
    return err ? err : only(v, "thinking", known, 3, r);
}

static int read_kwargs(const struct jv *v, int *on, const char **effort,
                       struct refusal *r)
{
    static const char *const known[] = { "thinking", "enable_thinking",
                                         "thinking_effort", "reasoning_effort",
                                         "preserve_thinking" };
    int any = -1;
    if (!v)
        return 0;
    if (v->type != JV_OBJECT)
        return refusal_set(r, "chat_template_kwargs", "it is not an object");
    int err = take_bool(jv_given(v, "thinking"),
                        "chat_template_kwargs.thinking", on, r);
    if (!err)
        err = take_bool(jv_given(v, "enable_thinking"),
                        "chat_template_kwargs.enable_thinking", on, r);
    if (!err)
        err = take_effort(jv_given(v, "thinking_effort"),
                          "chat_template_kwargs.thinking_effort", effort, r);
    if (!err)
        err = take_bool(jv_given(v, "preserve_thinking"),
                        "chat_template_kwargs.preserve_thinking", &any, r);
    return err ? err : only(v, "chat_template_kwargs", known, 5, r);
}

int chat_read_thinking(struct chat *c, const struct jv *body, struct refusal *r)
{
    static const char *const effort_only[] = { "effort" };
    const struct jv *kwargs = jv_given(body, "chat_template_kwargs");
    const struct jv *reasoning = jv_given(body, "reasoning");
    const char *effort = NULL;
    int on = -1;
    int err = read_kwargs(kwargs, &on, &effort, r);
    if (!err)
        err = read_object(jv_given(body, "thinking"), &on, &effort, r);
    if (!err)
        err = take_effort(jv_given(body, "reasoning_effort"),
                          "reasoning_effort", &effort, r);
    if (!err)
        err = take_effort(jv_given(kwargs, "reasoning_effort"),
                          "chat_template_kwargs.reasoning_effort", &effort, r);
    if (!err && reasoning && reasoning->type != JV_OBJECT)
        err = refusal_set(r, "reasoning", "it is not an object");
    if (!err)
        err = take_effort(jv_given(reasoning, "effort"), "reasoning.effort",
                          &effort, r);
    if (!err)
        err = only(reasoning, "reasoning", effort_only, 1, r);
    if (err)
        return err;
    c->thinking = on < 0 ? !effort || *effort : on;
    if (c->thinking)
        c->effort = effort && *effort ? effort : "max";
    return 0;
}

int chat_read_format(struct chat *c, const struct jv *body, struct refusal *r)
{
    const struct jv *v = jv_given(body, "response_format");
    const struct jv *type = jv_given(v, "type");
    const struct jv *more = jv_get(v, "json_schema");
    const struct jv *strict = jv_given(more, "strict");
    if (jv_is_empty(v))
        return 0;
    if (v->type != JV_OBJECT)
        return refusal_set(r, "response_format", "it is not an object");
    if (jv_is(type, "text"))
        return 0;
    c->format = jv_is(type, "json_object") ? CHAT_JSON : CHAT_SCHEMA;
    if (c->format == CHAT_JSON)
        return 0;
    if (!jv_is(type, "json_schema"))
        return refusal_set(r, "response_format.type",
                           "it is none of text, json_object and json_schema");
    if (!jv_is_type(more, JV_OBJECT))
        return refusal_set(r, "response_format.json_schema",
                           "the type json_schema needs an object here");
    if (!jv_is_type(jv_given(more, "name"), JV_STRING))
        return refusal_set(r, "response_format.json_schema.name",
                           "it is not a text, or empty");
    c->schema = jv_get(more, "schema");
    if (!jv_is_type(c->schema, JV_OBJECT))
        return refusal_set(r, "response_format.json_schema.schema",
                           "it is not an object");
    if (strict && !jv_is_bool(strict))
        return refusal_set(r, "response_format.json_schema.strict",
                           "it is neither true nor false");
    c->strict = jv_is_type(strict, JV_TRUE);
    return 0;
}

static const char *const fields[] = {
    "messages",        "tools",
    "tool_choice",     "parallel_tool_calls",
    "response_format", "reasoning_effort",
    "thinking",        "chat_template_kwargs",
    "reasoning",       "functions",
    "function_call",
};

bool chat_knows(const struct jv *key)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (jv_is(key, fields[i]))
            return true;
    return false;
}

int chat_read(struct chat *c, const struct jv *body, struct refusal *r)
{
    static const char *const old[] = { "functions", "function_call" };
    int parallel = -1;
    memset(c, 0, sizeof *c);
    c->messages = jv_get(body, "messages");
    if (!jv_is_type(c->messages, JV_ARRAY) || !c->messages->bytes)
        return refusal_set(r, "messages",
                           "it is not a list of messages, or empty");
    for (size_t i = 0; i < 2; i++)
        if (jv_given(body, old[i])) {
            refusal_set(r, old[i],
                        "this form is older than tools: use tools and "
                        "tool_choice");
            r->code = REFUSED_UNSUPPORTED;
            return -EINVAL;
        }
    int err = chat_read_thinking(c, body, r);
    if (!err)
        err = chat_read_messages(c, r);
    if (!err)
        err = chat_read_tools(c, body, r);
    if (!err)
        err = chat_read_format(c, body, r);
    if (!err)
        err = take_bool(jv_given(body, "parallel_tool_calls"),
                        "parallel_tool_calls", &parallel, r);
    c->one_call = parallel == 0;
    return err;
}

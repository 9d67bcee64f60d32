/* chat_segments.c - the segments of a prompt, in their order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/chat_internal.h"

static const char effort_before[] =
    "`thinking_effort` guides on how much to think in your thinking channel "
    "(not including the response channel), supported values include `low`, "
    "`medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=";
static const char tools_before[] =
    "# Tools\nHere are the available tools, described in JSONSchema.\n\n"
    "```json\n";
static const char more_tools_before[] =
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n```json\n";
static const char json_after[] = "\n```";
static const char must_call[] =
    "The system is invoked with `tool_choice=required`.\n"
    "You MUST call tools in the next message.";
static const char must_not_call[] =
    "The system is invoked with `tool_choice=none`.\n"
    "You MUST NOT call any tools in the next message.";
static const char format_json[] =
    "The system is invoked with `response_format=json_object`.\n"
    "Your response must be raw JSON data without markdown code blocks "
    "(```json) or any additional formatting.";
static const char format_schema[] =
    "The system is invoked with `response_format=json_schema`.\n"
    "Your response must be raw JSON data without markdown code blocks "
    "(```json) or any additional formatting.\n"
    "The JSON data must match the following schema:\n```json\n";

/* The first error stays and makes what follows do nothing. */
struct render {
    chat_sink *sink;
    void *context;
    struct buffer scratch; /* of one segment that is put together */
    bool thinking;
    int err;
};

static void put_control(struct render *r, enum chat_control which)
{
    if (!r->err)
        r->err = r->sink(r->context, which, NULL, 0);
}

static void put_bytes(struct render *r, const char *text, size_t bytes)
{
    if (!r->err && bytes > 0)
        r->err = r->sink(r->context, -1, text, bytes);
}

static void put_text(struct render *r, const char *text)
{
    put_bytes(r, text, strlen(text));
}

static void put_string(struct render *r, const struct jv *v)
{
    if (v)
        put_bytes(r, v->text, v->bytes);
}

/* What the scratch holds, which is then empty. */
static void put_scratch(struct render *r)
{
    if (r->scratch.failed && !r->err)
        r->err = -ENOMEM;
    put_bytes(r, r->scratch.bytes, r->scratch.count);
    r->scratch.count = 0;
}

static void put_tag(struct render *r, const char *tag)
{
    put_control(r, CHAT_OPEN);
    put_text(r, tag);
}

static void put_attribute(struct render *r, const char *key, const char *value,
                          size_t bytes)
{
    char spaced[16];
    snprintf(spaced, sizeof spaced, " %s", key); /* keys are ours and short */
    put_text(r, spaced);
    put_text(r, "=\"");
    for (size_t i = 0; i < bytes; i++) {
        if (value[i] == '&')
            buffer_text(&r->scratch, "&amp;");
        else if (value[i] == '"')
            buffer_text(&r->scratch, "&quot;");
        else
            buffer_put(&r->scratch, value + i, 1);
    }
    put_scratch(r);
    put_text(r, "\"");
}

static void put_attribute_text(struct render *r, const char *key,
                               const char *value)
{
    put_attribute(r, key, value, strlen(value));
}

static void put_number(struct render *r, const char *key, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    put_attribute_text(r, key, text);
}

static void put_open(struct render *r, const char *tag)
{
    put_tag(r, tag);
    put_control(r, CHAT_SEP);
}

static void put_close(struct render *r, const char *tag)
{
    put_control(r, CHAT_CLOSE);
    put_text(r, tag);
    put_control(r, CHAT_SEP);
}

static void put_end(struct render *r)
{
    put_close(r, "message");
    put_control(r, CHAT_END);
}

static void begin_note(struct render *r, const char *type)
{
    put_tag(r, "message");
    put_attribute_text(r, "role", "system");
    put_attribute_text(r, "type", type);
    put_control(r, CHAT_SEP);
}

static void put_tools(struct render *r, const char *before,
                      const struct jv *tools)
{
    begin_note(r, "tool-declare");
    buffer_text(&r->scratch, before);
    chat_write_tools(&r->scratch, tools);
    buffer_text(&r->scratch, json_after);
    put_scratch(r);
    put_end(r);
}

static void put_notes_before(struct render *r, const struct chat *c)
{
    if (c->tools)
        put_tools(r, tools_before, c->tools);
    if (!c->thinking)
        return;
    begin_note(r, "thinking-effort");
    buffer_text(&r->scratch, effort_before);
    buffer_text(&r->scratch, c->effort);
    buffer_text(&r->scratch, "`.");
    put_scratch(r);
    put_end(r);
}

static void put_notes_behind(struct render *r, const struct chat *c)
{
    if (c->choice != CHAT_AUTO) {
        begin_note(r, "tool-choice");
        put_text(r, c->choice == CHAT_NONE ? must_not_call : must_call);
        put_end(r);
    }
    if (c->format == CHAT_TEXT)
        return;
    begin_note(r, "response-format");
    if (c->format == CHAT_SCHEMA) {
        buffer_text(&r->scratch, format_schema);
        jv_write(&r->scratch, c->schema, JV_COMPACT);
        buffer_text(&r->scratch, json_after);
        put_scratch(r);
    } else {
        put_text(r, format_json);
    }
    put_end(r);
}

static void put_content(struct render *r, const struct jv *content)
{
    if (jv_is_type(content, JV_STRING))
        put_string(r, content);
    else
        for (const struct jv *p = jv_first(content); p; p = jv_next(content, p))
            put_string(r, jv_get(p, "text"));
}

static const char *type_of(const struct jv *v)
{
    static const char *const names[] = {
        [JV_NULL] = "null",     [JV_FALSE] = "boolean", [JV_TRUE] = "boolean",
        [JV_NUMBER] = "number", [JV_STRING] = "string", [JV_ARRAY] = "array",
        [JV_OBJECT] = "object",
    };
    return names[v->type];
}

/* A string is its text; of the rest, what a client wrote as text keeps its
 * spelling and what it wrote as an object gets Python's. */
static void put_argument(struct render *r, const struct jv *key, bool spelling)
{
    const struct jv *value = key + 1;
    put_tag(r, "argument");
    put_attribute(r, "key", key->text, key->bytes);
    put_attribute_text(r, "type", type_of(value));
    put_control(r, CHAT_SEP);
    if (value->type == JV_STRING)
        put_string(r, value);
    else if (spelling)
        put_bytes(r, value->raw, value->raw_bytes);
    else {
        jv_write(&r->scratch, value, JV_SPACED);
        put_scratch(r);
    }
    put_close(r, "argument");
}

static void put_argument_text(struct render *r, const struct jv *text)
{
    struct jv_doc d;
    int err = jv_parse(&d, text->text, text->bytes, JV_NAN | JV_PREFIX, NULL);
    if (err == -ENOMEM)
        r->err = r->err ? r->err : err;
    if (!err && d.root->type == JV_OBJECT) {
        for (const struct jv *k = jv_first(d.root); k; k = jv_next(d.root, k))
            put_argument(r, k, true);
    } else {
        put_tag(r, "json");
        put_attribute_text(r, "type", "object");
        put_control(r, CHAT_SEP);
        put_string(r, text);
        put_close(r, "json");
    }
    if (!err)
        jv_free(&d);
}

static void put_calls(struct render *r, const struct jv *calls)
{
    uint32_t index = 0;
    if (jv_is_empty(calls))
        return;
    put_open(r, "tools");
    for (const struct jv *c = jv_first(calls); c; c = jv_next(calls, c)) {
        const struct jv *function = jv_get(c, "function");
        const struct jv *name = jv_get(function, "name");
        const struct jv *arguments = jv_get(function, "arguments");
        put_tag(r, "call");
        put_attribute(r, "tool", name->text, name->bytes);
        put_number(r, "index", ++index);
        put_control(r, CHAT_SEP);
        if (jv_is_type(arguments, JV_OBJECT))
            for (const struct jv *k = jv_first(arguments); k;
                 k = jv_next(arguments, k))
                put_argument(r, k, false);
        else if (!jv_is_empty(arguments))
            put_argument_text(r, arguments);
        put_close(r, "call");
    }
    put_close(r, "tools");
}

static void open_message(struct render *r, const char *role,
                         const struct jv *name)
{
    put_tag(r, "message");
    put_attribute_text(r, "role", role);
    if (!jv_is_empty(name))
        put_attribute(r, "name", name->text, name->bytes);
    put_control(r, CHAT_SEP);
}

static const struct jv *reasoning_of(const struct jv *m)
{
    const struct jv *v = jv_get(m, "reasoning_content");
    return jv_is_empty(v) ? jv_get(m, "reasoning") : v;
}

static void put_assistant(struct render *r, const struct jv *m)
{
    open_message(r, "assistant", jv_get(m, "name"));
    if (r->thinking) {
        put_open(r, "think");
        put_string(r, reasoning_of(m));
        put_close(r, "think");
    }
    put_open(r, "response");
    put_content(r, jv_get(m, "content"));
    put_close(r, "response");
    put_calls(r, jv_get(m, "tool_calls"));
    put_end(r);
}

static void put_prefill(struct render *r, const struct chat *c,
                        const struct jv *m)
{
    const struct jv *thoughts = reasoning_of(m);
    open_message(r, "assistant", jv_get(m, "name"));
    if (c->thinking && !jv_is_empty(thoughts)) {
        put_open(r, "think");
        put_string(r, thoughts);
        if (c->in_answer)
            put_close(r, "think");
    }
    if (c->in_answer) {
        put_open(r, "response");
        put_content(r, jv_get(m, "content"));
    }
}

/* A run of results. Returns how many messages it has. */
static int put_results(struct render *r, const struct chat *c,
                       const struct jv *m, const struct jv *caller,
                       uint32_t *index)
{
    struct chat_result *run;
    const struct jv *nameless;
    int n = chat_results(c->messages, m, caller, *index, &run, &nameless);
    if (n < 0 && !r->err)
        r->err = n;
    for (int i = 0; i < n; i++) {
        const struct jv *name = run[i].name;
        put_tag(r, "message");
        put_attribute_text(r, "role", "tool");
        put_attribute(r, "tool", name->text, name->bytes);
        put_number(r, "index", ++*index);
        put_control(r, CHAT_SEP);
        put_content(r, jv_get(run[i].message, "content"));
        put_end(r);
    }
    free(run);
    return n > 0 ? n : 1;
}

static void put_messages(struct render *r, const struct chat *c)
{
    const struct jv *caller = NULL;
    uint32_t results = 0;
    for (const struct jv *m = jv_first(c->messages); m && !r->err;
         m = jv_next(c->messages, m)) {
        const struct jv *role = jv_get(m, "role");
        const struct jv *tools = jv_get(m, "tools");
        if (c->prefill && !jv_next(c->messages, m))
            break;
        if (jv_is(role, "tool")) {
            int n = put_results(r, c, m, caller, &results);
            while (--n > 0)
                m = jv_next(c->messages, m);
        } else if (jv_is(role, "assistant")) {
            put_assistant(r, m);
            caller = m;
            results = 0;
        } else if (!jv_is_empty(tools)) {
            put_tools(r, more_tools_before, tools);
        } else {
            open_message(r, jv_is(role, "user") ? "user" : "system",
                         jv_get(m, "name"));
            put_content(r, jv_get(m, "content"));
            put_end(r);
        }
    }
}

int chat_segments(const struct chat *c, chat_sink *sink, void *context)
{
    struct render r = { .sink = sink,
                        .context = context,
                        .thinking = c->thinking };
    put_notes_before(&r, c);
    put_messages(&r, c);
    put_notes_behind(&r, c);
    if (c->prefill) {
        const struct jv *m = jv_first(c->messages), *next;
        while ((next = jv_next(c->messages, m)))
            m = next;
        put_prefill(&r, c, m);
    } else {
        open_message(&r, "assistant", NULL);
        put_open(&r, c->thinking ? "think" : "response");
    }
    buffer_free(&r.scratch);
    return r.err;
}

/* convert_responses.c - a request of the Responses API to one of the chat API.
 */
#include "bin/serve/api/convert.h"
#include "model/json/jv_write.h"

static const struct convert_field fields[] = {
    { "model", NULL },           { "max_output_tokens", "max_tokens" },
    { "temperature", NULL },     { "top_p", NULL },
    { "stream", NULL },          { "parallel_tool_calls", NULL },
    { "seed", NULL },            { "ignore_eos", NULL },
    { "input", "*" },            { "instructions", "*" },
    { "tools", "*" },            { "tool_choice", "*" },
    { "text", "*" },             { "reasoning", "*" },
    { "store", "" },             { "metadata", "" },
    { "user", "" },              { "truncation", "*" },
    { "include", "" },           { "service_tier", "" },
    { "safety_identifier", "" }, { "prompt_cache_key", "" },
    { "stream_options", "" },    { "previous_response_id", "" },
    { NULL, NULL },
};

/* ---- input ---- */

/* The texts of an item's content, put together. */
static int put_content(struct buffer *out, const struct jv *content,
                       struct api_error *e)
{
    struct buffer text = { 0 };
    if (jv_is_type(content, JV_STRING)) {
        convert_string(out, content);
        return 0;
    }
    if (!jv_is_type(content, JV_ARRAY))
        return convert_refuse(e, "input.content",
                              "it is neither a text nor a list");
    for (const struct jv *p = jv_first(content); p; p = jv_next(content, p)) {
        const struct jv *type = jv_get(p, "type"), *v = jv_get(p, "text");
        bool served = jv_is(type, "input_text") ||
                      jv_is(type, "output_text") ||
                      jv_is(type, "reasoning_text") || jv_is(type, "text");
        if (!served || !jv_is_type(v, JV_STRING)) {
            buffer_free(&text);
            return convert_refuse(e, "input.content", "only text is served");
        }
        buffer_put(&text, v->text, v->bytes);
    }
    jv_write_line_string(out, text.count ? text.bytes : "", text.count);
    out->failed |= text.failed;
    buffer_free(&text);
    return 0;
}

/* Reasoning, text and calls of one turn are one message: `open` says that it
 * was begun, and what it has. */
enum { HAS_CALLS = 1, HAS_TEXT = 2, HAS_THOUGHTS = 4, OPEN = 8 };

static void close_turn(struct buffer *out, unsigned *open)
{
    if (!*open)
        return;
    buffer_text(out, *open & HAS_CALLS ? "]}" : "}");
    *open = 0;
}

static void open_turn(struct buffer *out, unsigned *open)
{
    if (!*open)
        buffer_text(out, ",{\"role\":\"assistant\"");
    *open |= OPEN;
}

static int put_call(struct buffer *out, const struct jv *item, unsigned *open,
                    struct api_error *e)
{
    const struct jv *id = jv_get(item, "call_id");
    const struct jv *name = jv_get(item, "name");
    const struct jv *arguments = jv_get(item, "arguments");
    if (!jv_is_type(id, JV_STRING) || !jv_is_type(name, JV_STRING) ||
        !jv_is_type(arguments, JV_STRING))
        return convert_refuse(e, "input", "a function_call has no call_id, "
                              "name or arguments");
    open_turn(out, open);
    buffer_text(out, *open & HAS_CALLS ? "," : ",\"tool_calls\":[");
    *open |= HAS_CALLS;
    buffer_text(out, "{\"type\":\"function\",\"id\":");
    convert_string(out, id);
    buffer_text(out, ",\"function\":{\"name\":");
    convert_string(out, name);
    buffer_text(out, ",\"arguments\":");
    convert_string(out, arguments);
    buffer_text(out, "}}");
    return 0;
}

static int put_output(struct buffer *out, const struct jv *item,
                      struct api_error *e)
{
    const struct jv *id = jv_get(item, "call_id");
    const struct jv *output = jv_get(item, "output");
    if (!jv_is_type(id, JV_STRING))
        return convert_refuse(e, "input", "a function_call_output has no "
                              "call_id");
    buffer_text(out, ",{\"role\":\"tool\",\"tool_call_id\":");
    convert_string(out, id);
    buffer_text(out, ",\"content\":");
    int err = put_content(out, output, e);
    buffer_text(out, "}");
    return err;
}

static int put_turn_part(struct buffer *out, const struct jv *content,
                         unsigned kind, unsigned *open, struct api_error *e)
{
    if (*open & (kind | HAS_CALLS | HAS_TEXT))
        close_turn(out, open);
    open_turn(out, open);
    *open |= kind;
    buffer_text(out, kind == HAS_TEXT ? ",\"content\":"
                                      : ",\"reasoning_content\":");
    return put_content(out, content, e);
}

static int put_message(struct buffer *out, const struct jv *item,
                       unsigned *open, struct api_error *e)
{
    const struct jv *role = jv_get(item, "role");
    if (jv_is(role, "assistant"))
        return put_turn_part(out, jv_get(item, "content"), HAS_TEXT, open, e);
    if (!jv_is_type(role, JV_STRING))
        return convert_refuse(e, "input.role", "it is not a text");
    close_turn(out, open);
    buffer_text(out, ",{\"role\":");
    convert_string(out, role);
    buffer_text(out, ",\"content\":");
    int err = put_content(out, jv_get(item, "content"), e);
    buffer_text(out, "}");
    return err;
}

static int put_item(struct buffer *out, const struct jv *item, unsigned *open,
                    struct api_error *e)
{
    const struct jv *type = jv_get(item, "type");
    const struct jv *content = jv_get(item, "content");
    if (!type || jv_is(type, "message"))
        return put_message(out, item, open, e);
    if (jv_is(type, "function_call"))
        return put_call(out, item, open, e);
    if (jv_is(type, "reasoning"))
        return jv_is_empty(content)
                   ? 0
                   : put_turn_part(out, content, HAS_THOUGHTS, open, e);
    close_turn(out, open);
    if (jv_is(type, "function_call_output"))
        return put_output(out, item, e);
    return convert_refuse(e, "input", "an item is none of message, reasoning, "
                          "function_call and function_call_output");
}

static int put_items(struct buffer *out, const struct jv *items,
                     unsigned *open, struct api_error *e)
{
    int err = 0;
    for (const struct jv *i = jv_first(items); i && !err;
         i = jv_next(items, i))
        err = put_item(out, i, open, e);
    return err;
}

static int put_input(struct buffer *out, const struct jv *body,
                     const struct jv *before, struct api_error *e)
{
    const struct jv *input = jv_get(body, "input");
    const struct jv *more = jv_get(body, "instructions");
    unsigned open = 0;
    int err = 0;
    buffer_text(out, ",\"messages\":[");
    size_t first = out->count;
    if (!jv_is_empty(more) && more->type != JV_STRING)
        return convert_refuse(e, "instructions", "it is not a text");
    if (!jv_is_empty(more)) {
        buffer_text(out, ",{\"role\":\"system\",\"content\":");
        convert_string(out, more);
        buffer_text(out, "}");
    }
    if (before)
        err = put_items(out, before, &open, e);
    if (jv_is_type(input, JV_STRING)) {
        close_turn(out, &open);
        buffer_text(out, ",{\"role\":\"user\",\"content\":");
        convert_string(out, input);
        buffer_text(out, "}");
    } else if (jv_is_type(input, JV_ARRAY) && input->bytes) {
        if (!err)
            err = put_items(out, input, &open, e);
        close_turn(out, &open);
    } else {
        return convert_refuse(e, "input", "it is neither a text nor a list of "
                              "items");
    }
    if (!out->failed && out->count > first)
        out->bytes[first] = ' '; /* the comma before the first */
    buffer_text(out, "]");
    return err;
}

/* ---- the rest ---- */

static int put_tools(struct buffer *out, const struct jv *tools,
                     struct api_error *e)
{
    static const char *const member[] = { "name", "description", "parameters",
                                          "strict" };
    const char *comma = "";
    if (jv_is_empty(tools))
        return 0;
    if (tools->type != JV_ARRAY)
        return convert_refuse(e, "tools", "it is not a list");
    buffer_text(out, ",\"tools\":[");
    for (const struct jv *t = jv_first(tools); t; t = jv_next(tools, t)) {
        if (!jv_is(jv_get(t, "type"), "function") ||
            !jv_is_type(jv_get(t, "name"), JV_STRING))
            return convert_refuse(e, "tools", "a tool is not a function with "
                                  "a name");
        buffer_format(out, "%s{\"type\":\"function\",\"function\":{", comma);
        const char *inner = "";
        for (size_t i = 0; i < 4; i++) {
            const struct jv *v = jv_get(t, member[i]);
            if (!v)
                continue;
            buffer_format(out, "%s\"%s\":", inner, member[i]);
            convert_raw(out, v);
            inner = ",";
        }
        buffer_text(out, "}}");
        comma = ",";
    }
    buffer_text(out, "]");
    return 0;
}

static int put_choice(struct buffer *out, const struct jv *choice,
                      struct api_error *e)
{
    const struct jv *name = jv_get(choice, "name");
    if (jv_is_empty(choice))
        return 0;
    buffer_text(out, ",\"tool_choice\":");
    if (choice->type == JV_STRING) {
        convert_string(out, choice);
        return 0;
    }
    if (!jv_is(jv_get(choice, "type"), "function") ||
        !jv_is_type(name, JV_STRING))
        return convert_refuse(e, "tool_choice", "it is none of auto, none, "
                              "required and a function");
    buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
    convert_string(out, name);
    buffer_text(out, "}}");
    return 0;
}

static int put_format(struct buffer *out, const struct jv *format,
                      struct api_error *e)
{
    static const char *const member[] = { "name", "schema", "strict",
                                          "description" };
    const struct jv *type = jv_get(format, "type");
    if (jv_is_empty(format) || jv_is(type, "text"))
        return 0;
    buffer_text(out, ",\"response_format\":{\"type\":");
    if (!jv_is(type, "json_schema")) {
        if (!jv_is(type, "json_object"))
            return convert_refuse(e, "text.format.type", "it is none of text, "
                                  "json_object and json_schema");
        buffer_text(out, "\"json_object\"}");
        return 0;
    }
    buffer_text(out, "\"json_schema\",\"json_schema\":{");
    const char *comma = "";
    for (size_t i = 0; i < 4; i++) {
        const struct jv *v = jv_get(format, member[i]);
        if (!v)
            continue;
        buffer_format(out, "%s\"%s\":", comma, member[i]);
        convert_raw(out, v);
        comma = ",";
    }
    buffer_text(out, "}}");
    return 0;
}

int convert_responses(struct buffer *out, const struct jv *body,
                      const struct jv *before, struct api_error *e)
{
    if (body->type != JV_OBJECT)
        return api_fail(e, 400, "invalid_request", "the body is not an object");
    const struct jv *effort = jv_get(jv_get(body, "reasoning"), "effort");
    const struct jv *cut = jv_get(body, "truncation");
    const struct jv *meta = jv_get(body, "metadata");
    if (cut && !jv_is(cut, "disabled"))
        return convert_refuse(e, "truncation", "only disabled is served");
    if (meta && meta->type != JV_OBJECT)
        return convert_refuse(e, "metadata", "it is not an object");
    buffer_text(out, "{\"n\":1");
    int err = convert_fields(out, body, fields, e);
    if (!err && effort) {
        buffer_text(out, ",\"reasoning_effort\":");
        convert_raw(out, effort);
    }
    if (!err)
        err = put_tools(out, jv_get(body, "tools"), e);
    if (!err)
        err = put_choice(out, jv_get(body, "tool_choice"), e);
    if (!err)
        err = put_format(out, jv_get(jv_get(body, "text"), "format"), e);
    if (!err)
        err = put_input(out, body, before, e);
    buffer_text(out, "}");
    return err;
}

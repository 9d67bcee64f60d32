/* convert_messages.c - Anthropic's messages to OpenAI's. */
#include "bin/serve/api/convert.h"
#include "model/json/jv_write.h"

static const struct convert_field fields[] = {
    { "model", NULL },        { "max_tokens", NULL },
    { "temperature", NULL },  { "top_p", NULL },
    { "top_k", NULL },        { "stop_sequences", "stop" },
    { "stream", NULL },       { "seed", NULL },
    { "ignore_eos", NULL },   { "messages", "*" },
    { "system", "*" },        { "tools", "*" },
    { "tool_choice", "*" },   { "thinking", "*" },
    { "output_config", "*" }, { "metadata", "" },
    { "service_tier", "" },   { NULL, NULL },
};

/* ---- contents ---- */

/* Texts of a list as parts of an OpenAI content. */
static int put_texts(struct buffer *out, const struct jv *list,
                     const char *field, struct api_error *e)
{
    const char *comma = "";
    buffer_text(out, "[");
    for (const struct jv *p = jv_first(list); p; p = jv_next(list, p)) {
        const struct jv *text = jv_get(p, "text");
        if (!jv_is(jv_get(p, "type"), "text") ||
            !jv_is_type(text, JV_STRING))
            return convert_refuse(e, field, "only text is served");
        buffer_format(out, "%s{\"type\":\"text\",\"text\":", comma);
        convert_string(out, text);
        buffer_text(out, "}");
        comma = ",";
    }
    buffer_text(out, "]");
    return 0;
}

static int put_content(struct buffer *out, const struct jv *content,
                       const char *field, struct api_error *e)
{
    if (jv_is_type(content, JV_STRING)) {
        convert_string(out, content);
        return 0;
    }
    if (content && content->type != JV_ARRAY)
        return convert_refuse(e, field, "it is neither a text nor a list");
    return put_texts(out, content, field, e);
}

/* ---- messages ---- */

/* One result of a tool: a message of its own. */
static int put_result(struct buffer *out, const struct jv *block,
                      struct api_error *e)
{
    const struct jv *id = jv_get(block, "tool_use_id");
    const struct jv *content = jv_get(block, "content");
    if (!jv_is_type(id, JV_STRING))
        return convert_refuse(e, "messages.content.tool_use_id",
                              "it is not a text");
    buffer_text(out, ",{\"role\":\"tool\",\"tool_call_id\":");
    convert_string(out, id);
    buffer_text(out, ",\"content\":");
    if (!content)
        buffer_text(out, "\"\"");
    else if (put_content(out, content, "messages.content.content", e))
        return -1;
    buffer_text(out, "}");
    return 0;
}

/* Results go before the texts of the same message. */
static int put_user(struct buffer *out, const struct jv *content,
                    struct api_error *e)
{
    const char *comma = "";
    bool texts = false;
    if (!jv_is_type(content, JV_ARRAY)) {
        buffer_text(out, ",{\"role\":\"user\",\"content\":");
        int err = put_content(out, content, "messages.content", e);
        buffer_text(out, "}");
        return err;
    }
    for (const struct jv *b = jv_first(content); b; b = jv_next(content, b)) {
        bool result = jv_is(jv_get(b, "type"), "tool_result");
        if (result && put_result(out, b, e))
            return -1;
        texts |= !result;
    }
    if (!texts)
        return 0;
    buffer_text(out, ",{\"role\":\"user\",\"content\":[");
    for (const struct jv *b = jv_first(content); b; b = jv_next(content, b)) {
        const struct jv *text = jv_get(b, "text");
        if (jv_is(jv_get(b, "type"), "tool_result"))
            continue;
        if (!jv_is(jv_get(b, "type"), "text") ||
            !jv_is_type(text, JV_STRING))
            return convert_refuse(e, "messages.content",
                                  "only text and tool_result are served");
        buffer_format(out, "%s{\"type\":\"text\",\"text\":", comma);
        convert_string(out, text);
        buffer_text(out, "}");
        comma = ",";
    }
    buffer_text(out, "]}");
    return 0;
}

static int put_call(struct buffer *out, const struct jv *block,
                    const char *comma, struct api_error *e)
{
    const struct jv *id = jv_get(block, "id"), *name = jv_get(block, "name");
    const struct jv *input = jv_get(block, "input");
    if (!jv_is_type(id, JV_STRING) || !jv_is_type(name, JV_STRING))
        return convert_refuse(e, "messages.content.tool_use",
                              "its id or name is not a text");
    buffer_format(out, "%s{\"type\":\"function\",\"id\":", comma);
    convert_string(out, id);
    buffer_text(out, ",\"function\":{\"name\":");
    convert_string(out, name);
    buffer_text(out, ",\"arguments\":");
    if (input)
        convert_raw(out, input);
    else
        buffer_text(out, "{}");
    buffer_text(out, "}}");
    return 0;
}

/* The blocks of one type, put together. */
static void put_joined(struct buffer *out, const struct jv *content,
                       const char *type, const char *member)
{
    struct buffer text = { 0 };
    for (const struct jv *b = jv_first(content); b; b = jv_next(content, b)) {
        const struct jv *v = jv_get(b, member);
        if (jv_is(jv_get(b, "type"), type) && jv_is_type(v, JV_STRING))
            buffer_put(&text, v->text, v->bytes);
    }
    jv_write_line_string(out, text.count ? text.bytes : "", text.count);
    out->failed |= text.failed;
    buffer_free(&text);
}

static int check_blocks(const struct jv *content, struct api_error *e,
                        uint32_t *calls)
{
    static const char *const served[] = { "text", "thinking", "tool_use",
                                          "redacted_thinking" };
    *calls = 0;
    for (const struct jv *b = jv_first(content); b; b = jv_next(content, b)) {
        const struct jv *type = jv_get(b, "type");
        size_t i = 0;
        while (i < 4 && !jv_is(type, served[i]))
            i++;
        if (i == 4)
            return convert_refuse(e, "messages.content",
                                  "only text, thinking and tool_use are "
                                  "served in an assistant's message");
        *calls += i == 2;
    }
    return 0;
}

/* `last`: the reply goes on with it. */
static int put_assistant(struct buffer *out, const struct jv *content,
                         bool last, struct api_error *e)
{
    uint32_t calls = 0, n = 0;
    buffer_text(out, ",{\"role\":\"assistant\",\"content\":");
    if (!jv_is_type(content, JV_ARRAY)) {
        if (put_content(out, content, "messages.content", e))
            return -1;
    } else {
        if (check_blocks(content, e, &calls))
            return -1;
        put_joined(out, content, "text", "text");
        buffer_text(out, ",\"reasoning_content\":");
        put_joined(out, content, "thinking", "thinking");
    }
    if (calls)
        buffer_text(out, ",\"tool_calls\":[");
    for (const struct jv *b = jv_first(content); b && calls;
         b = jv_next(content, b))
        if (jv_is(jv_get(b, "type"), "tool_use") &&
            put_call(out, b, n++ ? "," : "", e))
            return -1;
    if (calls)
        buffer_text(out, "]");
    buffer_text(out, last && !calls ? ",\"partial\":true}" : "}");
    return 0;
}

static int put_messages(struct buffer *out, const struct jv *body,
                        struct api_error *e)
{
    const struct jv *list = jv_get(body, "messages");
    const struct jv *system = jv_get(body, "system");
    if (!jv_is_type(list, JV_ARRAY) || !list->bytes)
        return convert_refuse(e, "messages", "it is not a list, or empty");
    size_t begin = out->count;
    buffer_text(out, ",\"messages\":[");
    size_t first = out->count;
    if (!jv_is_empty(system)) {
        buffer_text(out, ",{\"role\":\"system\",\"content\":");
        if (put_content(out, system, "system", e))
            return -1;
        buffer_text(out, "}");
    }
    for (const struct jv *m = jv_first(list); m; m = jv_next(list, m)) {
        const struct jv *role = jv_get(m, "role");
        const struct jv *content = jv_get(m, "content");
        int err;
        if (jv_is(role, "user"))
            err = put_user(out, content, e);
        else if (jv_is(role, "assistant"))
            err = put_assistant(out, content, !jv_next(list, m), e);
        else
            err = convert_refuse(e, "messages.role",
                                 "it is neither user nor assistant");
        if (err)
            return err;
    }
    if (!out->failed && out->count > first && begin < first)
        out->bytes[first] = ' '; /* the comma before the first */
    buffer_text(out, "]");
    return 0;
}

/* ---- tools, thinking ---- */

static int put_tools(struct buffer *out, const struct jv *tools,
                     struct api_error *e)
{
    const char *comma = "";
    if (jv_is_empty(tools))
        return 0;
    if (tools->type != JV_ARRAY)
        return convert_refuse(e, "tools", "it is not a list");
    buffer_text(out, ",\"tools\":[");
    for (const struct jv *t = jv_first(tools); t; t = jv_next(tools, t)) {
        const struct jv *type = jv_get(t, "type"), *name = jv_get(t, "name");
        const struct jv *about = jv_get(t, "description");
        const struct jv *schema = jv_get(t, "input_schema");
        if ((type && !jv_is(type, "custom")) || !jv_is_type(name, JV_STRING))
            return convert_refuse(e, "tools", "a tool is not of the client's "
                                  "own (type custom), or has no name");
        buffer_format(out, "%s{\"type\":\"function\",\"function\":{\"name\":",
                      comma);
        convert_string(out, name);
        if (about) {
            buffer_text(out, ",\"description\":");
            convert_raw(out, about);
        }
        if (schema) {
            buffer_text(out, ",\"parameters\":");
            convert_raw(out, schema);
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
    const struct jv *type = jv_get(choice, "type");
    const struct jv *name = jv_get(choice, "name");
    if (jv_is_empty(choice))
        return 0;
    buffer_text(out, ",\"tool_choice\":");
    if (jv_is(type, "auto") || jv_is(type, "none")) {
        convert_string(out, type);
    } else if (jv_is(type, "any")) {
        buffer_text(out, "\"required\"");
    } else if (jv_is(type, "tool") && jv_is_type(name, JV_STRING)) {
        buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
        convert_string(out, name);
        buffer_text(out, "}}");
    } else {
        return convert_refuse(e, "tool_choice.type",
                              "it is none of auto, any, none and tool");
    }
    if (jv_is_type(jv_get(choice, "disable_parallel_tool_use"), JV_TRUE))
        buffer_text(out, ",\"parallel_tool_calls\":false");
    return 0;
}

/* Without a word the model thinks here as little as it can be told: clients of
 * this API switch thinking on. */
static int put_thinking(struct buffer *out, const struct jv *body,
                        struct api_error *e)
{
    const struct jv *thinking = jv_get(body, "thinking");
    const struct jv *type = jv_get(thinking, "type");
    const struct jv *effort = jv_get(jv_get(body, "output_config"), "effort");
    bool on = jv_is(type, "enabled") || jv_is(type, "adaptive");
    if (!jv_is_empty(thinking) && !on && !jv_is(type, "disabled"))
        return convert_refuse(e, "thinking.type",
                              "it is none of enabled, adaptive and disabled");
    buffer_format(out, ",\"thinking\":%s", on ? "true" : "false");
    if (on && effort) {
        buffer_text(out, ",\"reasoning_effort\":");
        convert_raw(out, effort);
    }
    return 0;
}

int convert_messages(struct buffer *out, const struct jv *body, bool counts,
                     struct api_error *e)
{
    if (body->type != JV_OBJECT)
        return api_fail(e, 400, "invalid_request", "the body is not an object");
    if (!counts && !jv_get(body, "max_tokens"))
        return convert_refuse(e, "max_tokens", "it is required");
    buffer_text(out, "{\"n\":1");
    int err = convert_fields(out, body, fields, e);
    if (!err)
        err = put_thinking(out, body, e);
    if (!err)
        err = put_tools(out, jv_get(body, "tools"), e);
    if (!err)
        err = put_choice(out, jv_get(body, "tool_choice"), e);
    if (!err)
        err = put_messages(out, body, e);
    buffer_text(out, "}");
    return err;
}

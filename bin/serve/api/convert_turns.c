/* convert_turns.c - what a response keeps and repeats of its request. */
#include <stddef.h>

#include "bin/serve/api/convert.h"

/* As it was written, on one line: control characters are between values. */
static void put_line(struct buffer *out, const char *text, size_t n)
{
    size_t begin = out->count;
    buffer_put(out, text, n);
    for (size_t i = begin; i < out->count; i++)
        if ((unsigned char)out->bytes[i] < ' ')
            out->bytes[i] = ' ';
}

void convert_turns(struct buffer *out, const struct jv *body)
{
    const struct jv *input = jv_get(body, "input");
    if (jv_is_type(input, JV_STRING)) {
        buffer_text(out, "{\"type\":\"message\",\"role\":\"user\","
                         "\"content\":");
        convert_string(out, input);
        buffer_text(out, "}");
    } else if (jv_is_type(input, JV_ARRAY)) {
        const char *comma = "";
        for (const struct jv *i = jv_first(input); i; i = jv_next(input, i)) {
            buffer_text(out, comma);
            put_line(out, i->raw, i->raw_bytes);
            comma = ",";
        }
    }
}

void convert_echo(struct buffer *out, const struct jv *body)
{
    static const char *const member[][2] = {
        { "instructions", "null" },
        { "metadata", "{}" },
        { "parallel_tool_calls", "true" },
        { "previous_response_id", "null" },
        { "reasoning", "{\"effort\":null,\"summary\":null}" },
        { "temperature", "null" },
        { "text", "{\"format\":{\"type\":\"text\"}}" },
        { "tool_choice", "\"auto\"" },
        { "tools", "[]" },
        { "top_p", "null" },
        { "truncation", "\"disabled\"" },
        { "user", "null" },
    };
    for (size_t i = 0; i < sizeof member / sizeof *member; i++) {
        const struct jv *v = jv_get(body, member[i][0]);
        buffer_format(out, "\"%s\":", member[i][0]);
        if (jv_is_empty(v))
            buffer_text(out, member[i][1]);
        else
            put_line(out, v->raw, v->raw_bytes);
        buffer_text(out, ",");
    }
}

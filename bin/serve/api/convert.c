#include "bin/serve/api/convert.h"

#include <stdio.h>
#include <string.h>

#include "model/json/jv_write.h"

int convert_refuse(struct api_error *e, const char *field,
                   const char *sentence)
{
    if (!e->status)
        snprintf(e->field, sizeof e->field, "%s", field);
    return api_fail(e, 400, "invalid_request", "%s: %s", field, sentence);
}

void convert_raw(struct buffer *out, const struct jv *v)
{
    buffer_put(out, v->raw, v->raw_bytes);
}

void convert_string(struct buffer *out, const struct jv *v)
{
    jv_write_line_string(out, v->text, v->bytes);
}

void convert_back(struct api_error *e, enum api api)
{
    static const char *const name[][3] = {
        { "max_tokens", "max_tokens", "max_output_tokens" },
        { "response_format", "response_format", "text.format" },
        { "reasoning_effort", "output_config.effort", "reasoning.effort" },
        { "messages", "messages", "input" },
        { "stop", "stop_sequences", "stop" },
    };
    char text[sizeof e->text], field[sizeof e->field];
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *ours = name[i][0];
        size_t n = strlen(ours);
        if (api == API_OPENAI || strncmp(e->field, ours, n) ||
            !strchr(".[", e->field[n])) /* or its end */
            continue;
        bool said = !strncmp(e->text, e->field, strlen(e->field));
        const char *rest = e->field + n;
        if (*rest == '[' && strchr(rest, ']'))
            rest = strchr(rest, ']') + 1;
        snprintf(field, sizeof field, "%s%s", name[i][api], rest);
        if (said) {
            snprintf(text, sizeof text, "%s%s", field,
                     e->text + strlen(e->field));
            memcpy(e->text, text, sizeof text);
        }
        memcpy(e->field, field, sizeof field);
        return;
    }
}

int convert_fields(struct buffer *out, const struct jv *body,
                   const struct convert_field *table, struct api_error *e)
{
    for (const struct jv *k = jv_first(body); k; k = jv_next(body, k)) {
        const struct convert_field *f = table;
        while (f->name && !jv_is(k, f->name))
            f++;
        if (!f->name && jv_is_empty(k + 1))
            continue;
        if (!f->name) {
            snprintf(e->field, sizeof e->field, "%.100s", k->text);
            return api_fail(e, 400, "unknown_field",
                            "%.100s: this field is not known", k->text);
        }
        if (f->as && (!*f->as || *f->as == '*'))
            continue;
        buffer_format(out, ",\"%s\":", f->as ? f->as : f->name);
        convert_raw(out, k + 1);
    }
    return 0;
}

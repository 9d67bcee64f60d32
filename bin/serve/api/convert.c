#include "bin/serve/api/convert.h"

#include <stdio.h>

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

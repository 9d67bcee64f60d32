#include "bin/serve/api/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/json/jv_write.h"

int api_fail(struct api_error *e, int status, const char *code,
             const char *format, ...)
{
    va_list args;
    if (e->status)
        return -1;
    e->status = status;
    e->code = code;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return -1;
}

void api_text(struct buffer *out, const char *text)
{
    struct buffer clean = { 0 };
    jv_clean(&clean, text, strlen(text));
    jv_write_line_string(out, clean.count ? clean.bytes : "", clean.count);
    out->failed |= clean.failed;
    buffer_free(&clean);
}

static const char *anthropic_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    }
    return status >= 500 ? "api_error" : "invalid_request_error";
}

static const char *openai_type(int status)
{
    if (status == 429)
        return "requests";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void api_error_body(struct buffer *out, enum api api,
                    const struct api_error *e)
{
    if (api == API_ANTHROPIC) {
        buffer_format(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\","
                           "\"message\":",
                      anthropic_type(e->status));
        api_text(out, e->text);
        buffer_text(out, "}}");
        return;
    }
    buffer_text(out, "{\"error\":{\"message\":");
    api_text(out, e->text);
    buffer_format(out, ",\"type\":\"%s\",\"param\":", openai_type(e->status));
    if (*e->field)
        api_text(out, e->field);
    else
        buffer_text(out, "null");
    buffer_text(out, ",\"code\":");
    if (e->code)
        api_text(out, e->code);
    else
        buffer_text(out, "null");
    buffer_text(out, "}}");
}

/* route_chat.c - the paths that ask the model something. */
#include <inttypes.h>

#include "bin/serve/ask.h"
#include "bin/serve/api/convert.h"
#include "bin/serve/routes.h"

/* The other of the two is at the other path. */
static bool has_key(const struct call *c, const char *key)
{
    struct jv_doc doc;
    const struct buffer *b = &c->body;
    if (!b->count || jv_parse(&doc, b->bytes, b->count, JV_STRICT, NULL))
        return true; /* the reader says what is wrong */
    bool has = doc.root->type != JV_OBJECT || jv_get(doc.root, key);
    jv_free(&doc);
    return has;
}

void route_chat(struct call *c)
{
    if (has_key(c, "messages")) {
        ask(c, API_OPENAI, &c->body);
        return;
    }
    snprintf(c->error.field, sizeof c->error.field, "messages");
    api_fail(&c->error, 400, "invalid_request", "messages: there are none");
}

void route_completion(struct call *c)
{
    if (has_key(c, "prompt")) {
        ask(c, API_OPENAI, &c->body);
        return;
    }
    snprintf(c->error.field, sizeof c->error.field, "prompt");
    api_fail(&c->error, 400, "invalid_request", "prompt: there is none");
}

/* A body of another API, as one of OpenAI's chat API. */
static int convert(struct call *c, struct buffer *out, enum api api,
                   bool counts)
{
    struct jv_doc doc;
    struct jv_wrong wrong = { "it is empty", 0 };
    const struct buffer *b = &c->body;
    if (jv_parse(&doc, b->count ? b->bytes : "", b->count, JV_STRICT, &wrong))
        return api_fail(&c->error, 400, "invalid_json",
                        "the body is not JSON: %s at byte %zu", wrong.what,
                        wrong.at + 1);
    int err = api == API_ANTHROPIC
                  ? convert_messages(out, doc.root, counts, &c->error)
                  : convert_responses(out, doc.root, &c->error);
    jv_free(&doc);
    if (!err && out->failed)
        err = api_fail(&c->error, 503, "no_memory", "no memory for the body");
    return err;
}

void route_messages(struct call *c)
{
    struct buffer body = { 0 };
    if (!convert(c, &body, API_ANTHROPIC, false))
        ask(c, API_ANTHROPIC, &body);
    buffer_free(&body);
}

void route_responses(struct call *c)
{
    struct buffer body = { 0 };
    if (!convert(c, &body, API_RESPONSES, false))
        ask(c, API_RESPONSES, &body);
    buffer_free(&body);
}

void route_count_tokens(struct call *c)
{
    struct buffer body = { 0 }, json = { 0 };
    uint64_t ids;
    if (!convert(c, &body, API_ANTHROPIC, true) && !ask_count(c, &body, &ids)) {
        buffer_format(&json, "{\"input_tokens\":%" PRIu64 "}", ids);
        call_json(c, 200, &json);
    }
    buffer_free(&body);
}

/* route_chat.c - the paths that ask the model something. */
#include <inttypes.h>
#include <stdio.h>

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

/* ---- bodies of other APIs, as those of OpenAI's chat API ---- */

static int parse(struct call *c, struct jv_doc *doc)
{
    struct jv_wrong wrong = { "it is empty", 0 };
    const struct buffer *b = &c->body;
    if (!jv_parse(doc, b->count ? b->bytes : "", b->count, JV_STRICT, &wrong))
        return 0;
    return api_fail(&c->error, 400, "invalid_json",
                    "the body is not JSON: %s at byte %zu", wrong.what,
                    wrong.at + 1);
}

static int no_memory(struct call *c)
{
    return api_fail(&c->error, 503, "no_memory", "no memory for the body");
}

static int convert(struct call *c, struct buffer *out, bool counts)
{
    struct jv_doc doc;
    if (parse(c, &doc))
        return -1;
    int err = convert_messages(out, doc.root, counts, &c->error);
    jv_free(&doc);
    return !err && out->failed ? no_memory(c) : err;
}

void route_messages(struct call *c)
{
    struct buffer body = { 0 };
    if (!convert(c, &body, false))
        ask(c, API_ANTHROPIC, &body);
    buffer_free(&body);
}

/* ---- responses ---- */

static struct store *store_of(struct call *c, int status)
{
    if (!c->room->store)
        api_fail(&c->error, status,
                 status == 404 ? "not_found" : "previous_response_not_found",
                 "this server keeps no responses: it runs without --data");
    return c->room->store;
}

/* The items of the response that this one goes on from, and its output. */
static int find_before(struct call *c, const struct jv *id,
                       struct buffer *turns)
{
    struct buffer object = { 0 };
    struct api_error e = { 0 };
    struct jv_doc doc;
    if (!jv_is_type(id, JV_STRING))
        return convert_refuse(&c->error, "previous_response_id",
                              "it is not a text");
    snprintf(c->error.field, sizeof c->error.field, "previous_response_id");
    struct store *s = store_of(c, 400);
    if (!s)
        return -1;
    int err = store_response_read(s, id->text, c->owner, &object, turns, &e);
    if (err || jv_parse(&doc, object.bytes, object.count, JV_STRICT, NULL)) {
        buffer_free(&object);
        return api_fail(&c->error, 400, "previous_response_not_found",
                        "previous_response_id: there is no response %.80s",
                        id->text);
    }
    const struct jv *output = jv_get(doc.root, "output");
    if (output->raw_bytes > 2) { /* of the list, what is in it */
        buffer_text(turns, turns->count ? "," : "");
        buffer_put(turns, output->raw + 1, output->raw_bytes - 2);
    }
    jv_free(&doc);
    buffer_free(&object);
    *c->error.field = 0;
    return 0;
}

/* The body, with what was said before it. c->turns: all of that. */
static int convert_body(struct call *c, const struct jv *body,
                        struct buffer *out)
{
    const struct jv *id = jv_get(body, "previous_response_id");
    struct buffer list = { 0 };
    struct jv_doc before = { 0 };
    int err = jv_is_empty(id) ? 0 : find_before(c, id, &c->turns);
    if (err)
        return err;
    buffer_format(&list, "[");
    if (c->turns.count)
        buffer_put(&list, c->turns.bytes, c->turns.count);
    buffer_text(&list, "]");
    if (list.failed || c->turns.failed ||
        jv_parse(&before, list.bytes, list.count, JV_STRICT, NULL))
        err = no_memory(c);
    else
        err = convert_responses(out, body, before.root, &c->error);
    jv_free(&before);
    buffer_free(&list);
    return err;
}

/* Ours to keep, unless the client does not want it. */
static int remember(struct call *c, const struct jv *body)
{
    const struct jv *store = jv_get(body, "store");
    if (!jv_is_empty(store) && !jv_is_bool(store))
        return convert_refuse(&c->error, "store", "it is not true or false");
    c->store = c->room->store && (jv_is_empty(store) || store->type == JV_TRUE);
    convert_echo(&c->echo, body);
    if (!c->store)
        return c->echo.failed ? no_memory(c) : 0;
    buffer_text(&c->turns, c->turns.count ? "," : "");
    convert_turns(&c->turns, body);
    return c->echo.failed || c->turns.failed ? no_memory(c) : 0;
}

void route_responses(struct call *c)
{
    struct buffer body = { 0 };
    struct jv_doc doc;
    if (parse(c, &doc))
        return;
    int err = convert_body(c, doc.root, &body);
    if (!err)
        err = remember(c, doc.root);
    jv_free(&doc);
    if (!err && body.failed)
        err = no_memory(c);
    if (!err)
        ask(c, API_RESPONSES, &body);
    buffer_free(&body);
}

void route_response_get(struct call *c)
{
    struct buffer json = { 0 };
    struct store *s = store_of(c, 404);
    if (s && !store_response_read(s, c->id, c->owner, &json, NULL, &c->error))
        call_json(c, 200, &json);
    else
        buffer_free(&json);
}

void route_response_delete(struct call *c)
{
    struct buffer json = { 0 };
    struct store *s = store_of(c, 404);
    if (s && !store_response_delete(s, c->id, c->owner, &json, &c->error))
        call_json(c, 200, &json);
}

void route_count_tokens(struct call *c)
{
    struct buffer body = { 0 }, json = { 0 };
    uint64_t ids;
    if (!convert(c, &body, true) && !ask_count(c, &body, &ids)) {
        buffer_format(&json, "{\"input_tokens\":%" PRIu64 "}", ids);
        call_json(c, 200, &json);
    }
    buffer_free(&body);
}

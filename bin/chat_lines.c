#include "bin/chat_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "model/chat/reply.h"
#include "model/chat/request.h"
#include "model/json/jv_write.h"

static int refused(struct buffer *out, const struct refusal *r)
{
    out->count = 0;
    buffer_format(out, "error: %s: %s", *r->field ? r->field : "request",
                  r->sentence);
    return out->failed ? -ENOMEM : 1;
}

static int parse(struct jv_doc *d, const char *line, size_t bytes,
                 struct refusal *r)
{
    struct jv_wrong wrong;
    int err = jv_parse(d, line, bytes, JV_STRICT, &wrong);
    if (err == -EBADMSG)
        return refusal_set(r, "", "not JSON: %s at byte %zu", wrong.what,
                           wrong.at + 1);
    return err;
}

int chat_lines_encode(const struct tok *t, const char *line, size_t bytes,
                      struct buffer *out)
{
    struct jv_doc d;
    struct request q;
    struct refusal r = { 0 };
    struct id_list ids = { 0 };
    struct error error = { 0 };
    int err = parse(&d, line, bytes, &r);
    if (err)
        return err == -ENOMEM ? err : refused(out, &r);
    err = request_read(&q, d.root, NULL, NULL, false, &r);
    if (!err && !q.is_chat)
        err = refusal_set(&r, "messages", "there are none");
    if (!err)
        err = chat_encode(&q.chat, t, &ids, &error);
    if (err == -ENOTSUP)
        refusal_set(&r, "", "%s", error.text);
    jv_free(&d);
    out->count = 0;
    buffer_text(out, "");
    for (size_t i = 0; i < ids.count && !err; i++)
        buffer_format(out, i ? ",%" PRIu32 : "%" PRIu32, ids.ids[i]);
    id_list_free(&ids);
    if (err && err != -ENOMEM)
        return refused(out, &r);
    return out->failed ? -ENOMEM : err;
}

/* ---- replies ---- */

static int flag(const struct jv *body, const char *field, bool *out,
                struct refusal *r)
{
    const struct jv *v = jv_get(body, field);
    if (v && !jv_is_bool(v))
        return refusal_set(r, field, "it is neither true nor false");
    if (v)
        *out = v->type == JV_TRUE;
    return 0;
}

static int read_options(struct reply_options *o, const struct jv *body,
                        struct refusal *r)
{
    const struct jv *first = jv_get(body, "first");
    bool thinking = true;
    *o = (struct reply_options){ .chat = true, .calls = true };
    int err = flag(body, "thinking", &thinking, r);
    if (!err)
        err = flag(body, "calls", &o->calls, r);
    if (!err)
        err = flag(body, "one", &o->one_call, r);
    if (!err && first && !jv_is(first, "think") && !jv_is(first, "response"))
        err = refusal_set(r, "first", "it is neither think nor response");
    o->in_answer = first ? jv_is(first, "response") : !thinking;
    return err;
}

static int add_stops(struct reply *reply, const struct jv *stop,
                     struct refusal *r)
{
    bool list = jv_is_type(stop, JV_ARRAY);
    int err = 0;
    for (const struct jv *s = list ? jv_first(stop) : stop; s && !err;
         s = list ? jv_next(stop, s) : NULL) {
        if (jv_is_empty(s))
            continue;
        if (s->type != JV_STRING || reply->stops == REPLY_STOPS_MAX)
            return refusal_set(r, "stop", "it is not a text or up to %d texts",
                               (int)REPLY_STOPS_MAX);
        err = reply_add_stop(reply, s->text, s->bytes);
    }
    return err;
}

static void put_text(struct buffer *out, const char *before,
                     const struct buffer *b)
{
    buffer_text(out, before);
    jv_write_line_string(out, b->bytes, b->count);
}

/* What the last id settled. */
static void put_deltas(struct buffer *out, const struct reply *r)
{
    static const char *const kinds[] = { [REPLY_THOUGHT_TEXT] = "think",
                                         [REPLY_CONTENT_TEXT] = "text",
                                         [REPLY_CALL_BEGINS] = "call",
                                         [REPLY_CALL_ARGUMENTS] = "args" };
    for (uint32_t i = 0; i < r->events; i++) {
        const struct reply_event *e = &r->event[i];
        buffer_format(out, "%s[%" PRIu32 ",\"%s\",", out->count ? "," : "",
                      r->used, kinds[e->kind]);
        if (e->kind >= REPLY_CALL_BEGINS)
            buffer_format(out, "%" PRIu32 ",", e->call);
        jv_write_line_string(out, r->event_text.bytes + e->begin, e->bytes);
        buffer_text(out, "]");
    }
}

static int read_ids(struct reply *reply, const struct jv *ids,
                    struct buffer *deltas, uint32_t vocab, struct refusal *r)
{
    int said = 0;
    if (!jv_is_type(ids, JV_ARRAY))
        return refusal_set(r, "ids", "it is not a list of ids");
    for (const struct jv *v = jv_first(ids); v && said >= 0;
         v = jv_next(ids, v)) {
        int64_t id;
        if (!jv_integer(v, &id) || id < 0 || id >= vocab)
            return refusal_set(r, "ids", "%.*s is no id below %" PRIu32,
                               v->raw_bytes < 20 ? (int)v->raw_bytes : 20,
                               v->raw, vocab);
        said = reply_push(reply, (uint32_t)id);
        put_deltas(deltas, reply);
    }
    if (said >= 0) {
        said = reply_end(reply, true);
        put_deltas(deltas, reply);
    }
    return said < 0 || deltas->failed ? -ENOMEM : 0;
}

static void put_message(struct buffer *out, const struct reply *r,
                        const struct buffer *deltas)
{
    out->count = 0;
    put_text(out, "{\"reasoning_content\":", &r->thoughts);
    if (r->calls && !r->content.count)
        buffer_text(out, ",\"content\":null");
    else
        put_text(out, ",\"content\":", &r->content);
    buffer_text(out, ",\"tool_calls\":[");
    for (uint32_t i = 0; i < r->calls; i++) {
        put_text(out, i ? ",{\"name\":" : "{\"name\":", &r->call[i].name);
        put_text(out, ",\"arguments\":", &r->call[i].arguments);
        buffer_text(out, "}");
    }
    buffer_format(out, "],\"finish_reason\":\"%s\",\"used\":%" PRIu32
                       "%s,\"deltas\":[",
                  reply_reason_name(r->reason), r->used,
                  r->moved ? ",\"moved\":true" : "");
    buffer_put(out, deltas->bytes, deltas->count);
    buffer_text(out, "]}");
}

int chat_lines_reply(const struct tok *t, const char *line, size_t bytes,
                     struct buffer *out)
{
    struct jv_doc d;
    struct reply_options o;
    struct reply reply;
    struct buffer deltas = { 0 };
    struct refusal r = { 0 };
    int err = parse(&d, line, bytes, &r);
    if (err)
        return err == -ENOMEM ? err : refused(out, &r);
    err = read_options(&o, d.root, &r);
    reply_init(&reply, t, &o);
    if (!err)
        err = add_stops(&reply, jv_get(d.root, "stop"), &r);
    if (!err)
        err = read_ids(&reply, jv_get(d.root, "ids"), &deltas, tok_vocab(t),
                       &r);
    if (!err)
        put_message(out, &reply, &deltas);
    reply_free(&reply);
    buffer_free(&deltas);
    jv_free(&d);
    if (err && err != -ENOMEM)
        return refused(out, &r);
    return out->failed ? -ENOMEM : err;
}

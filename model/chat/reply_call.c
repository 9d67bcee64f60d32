/* reply_call.c - calls and their arguments, to JSON texts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/reply_internal.h"
#include "model/json/jv.h"
#include "model/json/jv_write.h"

/* Argument text from `from` on is settled. */
static void show(struct reply *r, size_t from)
{
    struct buffer *a = &r->now.arguments;
    if (a->count > from && r->options.calls)
        reply_emit(r, REPLY_CALL_ARGUMENTS, a->bytes + from, a->count - from);
}

static void clear(struct reply_call *c)
{
    buffer_free(&c->name);
    buffer_free(&c->arguments);
}

void reply_begin_call(struct reply *r, struct reply_slice attributes)
{
    r->region = REPLY_CALL;
    r->called = true;
    r->in_call = reply_attribute(attributes, "tool", &r->scratch) &&
                 r->scratch.count > 0;
    r->has_json = false;
    r->arguments = 0;
    if (!r->in_call)
        return;
    clear(&r->now);
    jv_clean(&r->now.name, r->scratch.bytes, r->scratch.count);
    if (r->options.calls && !r->now.name.failed)
        reply_emit(r, REPLY_CALL_BEGINS, r->now.name.bytes, r->now.name.count);
}

void reply_drop_call(struct reply *r)
{
    clear(&r->now);
    r->in_call = false;
}

bool reply_finish_call(struct reply *r)
{
    size_t from = r->now.arguments.count;
    if (!r->in_call)
        return false;
    if (!r->has_json)
        buffer_text(&r->now.arguments, r->arguments ? "}" : "{}");
    show(r, from);
    r->in_call = false;
    r->failed |= r->now.name.failed || r->now.arguments.failed;
    if (!r->options.calls || r->failed) {
        clear(&r->now);
        return false;
    }
    if (r->calls == r->call_room) {
        uint32_t room = r->call_room * 2 + 4;
        struct reply_call *larger = realloc(r->call, room * sizeof *larger);
        if (!larger) {
            r->failed = true;
            return false;
        }
        r->call = larger;
        r->call_room = room;
    }
    r->call[r->calls++] = r->now;
    memset(&r->now, 0, sizeof r->now);
    return r->options.one_call;
}

void reply_begin_value(struct reply *r, enum reply_region which,
                       struct reply_slice attributes)
{
    struct buffer *a = &r->now.arguments;
    size_t from = a->count;
    bool json = which == REPLY_JSON;
    r->outside = !r->in_call;
    if (r->outside)
        r->before = r->region;
    r->region = which;
    r->skipping = r->outside || r->has_json || (json && r->arguments > 0);
    r->value.count = 0;
    tok_stream_init(&r->half_value);
    r->is_text = false;
    if (r->skipping)
        return;
    if (json) {
        r->has_json = true;
        return;
    }
    r->is_text = !reply_attribute(attributes, "type", &r->type) ||
                 (r->type.count == 6 && !memcmp(r->type.bytes, "string", 6));
    r->skipping = !reply_attribute(attributes, "key", &r->scratch);
    if (r->skipping)
        return;
    buffer_text(a, r->arguments++ ? ",\"" : "{\"");
    jv_clean(&r->value, r->scratch.bytes, r->scratch.count);
    jv_write_escaped(a, r->value.bytes, r->value.count);
    buffer_text(a, r->is_text ? "\":\"" : "\":");
    r->value.count = 0;
    show(r, from);
}

/* What the value has now as UTF-8 goes to the arguments: escaped in a string,
 * as it is in a json element. Any other is kept until it is whole. */
static void take(struct reply *r)
{
    size_t from = r->now.arguments.count;
    if (r->region == REPLY_JSON)
        buffer_put(&r->now.arguments, r->value.bytes, r->value.count);
    else if (r->is_text)
        jv_write_escaped(&r->now.arguments, r->value.bytes, r->value.count);
    else
        return;
    r->value.count = 0;
    show(r, from);
}

void reply_value(struct reply *r, const char *bytes, size_t n)
{
    if (r->skipping)
        return;
    reply_decode(&r->half_value, bytes, n, &r->value);
    take(r);
}

/* A value that is no string: itself if it is one JSON value, else a string. */
static void write_whole(struct reply *r)
{
    static const char blanks[] = " \t\r\n";
    struct buffer *a = &r->now.arguments;
    const char *at = r->value.bytes;
    size_t n = r->value.count;
    struct jv_doc d;
    while (n > 0 && memchr(blanks, *at, 4)) {
        at++;
        n--;
    }
    while (n > 0 && memchr(blanks, at[n - 1], 4))
        n--;
    int err = n > 0 ? jv_parse(&d, at, n, JV_STRICT, NULL) : -EBADMSG;
    if (n == 0 && r->type.count == 4 && !memcmp(r->type.bytes, "null", 4)) {
        buffer_text(a, "null");
    } else if (!err) {
        buffer_put(a, at, n);
        jv_free(&d);
    } else {
        jv_write_string(a, r->value.bytes, r->value.count);
    }
    r->failed |= err == -ENOMEM;
}

void reply_end_value(struct reply *r)
{
    if (r->region != REPLY_ARGUMENT && r->region != REPLY_JSON)
        return;
    size_t from = r->now.arguments.count;
    if (!r->skipping) {
        reply_decode_end(&r->half_value, &r->value);
        take(r);
        from = r->now.arguments.count;
        if (r->region == REPLY_ARGUMENT && r->is_text)
            buffer_text(&r->now.arguments, "\"");
        else if (r->region == REPLY_ARGUMENT)
            write_whole(r);
        show(r, from);
    }
    r->region = r->outside ? r->before : REPLY_CALL;
    r->outside = false;
}

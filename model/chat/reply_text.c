/* reply_text.c - thoughts and content: whole characters, stop strings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/reply_internal.h"
#include "model/json/jv_write.h"

void reply_emit(struct reply *r, enum reply_kind kind, const char *text,
                size_t bytes)
{
    struct reply_event *last = r->events ? &r->event[r->events - 1] : NULL;
    if (!bytes && kind != REPLY_CALL_BEGINS)
        return;
    if (kind != REPLY_CALL_BEGINS && last && last->kind == kind &&
        (kind != REPLY_CALL_ARGUMENTS || last->call == r->calls)) {
        buffer_put(&r->event_text, text, bytes);
        last->bytes += bytes;
        return;
    }
    if (r->events == r->event_room) {
        uint32_t room = r->event_room * 2 + 4;
        struct reply_event *larger = realloc(r->event, room * sizeof *larger);
        if (!larger) {
            r->failed = true;
            return;
        }
        r->event = larger;
        r->event_room = room;
    }
    r->event[r->events++] = (struct reply_event){ .kind = kind,
                                                  .call = r->calls,
                                                  .begin = r->event_text.count,
                                                  .bytes = bytes };
    buffer_put(&r->event_text, text, bytes);
}

void reply_decode(struct tok_stream *half, const char *bytes, size_t n,
                  struct buffer *to)
{
    char part[256];
    enum { STEP = sizeof part - TOK_STREAM_HELD_MAX };
    while (n > 0) {
        size_t step = n < STEP ? n : STEP;
        size_t got = tok_stream_push(half, bytes, step, part, sizeof part);
        jv_clean(to, part, got);
        bytes += step;
        n -= step;
    }
}

void reply_decode_end(struct tok_stream *half, struct buffer *to)
{
    char part[TOK_STREAM_HELD_MAX];
    jv_clean(to, part, tok_stream_flush(half, part, sizeof part));
}

/* Give what the thoughts have since `from`. */
static void show_thoughts(struct reply *r, size_t from)
{
    if (r->thoughts.count > from)
        reply_emit(r, REPLY_THOUGHT_TEXT, r->thoughts.bytes + from,
                   r->thoughts.count - from);
}

void reply_think(struct reply *r, const char *bytes, size_t n)
{
    size_t from = r->thoughts.count;
    reply_decode(&r->half_thought, bytes, n, &r->thoughts);
    show_thoughts(r, from);
}

int reply_add_stop(struct reply *r, const char *text, size_t bytes)
{
    struct reply_stop *s = &r->stop[r->stops];
    uint32_t *fallback = calloc(bytes, sizeof *fallback);
    if (!fallback)
        return -ENOMEM;
    for (size_t i = 1, n = 0; i < bytes; i++) {
        while (n > 0 && text[i] != text[n])
            n = fallback[n - 1];
        n += text[i] == text[n];
        fallback[i] = (uint32_t)n;
    }
    *s = (struct reply_stop){ text, bytes, 0, fallback };
    r->stops++;
    return 0;
}

/* One more byte of content. Returns the length of the longest stop string that
 * ends with it, or 0. */
static size_t advance(struct reply *r, char c)
{
    size_t complete = 0;
    for (uint32_t i = 0; i < r->stops; i++) {
        struct reply_stop *s = &r->stop[i];
        while (s->matched > 0 && s->text[s->matched] != c)
            s->matched = s->fallback[s->matched - 1];
        s->matched += s->text[s->matched] == c;
        if (s->matched == s->bytes && s->bytes > complete)
            complete = s->bytes;
    }
    return complete;
}

/* The content has grown since `from`: look for stop strings, give what cannot
 * be the beginning of one. */
static bool settle(struct reply *r, size_t from)
{
    size_t complete = 0, held = 0, at = from;
    if (r->content.failed || r->content.count == from)
        return false;
    while (r->stops && at < r->content.count && !complete)
        complete = advance(r, r->content.bytes[at++]);
    for (uint32_t i = 0; i < r->stops && !complete; i++)
        if (r->stop[i].matched > held)
            held = r->stop[i].matched;
    if (complete)
        r->content.count = at - complete;
    size_t ready = r->content.count - held;
    if (ready > r->shown)
        reply_emit(r, REPLY_CONTENT_TEXT, r->content.bytes + r->shown,
                   ready - r->shown);
    r->shown = ready > r->shown ? ready : r->shown;
    return complete > 0;
}

bool reply_say(struct reply *r, const char *bytes, size_t n)
{
    size_t from = r->content.count;
    reply_decode(&r->half_content, bytes, n, &r->content);
    return settle(r, from);
}

bool reply_move(struct reply *r)
{
    size_t from = r->content.count;
    if (!r->implied || from > 0 || r->half_content.count > 0 || r->calls > 0)
        return false;
    reply_decode_end(&r->half_thought, &r->thoughts);
    if (!r->thoughts.count)
        return false;
    buffer_put(&r->content, r->thoughts.bytes, r->thoughts.count);
    r->thoughts.count = 0;
    r->moved = true;
    return settle(r, from);
}

void reply_flush(struct reply *r)
{
    size_t from = r->thoughts.count;
    reply_decode_end(&r->half_thought, &r->thoughts);
    show_thoughts(r, from);
    from = r->content.count;
    reply_decode_end(&r->half_content, &r->content);
    if (settle(r, from) || r->content.failed)
        return;
    if (r->content.count > r->shown)
        reply_emit(r, REPLY_CONTENT_TEXT, r->content.bytes + r->shown,
                   r->content.count - r->shown);
    r->shown = r->content.count;
}

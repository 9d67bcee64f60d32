/* reply.c - the regions of a reply and the tags that lead between them. */
#include "model/chat/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/reply_internal.h"

void reply_init(struct reply *r, const struct tok *tok,
                const struct reply_options *options)
{
    memset(r, 0, sizeof *r);
    r->tok = tok;
    r->options = *options;
    r->open_id = r->close_id = r->sep_id = -1;
    r->first_special = UINT32_MAX;
    r->region = REPLY_RESPONSE;
    if (!tok || !options->chat)
        return;
    r->open_id = tok_special(tok, "<|open|>");
    r->close_id = tok_special(tok, "<|close|>");
    r->sep_id = tok_special(tok, "<|sep|>");
    r->first_special = tok_vocab(tok) - TOK_SPECIALS;
    r->implied = !options->in_answer;
    r->region = options->in_answer ? REPLY_RESPONSE : REPLY_THINK;
}

static void drop_text(struct reply *r)
{
    struct buffer *all[] = { &r->thoughts,     &r->content, &r->event_text,
                             &r->head,         &r->held,    &r->value,
                             &r->type,         &r->scratch, &r->now.name,
                             &r->now.arguments };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_free(all[i]);
    for (uint32_t i = 0; i < r->calls; i++) {
        buffer_free(&r->call[i].name);
        buffer_free(&r->call[i].arguments);
    }
    free(r->call);
    free(r->event);
}

void reply_restart(struct reply *r)
{
    struct reply old = *r;
    drop_text(r);
    reply_init(r, old.tok, &old.options);
    for (; r->stops < old.stops; r->stops++) {
        r->stop[r->stops] = old.stop[r->stops];
        r->stop[r->stops].matched = 0;
    }
}

void reply_free(struct reply *r)
{
    drop_text(r);
    for (uint32_t i = 0; i < r->stops; i++)
        free(r->stop[i].fallback);
    memset(r, 0, sizeof *r);
}

const char *reply_reason_name(enum reply_reason reason)
{
    static const char *const names[] = { [REPLY_STOP] = "stop",
                                         [REPLY_LENGTH] = "length",
                                         [REPLY_CALLS] = "tool_calls" };
    return names[reason];
}

static void finish(struct reply *r)
{
    if (r->done)
        return;
    reply_drop_call(r);
    reply_flush(r);
    r->reason = r->calls ? REPLY_CALLS : REPLY_STOP;
    r->done = true;
}

/* Content; a stop string ends the reply. */
static void say(struct reply *r, const char *bytes, size_t n)
{
    if (!reply_say(r, bytes, n))
        return;
    r->stopped = true;
    finish(r);
}

/* Between channels blanks wait for what follows them. */
static void say_between(struct reply *r, const char *bytes, size_t n)
{
    size_t blanks = 0;
    while (blanks < n && memchr(" \t\r\n", bytes[blanks], 4))
        blanks++;
    buffer_put(&r->held, bytes, blanks);
    if (blanks == n)
        return;
    r->region = REPLY_RESPONSE;
    r->failed |= r->held.failed;
    size_t held = r->held.count;
    r->held.count = 0;
    if (held)
        say(r, r->held.bytes, held);
    if (!r->done)
        say(r, bytes + blanks, n - blanks);
}

static void take_text(struct reply *r, const char *bytes, size_t n)
{
    if (r->done || n == 0)
        return;
    switch (r->region) {
    case REPLY_THINK:
        reply_think(r, bytes, n);
        break;
    case REPLY_RESPONSE:
        say(r, bytes, n);
        break;
    case REPLY_BETWEEN:
        say_between(r, bytes, n);
        break;
    case REPLY_ARGUMENT:
    case REPLY_JSON:
        reply_value(r, bytes, n);
        break;
    case REPLY_TOOLS:
    case REPLY_CALL:
        break;
    }
}

/* The answer stood in the think channel, if nothing else was said. */
static void move(struct reply *r)
{
    if (r->region != REPLY_THINK || !reply_move(r))
        return;
    r->stopped = true;
    finish(r);
}

/* Something else begins: a call counts unless one of its values is open. */
static void leave(struct reply *r)
{
    bool whole = r->in_call && r->region == REPLY_CALL;
    r->outside = false;
    if (whole && reply_finish_call(r))
        finish(r);
    reply_drop_call(r);
}

static void end_message(struct reply *r)
{
    move(r);
    leave(r);
    finish(r);
}

static bool said_anything(const struct reply *r)
{
    return r->thoughts.count || r->half_thought.count || r->content.count ||
           r->half_content.count || r->called;
}

static void open_message(struct reply *r, struct reply_slice attributes)
{
    bool ours =
        !reply_attribute(attributes, "role", &r->scratch) ||
        (r->scratch.count == 9 && !memcmp(r->scratch.bytes, "assistant", 9));
    if (!ours || said_anything(r))
        end_message(r);
}

static void open_tag(struct reply *r, enum reply_tag tag,
                     struct reply_slice attributes)
{
    static const enum reply_region region[TAGS] = {
        [TAG_THINK] = REPLY_THINK,       [TAG_RESPONSE] = REPLY_RESPONSE,
        [TAG_TOOLS] = REPLY_TOOLS,       [TAG_CALL] = REPLY_CALL,
        [TAG_ARGUMENT] = REPLY_ARGUMENT, [TAG_JSON] = REPLY_JSON,
    };
    if (tag == TAG_MESSAGE) {
        open_message(r, attributes);
        return;
    }
    if (tag == TAG_ARGUMENT || tag == TAG_JSON) {
        reply_end_value(r);
        reply_begin_value(r, region[tag], attributes);
        return;
    }
    leave(r);
    if (r->done)
        return;
    r->region = region[tag];
    if (tag == TAG_THINK)
        r->implied = false;
    else if (tag == TAG_CALL)
        reply_begin_call(r, attributes);
}

static void close_tag(struct reply *r, enum reply_tag tag)
{
    switch (tag) {
    case TAG_MESSAGE:
        end_message(r);
        break;
    case TAG_THINK:
        if (r->region == REPLY_THINK)
            r->region = REPLY_BETWEEN;
        break;
    case TAG_RESPONSE:
        move(r);
        if (r->region == REPLY_THINK || r->region == REPLY_RESPONSE)
            r->region = REPLY_BETWEEN;
        break;
    case TAG_TOOLS:
        if (r->region < REPLY_TOOLS)
            break;
        leave(r);
        r->region = REPLY_BETWEEN;
        break;
    case TAG_CALL:
        reply_end_value(r);
        if (r->region != REPLY_CALL)
            break;
        r->region = REPLY_TOOLS;
        if (reply_finish_call(r))
            finish(r);
        break;
    case TAG_ARGUMENT:
    case TAG_JSON:
        reply_end_value(r);
        break;
    case TAGS:
        break;
    }
}

static void finish_head(struct reply *r, enum reply_ending ending)
{
    if (!r->in_head)
        return;
    r->in_head = false;
    struct reply_head h =
        reply_read_head(r->head.bytes, r->head.count, r->closing, ending);
    if (h.tag != TAG_NONE) {
        r->held.count = 0;
        if (r->closing)
            close_tag(r, h.tag);
        else
            open_tag(r, h.tag, h.attributes);
    }
    take_text(r, h.rest.text, h.rest.bytes);
    r->head.count = 0;
}

static void take_piece(struct reply *r, const char *bytes, size_t n)
{
    if (!r->in_head) {
        take_text(r, bytes, n);
        return;
    }
    buffer_put(&r->head, bytes, n);
    if (r->head.count > REPLY_HEAD_MAX)
        finish_head(r, BY_MARK);
}

static void take_id(struct reply *r, uint32_t id)
{
    const char *bytes;
    if (id < r->first_special) {
        size_t n = r->tok ? tok_piece(r->tok, id, &bytes) : 0;
        if (n > 0)
            take_piece(r, bytes, n);
    } else if ((int)id == r->open_id || (int)id == r->close_id) {
        finish_head(r, BY_MARK);
        r->in_head = !r->done;
        r->closing = (int)id == r->close_id;
        r->head.count = 0;
    } else if ((int)id == r->sep_id) {
        finish_head(r, BY_SEP);
    } else if (tok_is_stop(r->tok, id)) {
        finish_head(r, BY_END);
        if (!r->done)
            end_message(r);
    }
}

static int status(struct reply *r)
{
    r->failed |= r->thoughts.failed || r->content.failed || r->head.failed ||
                 r->held.failed || r->value.failed || r->type.failed ||
                 r->scratch.failed || r->event_text.failed;
    return r->failed ? -ENOMEM : r->done;
}

enum reply_region reply_place(const struct reply *r)
{
    return r->in_head ? REPLY_TOOLS : r->region;
}

int reply_push(struct reply *r, uint32_t id)
{
    r->events = 0;
    r->event_text.count = 0;
    if (r->done)
        return status(r);
    r->used++;
    r->thought_ids += r->region == REPLY_THINK;
    take_id(r, id);
    return status(r);
}

int reply_end(struct reply *r, bool cut)
{
    r->events = 0;
    r->event_text.count = 0;
    if (r->done)
        return status(r);
    finish_head(r, BY_END);
    if (!r->done && !cut) {
        end_message(r);
    } else if (!r->done) {
        finish(r);
        r->reason = REPLY_LENGTH;
    }
    return status(r);
}

#include "bin/cli/speak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "model/json/jv_write.h"

enum { NOTE_NS = 200 * 1000 * 1000 };

#define DIM "\033[2m"
#define PLAIN "\033[0m"

bool speak_is_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb");
}

void speak_open(struct speak *s, bool hide)
{
    *s = (struct speak){ .terminal = speak_is_terminal(), .hide = hide };
}

/* The note is behind the cursor: wipe what is there. */
static void clear_note(struct speak *s)
{
    if (s->noted)
        fputs("\033[K", stdout);
    s->noted = false;
}

static void set_dim(struct speak *s, bool dim)
{
    if (s->dim == dim)
        return;
    fputs(dim ? DIM : PLAIN, stdout);
    if (!dim && s->said && !s->hide)
        fputs("\n\n", stdout);
    s->dim = dim;
}

/* Text for a terminal: no control characters but line ends and tabs. */
static void put_safe(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            fputs("\xef\xbf\xbd", stdout);
        else if (c == 0xc2 && i + 1 < bytes &&
                 ((unsigned char)text[i + 1] & 0xe0) == 0x80) {
            fputs("\xef\xbf\xbd", stdout); /* U+0080 to U+009F */
            i++;
        } else {
            putchar(c);
        }
    }
}

static void put_event(struct speak *s, const struct reply *r,
                      const struct reply_event *e)
{
    const char *text = r->event_text.bytes + e->begin;
    bool thought = e->kind == REPLY_THOUGHT_TEXT;
    if (e->kind > REPLY_CONTENT_TEXT)
        return;
    if (!s->terminal) {
        if (!thought)
            fwrite(text, 1, e->bytes, stdout);
        s->said |= !thought;
        return;
    }
    s->thinking = thought && s->hide;
    if (s->thinking)
        return;
    clear_note(s);
    set_dim(s, thought);
    put_safe(text, e->bytes);
    s->said = true;
}

bool speak_reply(struct speak *s, const struct reply *r)
{
    for (uint32_t i = 0; i < r->events; i++)
        put_event(s, r, &r->event[i]);
    return !fflush(stdout);
}

void speak_layer(void *speak, uint32_t layer, uint32_t layers)
{
    struct speak *s = speak;
    int64_t now = clock_ns();
    if (!s->terminal || now - s->noted_ns < NOTE_NS)
        return;
    s->noted_ns = now;
    s->noted = true;
    /* Without wrapping, so that the cursor comes back to where it was. */
    printf("\0337\033[?7l" DIM " %slayer %u/%u\033[K" PLAIN "\033[?7h\0338%s",
           s->thinking ? "thinking, " : "", layer + 1, layers,
           s->dim ? DIM : "");
    fflush(stdout);
}

static void put_calls(struct speak *s, const struct reply *r)
{
    struct buffer b = { 0 };
    for (uint32_t i = 0; i < r->calls; i++) {
        const struct reply_call *c = &r->call[i];
        buffer_text(&b, s->said || i ? "\n{\"name\":" : "{\"name\":");
        jv_write_line_string(&b, c->name.bytes, c->name.count);
        buffer_text(&b, ",\"arguments\":");
        buffer_put(&b, c->arguments.bytes, c->arguments.count);
        buffer_text(&b, "}");
    }
    if (s->terminal)
        put_safe(b.bytes, b.count);
    else
        fwrite(b.bytes ? b.bytes : "", 1, b.count, stdout);
    s->said |= r->calls > 0;
    buffer_free(&b);
}

bool speak_end(struct speak *s, const struct reply *r)
{
    clear_note(s);
    if (s->terminal && s->dim)
        fputs(PLAIN, stdout);
    s->dim = false;
    put_calls(s, r);
    if (s->said)
        putchar('\n');
    return !fflush(stdout);
}

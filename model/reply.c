#include "model/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void reply_init(struct reply *r, const struct tok *tok, bool chat,
                bool thinking)
{
    memset(r, 0, sizeof *r);
    r->tok = tok;
    r->chat = chat;
    r->channel = chat && thinking ? REPLY_THOUGHTS : REPLY_CONTENT;
    if (!chat || !tok)
        return;
    r->open_id = tok_special(tok, "<|open|>");
    r->close_id = tok_special(tok, "<|close|>");
    r->sep_id = tok_special(tok, "<|sep|>");
}

void reply_free(struct reply *r)
{
    for (int i = 0; i < REPLY_CHANNELS; i++)
        free(r->text[i].bytes);
    memset(r, 0, sizeof *r);
}

void reply_add_stop(struct reply *r, const char *text)
{
    size_t bytes = strlen(text);
    r->stop[r->stops++] = text;
    if (bytes > r->longest_stop)
        r->longest_stop = bytes;
}

static int append(struct reply_text *t, const char *bytes, size_t n)
{
    if (t->capacity - t->count < n) {
        size_t want = t->capacity * 2 + n + 64;
        char *larger = realloc(t->bytes, want);
        if (!larger)
            return -ENOMEM;
        t->bytes = larger;
        t->capacity = want;
    }
    memcpy(t->bytes + t->count, bytes, n);
    t->count += n;
    return 0;
}

/* The first place from `from` on at which a stop string begins. */
static bool find_stop(const struct reply *r, size_t from, size_t *at)
{
    const struct reply_text *t = &r->text[REPLY_CONTENT];
    bool found = false;
    for (uint32_t i = 0; i < r->stops; i++) {
        const char *hit = memmem(t->bytes + from, t->count - from, r->stop[i],
                                 strlen(r->stop[i]));
        if (!hit || (found && (size_t)(hit - t->bytes) >= *at))
            continue;
        found = true;
        *at = (size_t)(hit - t->bytes);
    }
    return found;
}

/* A tag is complete: what it opens or closes. */
static void turn(struct reply *r)
{
    bool think = r->tag_bytes == 5 && !memcmp(r->tag, "think", 5);
    r->in_tag = false;
    if (think)
        r->channel = r->opening ? REPLY_THOUGHTS : REPLY_CONTENT;
    else if (r->opening)
        r->channel = REPLY_CONTENT;
}

int reply_push(struct reply *r, uint32_t id)
{
    const char *bytes;
    size_t n = r->tok ? tok_piece(r->tok, id, &bytes) : 0;
    if (r->chat && r->tok && ((int)id == r->open_id ||
                              (int)id == r->close_id)) {
        r->in_tag = true;
        r->opening = (int)id == r->open_id;
        r->tag_bytes = 0;
        return 0;
    }
    if (r->in_tag && (int)id == r->sep_id) {
        turn(r);
        return 0;
    }
    if (!n)
        return 0;
    if (r->in_tag && r->tag_bytes + n <= REPLY_TAG_MAX) {
        memcpy(r->tag + r->tag_bytes, bytes, n);
        r->tag_bytes += n;
        return 0;
    }
    if (r->in_tag) { /* no tag of ours is so long: it was text */
        r->in_tag = false;
        int err = append(&r->text[r->channel], r->tag, r->tag_bytes);
        if (err)
            return err;
    }
    struct reply_text *t = &r->text[r->channel];
    size_t before = t->count, at = 0;
    int err = append(t, bytes, n);
    if (err || r->channel != REPLY_CONTENT || !r->stops)
        return err;
    if (!find_stop(r, before < r->longest_stop ? 0 : before - r->longest_stop,
                   &at))
        return 0;
    t->count = at;
    return 1;
}

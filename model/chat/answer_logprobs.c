/* answer_logprobs.c - probabilities of ids, in the shapes of both APIs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/answer.h"
#include "model/json/jv_write.h"

static const double least = -9999; /* as APIs say it of what cannot come */

/* ---- an id ---- */

static size_t piece_of(const struct answer *a, uint32_t id, const char **bytes)
{
    *bytes = "";
    return a->tok ? tok_piece(a->tok, id, bytes) : 0;
}

static void put_token(struct buffer *out, const char *bytes, size_t n)
{
    struct buffer clean = { 0 };
    jv_clean(&clean, bytes, n);
    if (clean.count == n && (n == 0 || !memcmp(clean.bytes, bytes, n))) {
        jv_write_line_string(out, bytes, n);
    } else {
        buffer_text(out, "\"bytes:");
        for (size_t i = 0; i < n; i++)
            buffer_format(out, "\\\\x%02x", (unsigned char)bytes[i]);
        buffer_text(out, "\"");
    }
    out->failed |= clean.failed;
    buffer_free(&clean);
}

static void put_number(struct buffer *out, double logprob)
{
    if (!(logprob > least))
        logprob = least;
    buffer_format(out, "%.9g", logprob + 0.0); /* no -0 */
}

/* ---- a chat ---- */

static void put_entry(struct buffer *out, const struct answer *a,
                      const struct answer_logprob *l)
{
    const char *bytes;
    size_t n = piece_of(a, l->id, &bytes);
    buffer_text(out, "{\"token\":");
    put_token(out, bytes, n);
    buffer_text(out, ",\"logprob\":");
    put_number(out, l->logprob);
    buffer_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        buffer_format(out, i ? ",%u" : "%u", (unsigned char)bytes[i]);
    buffer_text(out, "]");
}

static void put_chat(struct buffer *out, const struct answer *a,
                     const struct answer_score *const *s, uint32_t count)
{
    buffer_text(out, "{\"content\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            buffer_text(out, ",");
        put_entry(out, a, &s[i]->own);
        buffer_text(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < s[i]->tops; k++) {
            if (k)
                buffer_text(out, ",");
            put_entry(out, a, &s[i]->top[k]);
            buffer_text(out, "}");
        }
        buffer_text(out, "]}");
    }
    buffer_text(out, "],\"refusal\":null}");
}

/* ---- a completion ---- */

static void put_member(struct buffer *out, const struct answer *a,
                       const struct answer_logprob *l)
{
    const char *bytes;
    size_t n = piece_of(a, l->id, &bytes);
    put_token(out, bytes, n);
    buffer_text(out, ":");
    put_number(out, l->logprob);
}

/* The likeliest, and the one that was chosen. */
static void put_top(struct buffer *out, const struct answer *a,
                    const struct answer_score *s)
{
    bool own = false;
    buffer_text(out, "{");
    for (uint32_t k = 0; k < s->tops; k++) {
        if (k)
            buffer_text(out, ",");
        put_member(out, a, &s->top[k]);
        own |= s->top[k].id == s->own.id;
    }
    if (!own) {
        buffer_text(out, ",");
        put_member(out, a, &s->own);
    }
    buffer_text(out, "}");
}

static void put_completion(struct buffer *out, const struct answer *a,
                           const struct answer_score *const *s, uint32_t count)
{
    const char *bytes;
    uint64_t offset = 0; /* in characters */
    buffer_text(out, "{\"tokens\":[");
    for (uint32_t i = 0; i < count; i++) {
        size_t n = piece_of(a, s[i]->own.id, &bytes);
        buffer_text(out, i ? "," : "");
        put_token(out, bytes, n);
    }
    buffer_text(out, "],\"token_logprobs\":[");
    for (uint32_t i = 0; i < count; i++) {
        buffer_text(out, i ? "," : "");
        put_number(out, s[i]->own.logprob);
    }
    buffer_text(out, "],\"top_logprobs\":");
    bool tops = count > 0 && s[0]->tops > 0;
    buffer_text(out, tops ? "[" : "null");
    for (uint32_t i = 0; i < count && tops; i++) {
        buffer_text(out, i ? "," : "");
        put_top(out, a, s[i]);
    }
    buffer_text(out, tops ? "],\"text_offset\":[" : ",\"text_offset\":[");
    for (uint32_t i = 0; i < count; i++) {
        size_t n = piece_of(a, s[i]->own.id, &bytes);
        buffer_format(out, i ? ",%" PRIu64 : "%" PRIu64, offset);
        for (size_t b = 0; b < n; b++)
            offset += ((unsigned char)bytes[b] & 0xc0) != 0x80;
    }
    buffer_text(out, "]}");
}

/* ---- which ids ---- */

/* Those that the content is made of, up to its end: what a stop string cut off
 * has none. Returns how many. */
static uint32_t choose(const struct answer *a, const struct answer_choice *c,
                       const struct answer_score **out)
{
    const struct reply *r = c->reply;
    enum reply_region wanted = r->moved ? REPLY_THINK : REPLY_RESPONSE;
    uint32_t count = 0;
    size_t text = 0;
    const char *bytes;
    for (uint32_t i = 0; i < c->scores; i++) {
        const struct answer_score *s = &c->score[i];
        size_t n = piece_of(a, s->own.id, &bytes);
        bool special = a->tok && s->own.id >= tok_vocab(a->tok) - TOK_SPECIALS;
        if (a->is_chat && (s->region != wanted || special))
            continue;
        if (a->tok && r->stopped && text >= r->content.count)
            break;
        out[count++] = s;
        text += n;
    }
    return count;
}

void answer_logprobs(struct buffer *out, const struct answer *a,
                     const struct answer_choice *c)
{
    if (!c->score) {
        buffer_text(out, "null");
        return;
    }
    const struct answer_score **s = calloc(c->scores + 1, sizeof *s);
    if (!s) {
        out->failed = true;
        return;
    }
    uint32_t count = choose(a, c, s);
    if (a->is_chat)
        put_chat(out, a, s, count);
    else
        put_completion(out, a, s, count);
    free(s);
}

/* reply_head.c - what stands between <|open|> or <|close|> and its end. */
#include <string.h>

#include "model/chat/reply_internal.h"

static const char *const tag_names[TAGS] = {
    [TAG_MESSAGE] = "message",   [TAG_THINK] = "think",
    [TAG_RESPONSE] = "response", [TAG_TOOLS] = "tools",
    [TAG_CALL] = "call",         [TAG_ARGUMENT] = "argument",
    [TAG_JSON] = "json",
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_key_byte(char c)
{
    char lower = (char)(c | 0x20);
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
}

static bool all_blank(struct reply_slice s)
{
    for (size_t i = 0; i < s.bytes; i++)
        if (!is_blank(s.text[i]))
            return false;
    return true;
}

static void advance(struct reply_slice *s, size_t n)
{
    s->text += n;
    s->bytes -= n;
}

/* Take the next key="value" or key=value that follows a blank. */
static bool next_attribute(struct reply_slice *s, struct reply_slice *key,
                           struct reply_slice *value)
{
    while (s->bytes > 1) {
        size_t n = 0;
        bool begins = is_blank(*s->text);
        advance(s, 1);
        while (begins && n < s->bytes && is_key_byte(s->text[n]))
            n++;
        if (n == 0 || n == s->bytes || s->text[n] != '=')
            continue;
        struct reply_slice v = { s->text + n + 1, s->bytes - n - 1 };
        size_t length = 0;
        bool quoted = v.bytes > 0 && *v.text == '"';
        if (quoted)
            advance(&v, 1);
        while (length < v.bytes && v.text[length] != '"' &&
               (quoted || !is_blank(v.text[length])))
            length++;
        if (quoted ? length == v.bytes : length == 0)
            continue;
        *key = (struct reply_slice){ s->text, n };
        *value = (struct reply_slice){ v.text, length };
        advance(s, (size_t)(v.text + length - s->text) + quoted);
        return true;
    }
    return false;
}

bool reply_attribute(struct reply_slice attributes, const char *key,
                     struct buffer *out)
{
    struct reply_slice name, value;
    out->count = 0;
    while (next_attribute(&attributes, &name, &value)) {
        if (name.bytes != strlen(key) || memcmp(name.text, key, name.bytes))
            continue;
        buffer_text(out, "");
        while (value.bytes > 0) {
            bool quot = value.bytes >= 6 && !memcmp(value.text, "&quot;", 6);
            bool amp = value.bytes >= 5 && !memcmp(value.text, "&amp;", 5);
            buffer_put(out, quot ? "\"" : value.text, 1);
            advance(&value, quot ? 6 : amp ? 5 : 1);
        }
        return true;
    }
    return false;
}

static enum reply_tag tag_of(struct reply_slice name)
{
    for (enum reply_tag t = 0; t < TAGS; t++)
        if (strlen(tag_names[t]) == name.bytes &&
            !memcmp(tag_names[t], name.text, name.bytes))
            return t;
    return TAG_NONE;
}

static bool begins_a_tag(struct reply_slice name)
{
    for (enum reply_tag t = 0; t < TAGS; t++)
        if (strlen(tag_names[t]) >= name.bytes &&
            !memcmp(tag_names[t], name.text, name.bytes))
            return true;
    return false;
}

/* A separator that the model spelt in ordinary tokens. */
static void skip_written_separator(struct reply_slice *s)
{
    static const char *const forms[] = { "<|sep|>", "<|sep|", "<|sep" };
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(forms[i]);
        if (s->bytes < n || memcmp(s->text, forms[i], n))
            continue;
        advance(s, n);
        return;
    }
}

struct reply_head reply_read_head(const char *head, size_t bytes, bool closing,
                                  enum reply_ending ending)
{
    struct reply_head h = { .tag = TAG_NONE };
    struct reply_slice all = { head, bytes }, rest = all, key, value;
    while (rest.bytes > 0 && is_blank(*rest.text))
        advance(&rest, 1);
    struct reply_slice name = { rest.text, 0 };
    while (rest.bytes > 0 && *rest.text >= 'a' && *rest.text <= 'z') {
        advance(&rest, 1);
        name.bytes++;
    }
    if (!name.bytes && !rest.bytes)
        return h;
    struct reply_slice look = rest;
    bool blank = all_blank(rest);
    bool spaced = rest.bytes > 0 && is_blank(*rest.text);
    bool attributes = spaced && next_attribute(&look, &key, &value);
    enum reply_tag tag = tag_of(name);
    bool detailed = tag == TAG_CALL || tag == TAG_ARGUMENT || tag == TAG_JSON;
    if (tag == TAG_NONE) {
        bool nothing = (ending == BY_SEP && (blank || attributes)) ||
                       (ending == BY_END && blank && begins_a_tag(name));
        if (!nothing)
            h.rest = all;
        return h;
    }
    if (blank) {
        if (ending != BY_END || closing || !detailed)
            h.tag = tag;
        return h;
    }
    if ((spaced && ending == BY_SEP) || (attributes && ending == BY_MARK)) {
        h.tag = tag;
        if (spaced)
            h.attributes = rest;
        return h;
    }
    if (detailed || (attributes && ending == BY_END))
        return h;
    h.tag = tag;
    h.rest = rest;
    skip_written_separator(&h.rest);
    return h;
}

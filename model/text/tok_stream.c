#include "model/text/tok_stream.h"

#include <assert.h>
#include <string.h>

#include "model/json/utf8.h"

/* How many bytes at the end of `text` begin a character that is not complete.
 * Only the last byte that can begin a character matters. */
static size_t unfinished(const char *text, size_t bytes)
{
    for (size_t n = 1; n <= TOK_STREAM_HELD_MAX && n <= bytes; n++) {
        uint32_t cp;
        if ((text[bytes - n] & 0xc0) != 0x80)
            return utf8_next(text + bytes - n, n, &cp) == 0 ? n : 0;
    }
    return 0;
}

void tok_stream_init(struct tok_stream *s)
{
    s->count = 0;
}

size_t tok_stream_push(struct tok_stream *s, const char *bytes, size_t n,
                       char *out, size_t room)
{
    assert(room >= n + TOK_STREAM_HELD_MAX);
    size_t total = s->count + n;
    memcpy(out, s->held, s->count);
    if (n > 0)
        memcpy(out + s->count, bytes, n);
    s->count = unfinished(out, total);
    memcpy(s->held, out + total - s->count, s->count);
    return total - s->count;
}

size_t tok_stream_flush(struct tok_stream *s, char *out, size_t room)
{
    assert(room >= s->count);
    size_t count = s->count;
    memcpy(out, s->held, count);
    s->count = 0;
    return count;
}

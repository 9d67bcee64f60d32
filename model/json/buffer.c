#include "model/json/buffer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_put(struct buffer *b, const char *bytes, size_t n)
{
    if (b->failed)
        return;
    if (b->capacity - b->count <= n) {
        size_t want = b->capacity * 2 + n + 64;
        char *larger = realloc(b->bytes, want);
        if (!larger) {
            b->failed = true;
            return;
        }
        b->bytes = larger;
        b->capacity = want;
    }
    if (n > 0)
        memcpy(b->bytes + b->count, bytes, n);
    b->count += n;
    b->bytes[b->count] = 0;
}

void buffer_text(struct buffer *b, const char *text)
{
    buffer_put(b, text, strlen(text));
}

void buffer_format(struct buffer *b, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < sizeof text);
    buffer_put(b, text, (size_t)n);
}

void buffer_free(struct buffer *b)
{
    free(b->bytes);
    memset(b, 0, sizeof *b);
}

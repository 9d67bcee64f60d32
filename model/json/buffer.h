/* buffer.h - bytes that grow.
 *
 * The first failure stays: what is put afterwards is dropped, so that a writer
 * asks once, at its end.
 *
 *     { 0 } -> { buffer_put ... } -> failed? -> buffer_free
 *
 * Errors   `failed`: there was no memory.
 */
#ifndef MODEL_JSON_BUFFER_H
#define MODEL_JSON_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char  *bytes; /* terminated once something was put; may hold NUL */
    size_t count, capacity;
    bool   failed;
};

void buffer_put(struct buffer *b, const char *bytes, size_t n);
void buffer_text(struct buffer *b, const char *text);
void buffer_format(struct buffer *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void buffer_free(struct buffer *b);

#endif

/* tok_stream.h - print tokens as they come, never half a character.
 *
 * A token may end inside a character. The stream keeps those bytes, at most 3,
 * until the rest comes. If the next bytes cannot complete the character, they
 * go out as they are. The output is exactly the input.
 *
 *     tok_stream_init -> { tok_stream_push ... } -> tok_stream_flush
 *
 * Threads  one stream, one thread.
 * Errors   none.
 */
#ifndef MODEL_TEXT_TOK_STREAM_H
#define MODEL_TEXT_TOK_STREAM_H

#include <stddef.h>

enum { TOK_STREAM_HELD_MAX = 3 }; /* bytes: one less than a character */

struct tok_stream {
    char   held[TOK_STREAM_HELD_MAX]; /* [count] bytes not yet out */
    size_t count;
};

void tok_stream_init(struct tok_stream *s);

/* Add n bytes; put what is ready into out [room] and return its length in
 * bytes. room >= n + TOK_STREAM_HELD_MAX; `out` does not overlap `bytes`. */
size_t tok_stream_push(struct tok_stream *s, const char *bytes, size_t n,
                       char *out, size_t room);

/* Put the kept bytes into out [room], at the end of the input, and return their
 * number. room >= TOK_STREAM_HELD_MAX. The stream is then as after init. */
size_t tok_stream_flush(struct tok_stream *s, char *out, size_t room);

#endif

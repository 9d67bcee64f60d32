/* tok_stream.h - print tokens as they come, never half a character.
 *
 * A token may end inside a character. The stream holds such an end back, at
 * most 3 bytes, until the rest arrives or it is certain that none will: then
 * the bytes go out as they are. All that comes out is, in order, all that went
 * in.
 *
 *     tok_stream_init -> { tok_stream_push ... } -> tok_stream_flush
 *
 * Threads  one stream, one thread.
 * Errors   none.
 */
#ifndef MODEL_TOK_STREAM_H
#define MODEL_TOK_STREAM_H

#include <stddef.h>

enum { TOK_STREAM_HELD_MAX = 3 }; /* bytes of a character less one */

struct tok_stream {
    char   held[TOK_STREAM_HELD_MAX];
    size_t count;
};

void tok_stream_init(struct tok_stream *s);

/* Add n bytes and take what is ready into `out`. Returns its length in bytes.
 * Needs room >= n + TOK_STREAM_HELD_MAX; `out` does not overlap `bytes`. */
size_t tok_stream_push(struct tok_stream *s, const char *bytes, size_t n,
                       char *out, size_t room);

/* Take what is held when nothing more will come, room >=
 * TOK_STREAM_HELD_MAX. The stream is then as after init. */
size_t tok_stream_flush(struct tok_stream *s, char *out, size_t room);

#endif

/* reply_internal.h - what the files of the reply reader share.
 */
#ifndef MODEL_CHAT_REPLY_INTERNAL_H
#define MODEL_CHAT_REPLY_INTERNAL_H

#include "model/chat/reply.h"

/* reply_text.c: channels */

void reply_emit(struct reply *r, enum reply_kind kind, const char *text,
                size_t bytes);
/* Bytes to `to` as UTF-8; the end of a character waits in `half`. */
void reply_decode(struct tok_stream *half, const char *bytes, size_t n,
                  struct buffer *to);
void reply_decode_end(struct tok_stream *half, struct buffer *to);
void reply_think(struct reply *r, const char *bytes, size_t n);
/* True: a stop string is complete, the content is cut before it. */
bool reply_say(struct reply *r, const char *bytes, size_t n);
/* The thoughts were the answer: give them as content. As reply_say. */
bool reply_move(struct reply *r);
/* Nothing more comes: give what waits. */
void reply_flush(struct reply *r);

/* reply_head.c: tags */

struct reply_slice {
    const char *text;
    size_t      bytes;
};

enum reply_tag { TAG_MESSAGE, TAG_THINK, TAG_RESPONSE, TAG_TOOLS, TAG_CALL,
                 TAG_ARGUMENT, TAG_JSON, TAGS, TAG_NONE = TAGS };

/* What ended a head: the next mark, a separator, the reply. */
enum reply_ending { BY_MARK, BY_SEP, BY_END };

struct reply_head {
    enum reply_tag     tag;        /* the tag that it is */
    struct reply_slice attributes; /* for reply_attribute */
    struct reply_slice rest;       /* then text in the new region */
};

/* What a head is. TAG_NONE with no rest: nothing. */
struct reply_head reply_read_head(const char *head, size_t bytes, bool closing,
                                  enum reply_ending ending);
/* The value of an attribute, entities decoded. False: it has none. */
bool reply_attribute(struct reply_slice attributes, const char *key,
                     struct buffer *out);

/* reply_call.c: calls and their values. A finished call is kept; then
 * reply_finish_call says whether the reply is to end. */

void reply_begin_call(struct reply *r, struct reply_slice attributes);
bool reply_finish_call(struct reply *r);
void reply_drop_call(struct reply *r);
void reply_begin_value(struct reply *r, enum reply_region which,
                       struct reply_slice attributes);
void reply_value(struct reply *r, const char *bytes, size_t n);
void reply_end_value(struct reply *r);

#endif

/* reply.h - what a model says, to text: channels, stop strings.
 *
 * A chat reply has structure, `thoughts close(think) open(response) answer ...`
 * (k3-spec 5.6). It is read by token ids, never by their text, which the model
 * may also print; a structure that is broken or cut off loses no text. Outside
 * of chat every token is text.
 *
 *     reply_init -> { reply_push ... } -> reply_free
 *
 * Bytes    two growing buffers.
 * Errors   -ENOMEM.
 */
#ifndef MODEL_REPLY_H
#define MODEL_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/tok.h"

enum { REPLY_STOPS_MAX = 16, REPLY_TAG_MAX = 32 };

struct reply_text {
    char  *bytes; /* not terminated, need not be UTF-8 */
    size_t count, capacity;
};

enum reply_channel { REPLY_CONTENT, REPLY_THOUGHTS, REPLY_CHANNELS };

struct reply {
    const struct tok *tok; /* NULL: ids have no text */
    bool chat;
    struct reply_text text[REPLY_CHANNELS];
    enum reply_channel channel;
    /* stop strings, the caller's; none is empty */
    const char *stop[REPLY_STOPS_MAX];
    uint32_t stops;
    size_t   longest_stop;
    /* inside of open(...) or close(...) */
    bool   in_tag, opening;
    char   tag[REPLY_TAG_MAX];
    size_t tag_bytes;
    int    open_id, close_id, sep_id;
};

/* `thinking`: a chat reply begins with thoughts. */
void reply_init(struct reply *r, const struct tok *tok, bool chat,
                bool thinking);
/* At most REPLY_STOPS_MAX; the text stays where it is. */
void reply_add_stop(struct reply *r, const char *text);
/* One more id. 1 when the content has come to a stop string, which is cut off
 * with what follows it; else 0. */
int  reply_push(struct reply *r, uint32_t id);
void reply_free(struct reply *r);

#endif

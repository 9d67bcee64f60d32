/* chat.h - a conversation, as chat requests have it, to the ids of a prompt.
 *
 * A prompt is a list of segments, control tokens and texts. Each text is
 * encoded by itself and no special token is recognised in it: so no text,
 * whatever it spells, becomes a control token, and no merge crosses a border.
 *
 *     open(TAG KEY=VALUE)  <|open|> TAG ' KEY' '="' VALUE '"' <|sep|>
 *     close(TAG)           <|close|> TAG <|sep|>
 *     a message            open(message role=R ...) CONTENT close(message)
 *                          <|end_of_msg|>
 *
 * In a VALUE & and " are &amp; and &quot;; contents stay as they are. Before
 * the messages stand notes, system messages with a type: the declared tools,
 * the thinking effort; behind them a tool choice and a response format; then
 * the opening of the reply's message and of its first channel. The conversation
 * stays JSON: a schema and an argument go into the prompt as they are spelt.
 *
 *     chat_read -> { chat_segments, chat_encode }
 *
 * Bytes    struct chat points into the request's values, which must stay.
 * Threads  any number.
 * Errors   chat_read refuses what cannot be rendered: -EINVAL with the field;
 *          -ENOMEM. The rest -ENOMEM or the sink's.
 */
#ifndef MODEL_CHAT_CHAT_H
#define MODEL_CHAT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/chat/refusal.h"
#include "model/ckpt/error.h"
#include "model/json/buffer.h"
#include "model/json/jv.h"
#include "model/text/tok.h"

enum chat_control { CHAT_OPEN, CHAT_CLOSE, CHAT_SEP, CHAT_END, CHAT_CONTROLS };
enum chat_choice { CHAT_AUTO, CHAT_NONE, CHAT_REQUIRED };
enum chat_format { CHAT_TEXT, CHAT_JSON, CHAT_SCHEMA };

/* The channel of the opening is the model's own: usage leaves its ids out. */
enum { CHAT_OPENING_IDS = 3 };

struct chat {
    const struct jv *messages;
    const struct jv *tools;  /* declared by the request, or NULL */
    const struct jv *schema; /* of CHAT_SCHEMA */
    const struct jv *named;  /* the only tool that may be called, or NULL */
    enum chat_choice choice;
    enum chat_format format;
    const char *effort;      /* "low", "high", "max"; NULL without thinking */
    bool thinking;
    bool strict;     /* the schema's */
    bool calls;      /* tools are offered: a reply may have calls */
    bool one_call;   /* the reply ends after its first */
    bool prefill;    /* the last message is the reply's beginning */
    bool in_answer;  /* the reply begins in its response, not its thoughts */
};

/* The fields of a chat request that make its prompt; others are not looked at.
 * `body` is an object. */
int chat_read(struct chat *c, const struct jv *body, struct refusal *r);

/* response_format alone, which a completion may have, too: format, schema and
 * strict. chat_read does so. */
int chat_read_format(struct chat *c, const struct jv *body, struct refusal *r);

/* Is this a field that chat_read looks at. */
bool chat_knows(const struct jv *key);

/* One segment: control is -1 for a text, which is not empty. Returns 0 or an
 * error, which ends the rendering. */
typedef int chat_sink(void *context, int control, const char *text,
                      size_t bytes);
int chat_segments(const struct chat *c, chat_sink *sink, void *context);

/* The tools that a reply may call, as a JSON list: those of the request and of
 * its messages, or the named one. */
void chat_offered(struct buffer *out, const struct chat *c);
/* Is a call required, or one of these tools strict: then calls are kept to the
 * schemas. */
bool chat_keeps_calls(const struct chat *c);

/* Append the ids. -ENOTSUP for a vocabulary without the control tokens. On an
 * error `out` is as it was. */
int chat_encode(const struct chat *c, const struct tok *t, struct id_list *out,
                struct error *error);

#endif

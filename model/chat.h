/* chat.h - a conversation to the ids the model was trained on.
 *
 * A prompt is a list of segments, structural ones and text, each encoded by
 * itself (k3-spec 5.6): so no text, whatever it spells, becomes a control
 * token, and no merge crosses a border. This renders system, user and assistant
 * messages and ends with the opening of the reply; tools and images are not
 * here.
 *
 * The released tokenizer's default is thinking on with effort "max", which is
 * chat_default. Thinking off costs far fewer tokens a reply.
 *
 * Threads  any number, as tok_encode.
 * Errors   -EINVAL for a role or an effort that is none, -ENOTSUP for a
 *          vocabulary without the control tokens, -ENOMEM; with a sentence, and
 *          `out` as it was.
 */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "model/tok.h"
#include "model/why.h"

struct chat_part {
    const char *text;
    size_t      bytes;
};

/* The texts belong to the caller; they need not be UTF-8. */
struct chat_message {
    const char *role;            /* "system", "user" or "assistant" */
    const char *name;            /* attribute, or NULL */
    const char *content;         /* NULL is empty */
    size_t      content_bytes;
    const struct chat_part *part; /* what follows it, each a segment */
    size_t      parts;
    const char *reasoning;       /* an assistant's thoughts; NULL is empty, */
    size_t      reasoning_bytes; /* left out when thinking is off */
};

struct chat_options {
    bool        thinking;
    const char *effort; /* "low", "high", "max"; NULL: no such message. It
                         * needs `thinking`; without, it says nothing */
};

extern const struct chat_options chat_default; /* thinking, "max" */

/* Append the ids of `count` messages and of the opening of the reply. The reply
 * then begins with thoughts if `thinking`, else with the answer, and ends at a
 * token that tok_is_stop names. */
int chat_render(const struct tok *t, const struct chat_message *messages,
                size_t count, const struct chat_options *options,
                struct id_list *out, struct why *why);

#endif

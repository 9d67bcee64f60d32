/* chat_internal.h - what the files of this folder share: control ids, tools,
 * results of calls.
 */
#ifndef MODEL_CHAT_CHAT_INTERNAL_H
#define MODEL_CHAT_CHAT_INTERNAL_H

#include "model/chat/chat.h"
#include "model/json/jv_write.h"

/* The ids of the control tokens. -ENOTSUP. */
int chat_control_ids(const struct tok *t, uint32_t ids[CHAT_CONTROLS],
                     struct error *error);

/* Every tool that the request and its messages declare, checked. Sets
 * c->tools, c->named, c->choice, c->calls. */
int chat_read_tools(struct chat *c, const struct jv *body, struct refusal *r);

/* Thinking and effort, of all dialects. */
int chat_read_thinking(struct chat *c, const struct jv *body,
                       struct refusal *r);

/* The messages. Sets c->prefill and c->in_answer; needs c->thinking. */
int chat_read_messages(struct chat *c, struct refusal *r);

/* The tools as the prompt has them. */
void chat_write_tools(struct buffer *out, const struct jv *tools);

/* A result of a call: which message, whose result, which number it gets. */
struct chat_result {
    const struct jv *message, *name;
    uint32_t         rank; /* for sorting: the call's place */
};

/* The results that begin with `message`, one run of tool messages: in order of
 * the calls of `caller` (the last assistant message or NULL) if every one names
 * one of them, else as they come. `before` results came since the caller.
 * Returns how many, 0 when one has no name (*nameless is it), or -ENOMEM.
 * `*out` is for free(). */
int chat_results(const struct jv *messages, const struct jv *message,
                 const struct jv *caller, uint32_t before,
                 struct chat_result **out, const struct jv **nameless);

#endif

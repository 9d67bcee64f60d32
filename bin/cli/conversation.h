/* conversation.h - a conversation that grows: the messages of a chat request.
 *
 *     { 0 } -> conversation_open -> { conversation_user -> conversation_prompt
 *     -> conversation_reply ... } -> conversation_free
 *
 * It is kept as the JSON of its messages, so what is saved is a request that
 * any program can send.
 *
 * Bytes    its text.
 * Errors   -ENOMEM; -EINVAL with a sentence.
 */
#ifndef BIN_CLI_CONVERSATION_H
#define BIN_CLI_CONVERSATION_H

#include <stdbool.h>

#include "model/chat/reply.h"
#include "model/ckpt/error.h"
#include "model/sluice.h"

struct conversation {
    struct buffer system;   /* its text; empty: none */
    struct buffer messages; /* JSON objects with commas between them */
    struct buffer tools;    /* a JSON list; empty: none */
    const char *effort;     /* a constant; NULL: the model's own */
    size_t asked; /* bytes of `messages` up to the last user's message */
};

/* `system` and `tools`, a file with a list of tools or an object that has one,
 * may be NULL. */
int  conversation_open(struct conversation *c, const char *system,
                       const char *tools, struct error *error);
void conversation_free(struct conversation *c);
int  conversation_system(struct conversation *c, const char *text);
int  conversation_user(struct conversation *c, const char *text, size_t bytes);
/* Is a tool strict: calls have to be kept to their schemas. */
bool conversation_is_strict(const struct conversation *c);
/* none, low, high, max, as a constant; NULL: it is none of these. */
const char *conversation_effort(const char *name);
/* What the model said, whole or cut. */
int  conversation_reply(struct conversation *c, const struct reply *r);
/* Drop what came after the last user's message. False: there is none. */
bool conversation_again(struct conversation *c);
/* The ids of the prompt, and how the reply is to be read. `ids` is emptied
 * first. */
int  conversation_prompt(const struct conversation *c,
                         const struct sluice_text *text,
                         struct sluice_ids *ids, struct sluice_reply *reply,
                         struct error *error);
int  conversation_save(const struct conversation *c, const char *path,
                       struct error *error);
/* On an error the conversation is as it was. */
int  conversation_load(struct conversation *c, const char *path,
                       const struct sluice_text *text, struct error *error);

#endif

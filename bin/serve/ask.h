/* ask.h - the body of a request to a work in the queue, or to one that the same
 * client has asked for before.
 *
 * A request that comes again follows the first: with the same Idempotency-Key,
 * or without one when it says that it comes again (X-Stainless-Retry-Count
 * above 0), from the same client, to the same path, with the same body.
 */
#ifndef BIN_SERVE_ASK_H
#define BIN_SERVE_ASK_H

#include "bin/serve/call.h"

/* `body` is a request as OpenAI's API has it: c->body, or what was made of it.
 * Answers the call. */
void ask(struct call *c, enum api api, const struct buffer *body);
/* Only its prompt: the number of ids, as usage counts them. 0, or -1 with
 * c->error. */
int  ask_count(struct call *c, const struct buffer *body, uint64_t *ids);

#endif

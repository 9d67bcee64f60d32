/* chat_lines.h - sluice tokenize --chat and --reply: what the chat format makes
 * of a line.
 *
 * Threads  any: nothing but the arguments.
 * Errors   -ENOMEM; a refusal is text for `out`.
 */
#ifndef BIN_CHAT_LINES_H
#define BIN_CHAT_LINES_H

#include <stddef.h>

#include "model/json/buffer.h"
#include "model/text/tok.h"

/* The ids of a request's body, or `error: FIELD: sentence`, to `out`. 0; 1 for
 * a refusal; -ENOMEM. */
int chat_lines_encode(const struct tok *t, const char *line, size_t bytes,
                      struct buffer *out);

/* The message that {"ids": [..]} are: reasoning_content, content, tool_calls,
 * finish_reason, used (ids that were read until it ended), moved, deltas. The
 * options beside ids: thinking and calls (true, unless said), stop, first (the
 * channel in which a prefilled reply begins), one (a single call). */
int chat_lines_reply(const struct tok *t, const char *line, size_t bytes,
                     struct buffer *out);

#endif

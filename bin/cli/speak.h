/* speak.h - a reply of a conversation, on a terminal or in a pipe.
 *
 *     speak_open -> { speak_layer, speak_reply ... } -> speak_end
 *
 * On a terminal thoughts are dim, or hidden, and while there is no new text a
 * dim note behind it says which layer runs. Elsewhere, and on a terminal that
 * is dumb, only the answer is printed. Control characters of the model do not
 * reach a terminal. Calls of tools are printed at the end, a line of JSON each.
 *
 * Threads  one.
 */
#ifndef BIN_CLI_SPEAK_H
#define BIN_CLI_SPEAK_H

#include <stdbool.h>
#include <stdint.h>

#include "model/chat/reply.h"

struct speak {
    bool    terminal, hide; /* hide: thoughts */
    bool    noted;          /* a note stands behind the cursor */
    bool    said, dim;      /* some text; in thoughts */
    bool    thinking;       /* thoughts came, and were hidden */
    int64_t noted_ns;
};

/* Does stdout understand more than text. */
bool speak_is_terminal(void);
void speak_open(struct speak *s, bool hide);
/* What the last id settled. False: stdout takes no more. */
bool speak_reply(struct speak *s, const struct reply *r);
/* A layer runs. For sluice_options.progress. */
void speak_layer(void *speak, uint32_t layer, uint32_t layers);
/* The reply has ended: its calls, and the end of the line. */
bool speak_end(struct speak *s, const struct reply *r);

#endif

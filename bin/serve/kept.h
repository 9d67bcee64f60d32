/* kept.h - requests whose clients may come again, over the end of a server.
 *
 * When a server ends, those that are answered and were not fetched, and those
 * that it had no time to finish, go to --data with the ids they have. A client
 * that sends the same request again, as ask.h says, gets the first one's
 * answer: what there was of it is said from the ids, the rest is made. Requests
 * for logprobs are not kept.
 *
 * Threads  kept_save: the engine's. kept_take: HTTP's.
 * Errors   what cannot be kept is asked again, at its full cost.
 */
#ifndef BIN_SERVE_KEPT_H
#define BIN_SERVE_KEPT_H

#include "bin/serve/room.h"

/* All that can be found again. The room's lock is held. */
void kept_save(struct room *r);
/* Give `w`, which was just made of a request, what is kept under its name, and
 * its first name for clients. True: it is answered. Nobody else knows `w`. */
bool kept_take(struct room *r, struct work *w);

#endif

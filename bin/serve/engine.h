/* engine.h - the thread that runs passes: it opens the session, gives places to
 * requests and to lines of batches, and writes down what they say.
 *
 * A free place goes to the queue first, then to batches. When requests wait and
 * lines of batches have places, lines give theirs back. Then a request gives
 * its places back to one that waits if that has a lower priority number, or is
 * of a client who has fewer, or, with a prefix cache, if it had them for SLICE
 * ids and the other is of another client. What gave way goes on later to the
 * same bits: its state is in the prefix cache; without one its rows are read
 * again like a prompt. A pass has a row of every request that decodes, so
 * between two ids of a request that keeps its places there is one pass,
 * whatever prompts are being read beside it.
 *
 * After a pass that failed all its requests fail, and the session is opened
 * again, until that works.
 */
#ifndef BIN_SERVE_ENGINE_H
#define BIN_SERVE_ENGINE_H

#include "bin/serve/room.h"

/* Open the session. 0 or an error. */
int  engine_open(struct room *r, struct error *error);
/* Run until the state is ROOM_STOPPED, or ROOM_DRAINING and nothing runs.
 * `ready` is called each time a session is there; `say` with the sentence of a
 * pass or an open that failed. */
void engine_run(struct room *r, void (*ready)(struct room *r),
                void (*say)(struct room *r, const char *sentence));
/* Finish everything that is left, and close the session. */
void engine_close(struct room *r);

#endif

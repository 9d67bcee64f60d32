/* feeds.h - batches: lines of stored files that get places in the engine when
 * no client waits for one.
 *
 * Each batch is what `sluice batch` does (bin/batch): answers go to ID.out,
 * whole lines, forced to the drive after every pass; what unfinished lines have
 * so far goes to ID.out.partial about every second. A process that comes after
 * a crash goes on from there.
 *
 *     feeds_open -> { feeds_give, passes, feeds_after_step } -> feeds_close
 *
 * Threads  the engine's.
 * Errors   of one batch: it fails, with a sentence; the others go on.
 */
#ifndef BIN_SERVE_FEEDS_H
#define BIN_SERVE_FEEDS_H

#include "bin/serve/room.h"

/* Without room->store there are no batches. -ENOMEM. */
int  feeds_open(struct feeds **out, struct room *r, struct error *error);
/* No session is open any more. */
void feeds_close(struct feeds *f);
/* Give one line, of the batch whose turn it is, to the session. */
bool feeds_give(struct feeds *f);
/* Lines in the session. */
uint32_t feeds_running(const struct feeds *f);
/* So many requests wait: as many lines give their places back, and their states
 * go to the prefix cache. */
void feeds_yield(struct feeds *f, uint32_t places);
/* What was answered is on the drive; batches that are over are finished.
 * `now`: also what unfinished lines have. */
void feeds_after_step(struct feeds *f, bool now);

#endif

/* metrics.h - the room in numbers: for Prometheus, and for the page.
 *
 * Threads  the room's lock is held.
 */
#ifndef BIN_SERVE_METRICS_H
#define BIN_SERVE_METRICS_H

#include "bin/serve/room.h"

/* The text format of Prometheus. */
void metrics_put(struct buffer *out, const struct room *r);
/* An object: the requests of a client, how many others have, what the machine
 * does, and the last minutes, one entry a second. */
void metrics_queue(struct buffer *out, const struct room *r, uint64_t owner);
/* A second has passed. */
void metrics_second(struct room *r);

#endif

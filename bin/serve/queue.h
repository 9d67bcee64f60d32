/* queue.h - who is next: requests that wait for a place in the engine.
 *
 * The lower priority number goes first; then the client with the fewest
 * requests that run; of those, the one who was given a place longest ago; then
 * the older request. So one client with a thousand requests and one with a
 * single one share the engine.
 *
 *     { 0 } -> { queue_add, queue_take, queue_done, queue_remove }
 *
 * Threads  the room's lock.
 * Cost     the length of the queue, for each call.
 */
#ifndef BIN_SERVE_QUEUE_H
#define BIN_SERVE_QUEUE_H

#include "bin/serve/work.h"

struct client {
    struct client *after;
    uint64_t owner;
    uint32_t queued, running; /* requests; both 0: it is forgotten */
    uint64_t given;           /* when it last got a place, in places */
};

struct queue {
    struct work  *first; /* in the order in which they came */
    struct work **end;
    struct client *clients;
    uint32_t count;
    uint64_t places; /* given so far */
};

void queue_init(struct queue *q);
/* -ENOMEM. */
int  queue_add(struct queue *q, struct work *w);
/* The next one, or NULL; its client has one more that runs. */
struct work *queue_take(struct queue *q);
/* The one that queue_take would take. */
struct work *queue_first(const struct queue *q);
/* It was taken, and waits again: as the first of its kind, or as the last. */
void queue_return(struct queue *q, struct work *w, bool first);
/* It was taken, and is over. */
void queue_done(struct queue *q, struct work *w);
/* It was not taken. */
void queue_remove(struct queue *q, struct work *w);

#endif

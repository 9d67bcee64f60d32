/* follow.h - an answer on its way to a client: what is rendered and not written
 * yet, and the suspended connection that waits for more.
 *
 *     follow_open -> { follow_read: bytes, or the connection is suspended }
 *     -> follow_close
 *
 * A connection that has nothing to write is suspended; it is resumed when its
 * request has something new, or when it was silent for an interval and gets a
 * tick: a client that has gone is noticed by writing to it.
 *
 * Threads  the room's lock.
 */
#ifndef BIN_SERVE_FOLLOW_H
#define BIN_SERVE_FOLLOW_H

#include <sys/types.h>

#include "bin/serve/render.h"
#include "bin/serve/room.h"

struct MHD_Connection;

struct follow {
    struct follow *after;
    struct room *room;
    struct MHD_Connection *connection;
    struct work *work;
    struct render render;
    struct buffer out;
    size_t   given;     /* bytes of `out` */
    int64_t  wrote_ns;  /* the last time that there was something */
    int64_t  progress_ns;
    uint64_t sent;      /* bytes */
    bool     suspended;
};

/* Follow a work; the lock is held. Adds a reference to it. NULL: no memory. */
struct follow *follow_open(struct room *r, struct work *w, enum api api,
                       bool stream);
/* The next bytes of the answer, at most `room`: their count; 0: none are
 * there, and the connection is suspended; -1: the end; -2: the answer cannot be
 * given, cut the connection. Takes the lock. */
ssize_t follow_read(struct follow *f, char *out, size_t room);
/* The connection is done with it, or has gone. Takes the lock. */
void follow_close(struct follow *f);

/* ---- the lock is held ---- */

/* Resume those that follow `w` (NULL: any work) and have something new. */
void follows_wake(struct room *r, const struct work *w);
/* Resume those that were silent for an interval. */
void follows_tick(struct room *r, int64_t now_ns);

#endif

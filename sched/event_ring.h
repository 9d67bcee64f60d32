/* event_ring.h - what happened when, for the timeline: fixed rings, no locks.
 *
 *     event_ring_open -> { event_ring_add || event_ring_take }
 *     -> event_ring_close
 *
 * Bytes    nothing is allocated after open. A full track drops the newest
 *          events and counts them, until some are taken.
 * Threads  two tracks, each with one writer: the owner of the reads and the
 *          compute thread. One other thread takes from both meanwhile.
 * Errors   -ENOMEM from open.
 */
#ifndef SCHED_EVENT_RING_H
#define SCHED_EVENT_RING_H

#include <stdint.h>

enum event_track { EVENT_TRACK_READS, EVENT_TRACK_COMPUTE, EVENT_TRACKS };

enum event_kind {
    EVENT_READ,        /* a read: object, class, drive, bytes */
    EVENT_KERNEL,      /* work on a layer: value is the kernel's number */
    EVENT_WAIT_TRUNK,  /* compute waited for a tile */
    EVENT_WAIT_EXPERT, /* the same for experts of a layer */
    EVENT_RING,        /* counter: bytes in the ring */
    EVENT_FLIGHT,      /* counter: bytes in flight on a drive */
    EVENT_PASS,        /* one pass: object is its number, bytes its rows */
};

/* Names of objects that are no tile and no layer: the embedding, what another
 * network reads, and an expert, which is EVENT_EXPERT | moe layer * experts +
 * expert. */
#define EVENT_EMBEDDING UINT32_MAX
#define EVENT_GUEST     (UINT32_MAX - 1)
#define EVENT_EXPERT    (1u << 31)

struct event {
    int64_t  begin_ns, end_ns; /* CLOCK_MONOTONIC; reads: queued and done */
    int64_t  issued_ns;        /* reads: handed to the kernel */
    uint64_t bytes;  /* of the read, the counter; passes: their rows */
    uint32_t object; /* reads and waits for the trunk: the tile, or what is
                      * named above; else the layer, or EVENT_EMBEDDING */
    uint8_t  kind, class, drive, value;
};

struct event_ring;

/* Room for `capacity` events a track, at least 1. 0 or -ENOMEM. */
int event_ring_open(struct event_ring **out, uint32_t capacity);
void event_ring_close(struct event_ring *j);
/* `j` may be NULL: nothing happens. */
void event_ring_add(struct event_ring *j, enum event_track track,
                    const struct event *event);
/* Take the oldest events of a track, at most `max`; returns how many. */
uint32_t event_ring_take(struct event_ring *j, enum event_track track,
                         struct event *out, uint32_t max);
/* Events that did not fit, so far. */
uint64_t event_ring_dropped(const struct event_ring *j, enum event_track track);

#endif

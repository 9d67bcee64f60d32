/* journal.h - what happened when, for the timeline: fixed rings, no locks.
 *
 *     journal_open -> { journal_add || journal_take } -> journal_close
 *
 * Two lanes, each with one writer: the owner of the reads and the compute
 * thread. Somebody else, one thread for both lanes, takes the events out while
 * the writers go on. A lane that is full because nobody took drops the newest
 * events and counts them; it has room again as soon as some are taken. After
 * open, nothing allocates.
 */
#ifndef SCHED_JOURNAL_H
#define SCHED_JOURNAL_H

#include <stdint.h>

enum journal_lane { JOURNAL_READS, JOURNAL_COMPUTE, JOURNAL_LANES };

enum journal_kind {
    JOURNAL_READ,        /* a read: object, class, drive, bytes */
    JOURNAL_KERNEL,      /* work on a layer: value is the kernel's number */
    JOURNAL_WAIT_TRUNK,  /* compute had nothing to do but wait for a tile */
    JOURNAL_WAIT_EXPERT, /* the same for experts of a layer */
    JOURNAL_RING,        /* counter: bytes in the ring */
    JOURNAL_FLIGHT,      /* counter: bytes with the kernel, of a drive */
    JOURNAL_PASS,        /* one pass: object is its number, bytes its rows */
};

struct journal_event {
    int64_t  begin_ns, end_ns; /* CLOCK_MONOTONIC; reads: queued and done */
    int64_t  issued_ns;        /* reads: handed to the kernel */
    uint64_t bytes;
    uint32_t object; /* reads and waits for the trunk: tile number, or
                      * 1 << 31 | expert block; else the layer; UINT32_MAX:
                      * the embedding */
    uint8_t  kind, class, drive, value;
};

struct journal;

/* Room for `capacity` events a lane, at least 1. 0 or -ENOMEM. */
int  journal_open(struct journal **out, uint32_t capacity);
void journal_close(struct journal *j);
/* `j` may be NULL: nothing happens. */
void journal_add(struct journal *j, enum journal_lane lane,
                 const struct journal_event *event);
/* Take the oldest events of a lane, at most `most`; returns how many. */
uint32_t journal_take(struct journal *j, enum journal_lane lane,
                      struct journal_event *out, uint32_t most);
/* Events that did not fit, so far. */
uint64_t journal_dropped(const struct journal *j, enum journal_lane lane);

#endif

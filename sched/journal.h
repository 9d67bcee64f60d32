/* journal.h - what happened when, for the timeline: fixed arrays, no locks.
 *
 *     journal_open -> { journal_add }* -> journal_events -> journal_close
 *
 * Two lanes, one writer each: the owner of the reads and the compute thread. A
 * full lane drops the newest events and counts them. After open, nothing
 * allocates.
 */
#ifndef SCHED_JOURNAL_H
#define SCHED_JOURNAL_H

#include <stdint.h>

enum journal_lane { JOURNAL_READS, JOURNAL_COMPUTE, JOURNAL_LANES };

enum journal_kind {
    JOURNAL_READ,        /* a read: object, class, drive, bytes */
    JOURNAL_KERNEL,      /* work on an object: value is the kernel's number */
    JOURNAL_WAIT_TRUNK,  /* compute had nothing to do but wait for a tile */
    JOURNAL_WAIT_EXPERT, /* the same for an expert */
    JOURNAL_RING,        /* counter: bytes in the ring */
    JOURNAL_FLIGHT,      /* counter: bytes with the kernel */
    JOURNAL_PASS,        /* one pass: object is its number */
};

struct journal_event {
    int64_t  begin_ns, end_ns;
    int64_t  issued_ns; /* reads: handed to the kernel */
    uint64_t bytes;
    uint32_t object; /* tile number, or 1 << 31 | expert block */
    uint8_t  kind, class, drive, value;
};

struct journal;

/* Room for `capacity` events a lane. 0 or -ENOMEM. */
int  journal_open(struct journal **out, uint32_t capacity);
void journal_close(struct journal *j);
/* Memory that journal_open takes. */
uint64_t journal_bytes(uint32_t capacity);
/* `j` may be NULL: nothing happens. */
void journal_add(struct journal *j, enum journal_lane lane,
                 const struct journal_event *event);
/* The events of a lane in the order of their adding; *dropped did not fit. */
const struct journal_event *journal_events(const struct journal *j,
                                           enum journal_lane lane,
                                           uint32_t *count, uint64_t *dropped);

#endif

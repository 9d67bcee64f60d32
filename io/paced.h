/* paced.h - a simulated drive: real bytes, at the pace of another machine.
 *
 * A read starts when the drive is free, occupies it for its length divided by
 * the rate, and is done `latency_ns` after that, or when the real read is, if
 * that is later. Idle time earns no credit, so a run on a paced drive can be
 * computed from its requests. Reads of one drive end in order. The pace is of
 * the bytes asked of the drive, page-aligned envelopes and retries included.
 *
 * A wake-up that comes late does not cost rate while reads are queued: each
 * starts when the one before it ended, whoever looked or not. Rates above
 * about 60 % of the real device only simulate that device.
 */
#ifndef IO_PACED_H
#define IO_PACED_H

#include <stdint.h>

struct paced_drive {
    uint64_t bytes_per_s; /* > 0; 1 GB/s is 1,000,000,000 */
    int64_t  latency_ns;  /* >= 0 */
};

#endif

/* virtual.h - drives and a clock that exist only as numbers, so that replay
 * can run the engine's own scheduler without a model, a disk or the time.
 *
 *     virtual_open -> stream_open(options.simulated) -> { stream_...,
 *         stream_spend } -> stream_close -> virtual_close
 *
 * A stream over virtual drives has no thread. Its owner takes a turn whenever
 * something was posted, released or has landed, and the clock stands still
 * except in stream_hold and stream_await, which move it to the end of the next
 * read, and in stream_spend, which says that compute worked that long.
 *
 * A drive is that of paced.h: a read starts when the drive is free, occupies it
 * for its pages divided by the rate, and is there a latency after that. File k
 * is on drive k mod drives. Nothing is written to any frame.
 *
 * Threads  one. Errors: -ENOMEM from virtual_open.
 */
#ifndef SCHED_VIRTUAL_H
#define SCHED_VIRTUAL_H

#include <stdint.h>

struct read_done;
struct read_req;
struct virtual_drives;

struct virtual_drive {
    uint64_t bytes_per_s; /* > 0 */
    int64_t  latency_ns;
    uint64_t budget_bytes; /* in flight that keep it saturated */
};

int  virtual_open(struct virtual_drives **out,
                  const struct virtual_drive *drives, uint32_t count);
void virtual_close(struct virtual_drives *v);

int64_t  virtual_now_ns(const struct virtual_drives *v);
uint32_t virtual_count(const struct virtual_drives *v);
uint64_t virtual_budget(const struct virtual_drives *v, uint32_t drive);

/* Queue one read, as reader_start: 0, or -EAGAIN when 4096 are in flight. */
int virtual_start(struct virtual_drives *v, const struct read_req *req);
/* Move the clock on, to the end of the next read but not past `until_ns`. 1:
 * *done has ended; 0: nothing ends before `until_ns`, and it is `until_ns`,
 * or, with INT64_MAX, nothing is in flight. */
int virtual_next(struct virtual_drives *v, int64_t until_ns,
                 struct read_done *done);

#endif

/* virtual.h - drives and a clock that exist only as numbers, so that replay
 * can run the engine's own scheduler without a model, a disk or the time.
 *
 *     virtual_open -> stream_open(options.simulated) -> { stream_...,
 *         stream_compute } -> stream_close -> virtual_close
 *
 * A stream over virtual drives has no thread. Its owner takes a turn whenever
 * something was posted, released or has landed, and the clock stands still
 * except in stream_hold and stream_sleep, which move it to the end of the next
 * read, and in stream_compute, which moves it by the time that compute takes.
 *
 * A drive is that of paced.h: a read starts when the drive is free, occupies it
 * for its pages divided by the rate, and is done a latency after that. Or all
 * drives have parts of every file: a read is divided over them in proportion to
 * their rates, and is done when the last part is; a stream sees one drive then.
 * Or each drive has a copy of every file. Nothing is written to any frame.
 *
 * Threads  one. Errors: -ENOMEM from virtual_open.
 */
#ifndef SCHED_VIRTUAL_H
#define SCHED_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

struct read_done;
struct read_req;
struct virtual_drives;

/* Where a file is: on one drive; in parts on all; or a copy on each. */
enum virtual_layout { VIRTUAL_SHARDS, VIRTUAL_PARTS, VIRTUAL_COPIES };

struct virtual_drive {
    uint64_t bytes_per_s; /* > 0 */
    int64_t  latency_ns;
    uint64_t budget_bytes; /* in flight that keep it saturated */
};


int  virtual_open(struct virtual_drives **out,
                  const struct virtual_drive *drives, uint32_t count,
                  enum virtual_layout layout);
void virtual_close(struct virtual_drives *v);

int64_t  virtual_now_ns(const struct virtual_drives *v);
/* Drives as a stream sees them: 1 for parts. */
uint32_t virtual_count(const struct virtual_drives *v);
/* Bytes that were asked of a drive so far, with the rest of their pages; all
 * drives are counted, with parts too. */
uint64_t virtual_bytes(const struct virtual_drives *v, uint32_t drive);
/* Any drive has any file. */
bool     virtual_copies(const struct virtual_drives *v);
uint64_t virtual_rate(const struct virtual_drives *v, uint32_t drive);
uint64_t virtual_budget(const struct virtual_drives *v, uint32_t drive);

/* Queue one read on a drive, as reader_start: 0, or -EAGAIN when 4096 are in
 * flight. */
int virtual_start(struct virtual_drives *v, uint32_t drive,
                  const struct read_req *req);
/* Move the clock to the end of the next read, but not past `until_ns`. 1: *done
 * has ended. 0: no read ends by then, and the clock is at `until_ns`; with
 * INT64_MAX, nothing is in flight. */
int virtual_next(struct virtual_drives *v, int64_t until_ns,
                 struct read_done *done);

#endif

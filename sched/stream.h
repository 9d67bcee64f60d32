/* stream.h - the owner of every read: one thread, one queue a drive.
 *
 * The trunk is a circle of tiles in a fixed order. The owner reads it into a
 * ring of frames, ahead of compute, and refills the ring as tiles are released.
 * Experts are loads: compute posts one with a frame, and its state tells when
 * every byte is there.
 *
 *     stream_open -> stream_preload -> { stream_set_readahead,
 *         (stream_hold ... stream_release)*, (stream_post ... load state)* }
 *     -> stream_close
 *
 * Order    for each drive: demanded loads, then the trunk in its order, then
 *          prefetches. Prefetches go before the trunk while the ring is at
 *          least half full. The kernel has only as many bytes as keep a drive
 *          saturated; the others wait here, where they can be reordered.
 * Bytes    a tile's frame is valid between hold and release. It is given to
 *          another tile only after every read into it has ended.
 * Threads  one owner, started by stream_open; all calls come from one compute
 *          thread. They share atomics and a queue with one writer and no lock:
 *          the owner never waits for compute.
 * Errors   0 or a negative errno; stream_failure tells which file and offset.
 */
#ifndef SCHED_STREAM_H
#define SCHED_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sched/block.h"

struct reader;
struct event_ring;
struct stream;
struct virtual_drives;

struct stream_tile {
    uint32_t first_segment; /* in stream_options.segments */
    uint32_t segment_count;
    uint64_t frame_bytes; /* whole pages */
    uint64_t payload_bytes; /* of the tensors: without the rest of pages */
    uint8_t *home; /* resident: its permanent frame; streamed: NULL */
};

enum load_state { LOAD_IDLE, LOAD_WAITING, LOAD_READY, LOAD_FAILED };

/* One block to read into a frame of the caller's. The caller fills the fields
 * up to `frame`, and `urgency`, and keeps the load alive until its state is
 * READY, FAILED or, after a cancel, IDLE. */
struct load {
    struct segment segment[BLOCK_SEGMENTS_MAX];
    uint32_t segment_count;
    /* Where the parts of the block begin, in bytes of the frame. For the
     * caller; the stream reads only segments. */
    uint32_t part_at[BLOCK_PARTS_MAX];
    uint32_t object; /* its name in events, see event_ring.h */
    uint8_t *frame;
    _Atomic uint32_t state;     /* enum load_state, set by the owner */
    _Atomic uint32_t urgency;   /* enum read_class; may be raised any time */
    _Atomic bool     cancelled; /* chunks not yet issued are not read */
    bool     alone; /* if it fails, the stream has not failed */
    /* The owner's: bytes issued of each segment, segments of which all are, and
     * chunks in flight. */
    uint32_t issued[BLOCK_SEGMENTS_MAX];
    uint32_t issued_segments, outstanding;
    uint64_t landed_bytes;
    int      error;
    bool     partial; /* a cancel left bytes unread */
    int64_t  posted_ns, done_ns;
};

struct stream_options {
    struct reader            *reader; /* used by the owner alone until close */
    struct virtual_drives    *simulated; /* instead of a reader, or NULL */
    const uint32_t           *place; /* as in reader_options, for these */
    const struct segment     *segments;
    const struct stream_tile *tiles; /* in order of use; kept by the caller */
    uint32_t                  tile_count;
    uint8_t                  *ring;
    uint64_t                  ring_bytes; /* at least the largest tile */
    uint32_t                  chunk_bytes;
    uint32_t                  loads_max; /* loads WAITING at one time */
    /* Called by stream_preload: bytes of the tiles that are there; or NULL. */
    void (*loaded)(void *arg, uint64_t bytes);
    void  *loaded_arg;
    struct event_ring *event_ring;       /* or NULL */
    const _Atomic bool       *cancel;    /* or NULL: holds return -ECANCELED */
};

enum { STREAM_HISTOGRAM = 96 }; /* bucket b: four an octave of us */

struct stream_stats {
    uint64_t payload_bytes[READ_CLASSES];
    uint64_t device_bytes[READ_CLASSES]; /* with the rest of their pages */
    uint64_t reads[READ_CLASSES];
    /* Reads by their time in the reader's queue, and on the drive. */
    uint32_t queue_us[READ_CLASSES][STREAM_HISTOGRAM];
    uint32_t device_us[READ_CLASSES][STREAM_HISTOGRAM];
};

int  stream_open(struct stream **out, const struct stream_options *options);
/* Waits for what is in flight; every frame is the caller's again. */
void stream_close(struct stream *s);

/* Read every tile that has a home. Blocks. */
int stream_preload(struct stream *s);

/* Let the trunk be read ahead up to, and not including, `end`: pass *
 * tile_count + tile, passes counted from 0. */
void stream_set_readahead(struct stream *s, uint64_t end);
/* Stop reading ahead and wait until nothing is in flight, or a read has failed.
 * Nothing is read, and the counters below stand still, until the next
 * stream_set_readahead or stream_post. */
void stream_quiesce(struct stream *s);

/* True when stream_hold would not wait. */
bool stream_ready(const struct stream *s, uint32_t tile);
/* Wait for the tile, without taking it. Errors as stream_hold. */
int  stream_wait(struct stream *s, uint32_t tile);
/* Wait for the tile and get its frame. Two rules, both asserted, since the wait
 * would never end: streamed tiles are held and released in the order of the
 * circle, without skipping one; and the tile lies before the end of
 * stream_set_readahead. 0, -ECANCELED, or the errno of the read that failed. */
int  stream_hold(struct stream *s, uint32_t tile, const uint8_t **frame);
void stream_release(struct stream *s, uint32_t tile);

/* Queue a load; its state becomes WAITING. Never blocks. */
void stream_post(struct stream *s, struct load *load);
/* Tell the owner that a load's urgency or cancelled flag has changed. */
void stream_notify(struct stream *s);

/* Sleep until a tile, a load or the stream has changed its state since
 * stream_events returned `seen`, at most 100 ms. Get `seen` first, then look at
 * the states, then sleep: no change is missed. */
uint32_t stream_events(const struct stream *s);
void     stream_sleep(struct stream *s, uint32_t seen);

struct stream_failure {
    int      error;
    uint32_t file; /* UINT32_MAX: the reader itself failed */
    uint64_t offset_bytes;
};
/* The first read that failed; error 0 when none has. */
struct stream_failure stream_failure(const struct stream *s);

/* Nanoseconds that stream_hold has waited so far. */
int64_t stream_hold_wait_ns(const struct stream *s);
/* Nanoseconds with nothing in flight: of one drive, summed over the drives, and
 * of those in which no drive had anything. */
int64_t stream_drive_idle_ns(const struct stream *s, uint32_t drive);
int64_t stream_idle_ns(const struct stream *s);
int64_t stream_all_idle_ns(const struct stream *s);
/* Counters since stream_open, at one moment while reads go on. */
void stream_stats(const struct stream *s, struct stream_stats *out);

/* The stream's own time: clock_ns, or the time of simulated drives. */
int64_t stream_now_ns(const struct stream *s);
/* Over simulated drives only: let `ns` pass, in which compute works. */
void stream_compute(struct stream *s, int64_t ns);

#endif

/* stream.h - the owner of every read: one thread, one queue a drive.
 *
 * The trunk is a circle of tiles whose order is known for ever; the owner reads
 * it into a ring of frames, ahead of compute, round and round, and refills the
 * ring as tiles are released. Experts are loads: the compute side posts one
 * with a frame of its own and is told when every byte is there.
 *
 *     stream_open -> stream_preload -> { stream_allow,
 *         (stream_hold ... stream_release)*, (stream_post ... load state)* }
 *     -> stream_close
 *
 * Order    per drive: demanded loads, then the trunk in its order, then
 *          guesses; guesses go before the trunk while the ring is at least half
 *          full.
 *          Only as many bytes as keep a drive saturated are with the kernel;
 *          everything else stays here, where it can still be reordered.
 * Threads  one owner, started by stream_open; all other calls come from one
 *          compute thread. They share atomics and a single-writer queue, no
 *          lock: the owner never waits for compute nor compute for a lock.
 * Bytes    tiles are lent between hold and release. A frame changes hands only
 *          when every chunk of it is accounted for.
 * Errors   0 or a negative errno; stream_failure tells which file and offset.
 */
#ifndef SCHED_STREAM_H
#define SCHED_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sched/block.h"

struct reader;
struct journal;
struct stream;
struct virtual_drives;

struct stream_tile {
    uint32_t first_segment; /* in stream_options.segments */
    uint32_t segment_count;
    uint64_t frame_bytes; /* whole pages */
    uint64_t payload_bytes;
    uint8_t *home; /* resident: its frame for good; streamed: NULL */
};

enum load_state { LOAD_IDLE, LOAD_WAITING, LOAD_READY, LOAD_FAILED };

/* One read into a frame of the caller's. The caller fills the first part and
 * keeps it alive until the state is READY, FAILED or, after a cancel, IDLE. */
struct load {
    struct segment segment[BLOCK_SEGMENTS_MAX];
    uint32_t segment_count;
    uint32_t object; /* the caller's name for it, goes to the journal */
    uint8_t *frame;
    _Atomic uint32_t state;     /* enum load_state, set by the owner */
    _Atomic uint32_t urgency;   /* enum read_class; may be raised any time */
    _Atomic bool     cancelled; /* what is not yet issued need not be */
    /* The owner's: progress of the split into chunks. */
    uint32_t next_segment, outstanding;
    uint64_t next_byte;
    uint64_t landed_bytes;
    int      error;
    bool     partial; /* a cancel left bytes unread */
    int64_t  posted_ns, done_ns;
};

struct stream_options {
    struct reader            *reader; /* used by the owner alone until close */
    struct virtual_drives    *simulated; /* instead of a reader, or NULL */
    const struct segment     *segments;
    const struct stream_tile *tiles; /* in order of use; kept by the caller */
    uint32_t                  tile_count;
    uint8_t                  *ring;
    uint64_t                  ring_bytes; /* at least the largest tile */
    uint32_t                  chunk_bytes;
    uint32_t                  loads_max; /* loads posted at one time */
    struct journal           *journal;   /* or NULL */
    const _Atomic bool       *cancel;    /* or NULL: holds return -ECANCELED */
};

enum { STREAM_HISTOGRAM = 96 }; /* bucket b: 2^(b/4) to 2^((b+1)/4) us */

struct stream_stats {
    uint64_t payload_bytes[READ_CLASSES];
    uint64_t device_bytes[READ_CLASSES];
    uint64_t reads[READ_CLASSES];
    uint32_t queue_us[READ_CLASSES][STREAM_HISTOGRAM];
    uint32_t device_us[READ_CLASSES][STREAM_HISTOGRAM];
};

int  stream_open(struct stream **out, const struct stream_options *options);
/* Waits for what is in flight; every frame is the caller's again. */
void stream_close(struct stream *s);

/* Read every tile that has a home. Blocks. */
int stream_preload(struct stream *s);

/* Let look-ahead go as far as, and not including, tile `end` of the circle
 * unrolled: pass * tile_count + tile, passes counted from 0. */
void stream_allow(struct stream *s, uint64_t end);
/* Look ahead no further, and wait until what is on its way has landed, or a
 * read has failed: after that nothing is read, and the numbers below stand
 * still, until the next stream_allow or stream_post. */
void stream_rest(struct stream *s);

/* True when stream_hold would not wait. */
bool stream_ready(const struct stream *s, uint32_t tile);
/* Wait for the tile, without taking it. Errors as stream_hold. */
int  stream_wait(struct stream *s, uint32_t tile);
/* Wait for the tile and borrow its frame. Tiles are held and released in the
 * order of the circle. -ECANCELED, or the errno of the read that failed. */
int  stream_hold(struct stream *s, uint32_t tile, const uint8_t **frame);
void stream_release(struct stream *s, uint32_t tile);

/* Queue a load; its fields up to `frame` are set and `urgency` is; its state
 * becomes WAITING. Never blocks; at most loads_max may be waiting. */
void stream_post(struct stream *s, struct load *load);
/* Tell the owner that a load's urgency or cancelled flag has changed. */
void stream_poke(struct stream *s);

/* Sleep until something has happened since `seen` was taken, at most 100 ms.
 * Take `seen`, look at the states, then wait: nothing is missed. */
uint32_t stream_events(const struct stream *s);
void     stream_await(struct stream *s, uint32_t seen);

struct stream_failure {
    int      error;
    uint32_t file;
    uint64_t offset_bytes;
};
/* The first read that failed; error 0 when none has. */
struct stream_failure stream_failure(const struct stream *s);

/* Nanoseconds that stream_hold has waited so far. */
int64_t stream_hold_wait_ns(const struct stream *s);
/* Nanoseconds, summed over the drives, with nothing in flight. */
int64_t stream_idle_ns(const struct stream *s);
/* Numbers of the whole life so far; a snapshot while reads are going on. */
void stream_stats(const struct stream *s, struct stream_stats *out);

int64_t stream_clock_ns(void); /* CLOCK_MONOTONIC */
/* The stream's own time: the same, or that of simulated drives. */
int64_t stream_now_ns(const struct stream *s);
/* Over simulated drives only: compute works for so long. */
void stream_spend(struct stream *s, int64_t ns);

#endif

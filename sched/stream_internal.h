/* stream_internal.h - what stream.c, the compute side, and stream_owner.c
 * share. */
#ifndef SCHED_STREAM_INTERNAL_H
#define SCHED_STREAM_INTERNAL_H

#include <pthread.h>

#include "io/reader.h"
#include "sched/event_ring.h"
#include "sched/stream.h"
#include "sched/virtual.h"

/* A tile's life:
 *   EMPTY    nobody's; the owner gives it a frame            -> LOADING
 *   LOADING  the owner's; the last chunk lands               -> READY, FAILED
 *   READY    compute's to take; a home stays READY always   -> RELEASED
 *   RELEASED the owner's; leaves the ring in order           -> EMPTY
 */
enum tile_phase { TILE_EMPTY, TILE_LOADING, TILE_READY, TILE_FAILED,
                  TILE_RELEASED };

struct tile_state {
    _Atomic uint32_t phase;
    uint8_t *frame;
    uint32_t outstanding; /* chunks with the reader */
    bool     issued;      /* all chunks are, or were, with the reader */
    int      error;
};

struct live_tile {
    uint32_t tile;
    uint64_t bytes; /* of the ring, with those skipped at its end */
};

/* Tiles that the same drives have: one drive, or those with copies. */
struct tile_queue {
    uint64_t  drives; /* bit d: drive d has them */
    uint32_t *home, home_count, home_next; /* resident tiles, read once */
    /* FIFO with room for all tiles: they have a frame, and no chunk of them
     * has been issued. */
    uint32_t *given, given_head, given_count;
    uint64_t  given_bytes;
    bool      open;                        /* `current` has chunks to issue */
    uint32_t  current, next_segment;
    uint64_t  next_byte;
};

/* One drive, and what is with the kernel. */
struct drive_queue {
    uint64_t in_flight_bytes, prefetch_flight_bytes, budget_bytes;
    double   rate; /* bytes a second; 1 if one is not known */
    /* Idle time so far, as idle_word packs it: one word, so that it is read
     * whole while the owner changes it. */
    _Atomic int64_t idle;
    int64_t counted_ns; /* time of the last samples in the event ring */
};

struct stream {
    struct stream_options o;
    struct drive_queue *queue; /* [drives] */
    uint32_t           drives, busy; /* busy: drives with reads in flight */
    _Atomic int64_t    all_idle; /* as a drive's idle: none is busy */
    bool               copies; /* some file is on several drives */
    struct tile_queue *tile_queue; /* [tile_queues] */
    uint32_t           tile_queues;
    uint32_t          *queue_of; /* [tiles] */
    uint64_t          *number;   /* [tiles] `given` when it got its frame */
    struct tile_state *state;
    struct load      **pending; /* loads not over, or NULL, in any order */
    uint32_t           pending_count;
    /* Posted loads: compute writes the tail, the owner the head. */
    struct load      **post;
    uint32_t           post_room;
    _Atomic uint32_t   post_tail, post_head;
    _Atomic uint64_t end; /* of what may be read, see stream_set_readahead */
    _Atomic uint32_t   events, sleepers;
    _Atomic bool       stop;
    _Atomic bool       quiescing; /* until nothing is in flight */
    _Atomic int        failed;
    struct stream_failure failure; /* written once, before `failed` */
    struct stream_stats   stats; /* the owner's; read by word, relaxed */
    /* One ring for all drives. Frames are given in the order in which compute
     * takes the tiles, whatever drives they are on. */
    uint32_t          *tile, tile_count; /* streamed tiles, in order */
    uint64_t           given; /* frames given to these, in all passes */
    uint64_t           ring_at; /* byte of the ring where the next begins */
    struct live_tile  *live; /* FIFO of the tiles in the ring, by position */
    uint32_t           live_head, live_count;
    _Atomic uint64_t   ring_used; /* written by the owner */
    uint64_t           held, released; /* streamed tiles, in all passes */
    int64_t            hold_wait_ns;
    bool               running;
    pthread_t          owner;
};

/* One turn of the owner, see stream_owner.c. True: something has changed that
 * compute may wait for, other than by a read. */
bool  stream_turn(struct stream *s);
/* Account for a read that has ended; true when that made a block whole. */
bool  stream_settle(struct stream *s, const struct read_done *d);
void *stream_owner_main(void *arg);
void  stream_signal(struct stream *s);

/* Idle time of a drive, in one word. Even: busy, and idle for word / 2 ns so
 * far. Odd: idle, and that time less the moment when it began. */
static inline int64_t idle_word(int64_t ns, bool idle)
{
    return ns * 2 + idle;
}

/* Idle nanoseconds up to `now_ns`. */
static inline int64_t idle_at(int64_t word, int64_t now_ns)
{
    return word & 1 ? (word - 1) / 2 + now_ns : word / 2;
}

static inline uint32_t stream_drive_of(const struct stream *s, uint32_t file)
{
    if (!s->o.simulated)
        return reader_drive_of(s->o.reader, file);
    return (s->o.place ? s->o.place[file] : file) % s->drives;
}

/* The copy of a file that is on a drive, or READER_NO_FILE. */
static inline uint32_t stream_copy_on(const struct stream *s, uint32_t file,
                                      uint32_t drive)
{
    if (!s->o.simulated)
        return reader_copy_on(s->o.reader, file, drive);
    return virtual_copies(s->o.simulated) || stream_drive_of(s, file) == drive
               ? file
               : READER_NO_FILE;
}

/* ---- stream_copies.c: files that are on several drives ---- */

/* Sort the tiles into queues. -ENOMEM; -ENOTSUP: too many kinds. */
int stream_sort_tiles(struct stream *s);
/* Bytes of the chunk at byte `next` of a segment: equal chunks of at most
 * chunk_bytes, cut at page bounds of the file so that no page is read twice
 * inside a segment. */
uint32_t stream_chunk(const struct stream *s, const struct segment *seg,
                      uint64_t next);
/* Is this drive to read that chunk now? Not if it has no copy, or if another
 * drive that has one would be done first, by the bytes in flight on each and
 * their rates. */
bool stream_takes(const struct stream *s, uint32_t drive,
                  const struct segment *seg, uint64_t next);
/* A read has failed: read the same bytes from another copy. False: there is
 * none. */
bool stream_read_elsewhere(struct stream *s, const struct read_done *d);
/* Count bytes in flight on a drive. */
void stream_flies(struct stream *s, uint32_t drive, enum read_class class,
                  uint32_t bytes);
enum { TAG_LOAD_BIT = 63 };
static const uint64_t TAG_LOAD = 1ull << TAG_LOAD_BIT; /* else a tile */

#endif

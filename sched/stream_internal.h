/* stream_internal.h - what stream.c (compute side) and stream_owner.c share. */
#ifndef SCHED_STREAM_INTERNAL_H
#define SCHED_STREAM_INTERNAL_H

#include <pthread.h>

#include "io/reader.h"
#include "sched/journal.h"
#include "sched/stream.h"
#include "sched/virtual.h"

/* A tile's life:
 *   EMPTY    nobody's; the owner gives it a frame            -> LOADING
 *   LOADING  the owner's; the last chunk lands               -> READY, FAILED
 *   READY    compute's to take; a home stays READY for ever  -> RELEASED
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
    uint64_t bytes; /* of the ring, with what was skipped at its end */
};

/* One drive: its part of the circle and what is with the kernel. */
struct lane {
    uint32_t *home, home_count, home_next; /* resident tiles, read once */
    uint32_t *given, given_head, given_count; /* FIFO of the tiles that have a
                                 frame and are not begun, room for all */
    uint64_t  given_bytes;
    bool      open;                        /* `current` has chunks to issue */
    uint32_t  current, next_segment;
    uint64_t  next_byte;
    uint64_t  in_flight_bytes, guess_flight_bytes, budget_bytes;
    /* Idle so far, or, while idle, that less the time since when: see
     * idle_word. One word, so that nobody reads half of a change. */
    _Atomic int64_t idle;
    int64_t   counted_ns; /* of the last samples in the journal */
};

struct stream {
    struct stream_options o;
    struct lane       *lane;
    uint32_t           lanes;
    struct tile_state *state;
    struct load      **pending; /* loads not over, or NULL, in any order */
    uint32_t           pending_count;
    /* Posted loads: compute writes the tail, the owner the head. */
    struct load      **post;
    uint32_t           post_room;
    _Atomic uint32_t   post_tail, post_head;
    _Atomic uint64_t   end; /* of what may be read, see stream_allow */
    _Atomic uint32_t   events, sleepers;
    _Atomic bool       stop;
    _Atomic bool       resting; /* until the owner finds nothing on its way */
    _Atomic int        failed;
    struct stream_failure failure; /* written once, before `failed` */
    struct stream_stats   stats; /* the owner's; read by word, relaxed */
    /* The ring, one for all drives, since compute takes the tiles in the order
     * of the circle: what is nearest has a frame, wherever it comes from. */
    uint32_t          *tile, tile_count; /* streamed tiles, in order */
    uint64_t           given; /* of these, frames given, all passes */
    uint64_t           ring_at;
    struct live_tile  *live; /* FIFO, room for tile_count */
    uint32_t           live_head, live_count;
    _Atomic uint64_t   ring_used; /* written by the owner */
    _Atomic uint64_t   held_bytes; /* frames compute has taken and not given */
    int64_t            hold_wait_ns;
    bool               running;
    pthread_t          owner;
};

/* What the owner does between two looks at the reader. True: a load is over
 * that nobody read. */
bool  stream_turn(struct stream *s);
/* Account for a read that has ended; true when that made a block whole. */
bool  stream_settle(struct stream *s, const struct read_done *d);
void *stream_owner_main(void *arg);
void  stream_signal(struct stream *s);

/* Idle times are even while the drive is busy and odd while it is idle. */
static inline int64_t idle_word(int64_t ns, bool idle)
{
    return ns * 2 + idle;
}

/* Nanoseconds at `now_ns` of what idle_word packed. */
static inline int64_t idle_at(int64_t word, int64_t now_ns)
{
    return word & 1 ? (word - 1) / 2 + now_ns : word / 2;
}

static inline uint32_t stream_drive_of(const struct stream *s, uint32_t file)
{
    return s->o.simulated ? file % s->lanes
                          : reader_drive_of(s->o.reader, file);
}

static inline struct lane *stream_lane_of(const struct stream *s, uint32_t tile)
{
    uint32_t first = s->o.tiles[tile].first_segment;
    return &s->lane[stream_drive_of(s, s->o.segments[first].file)];
}

#endif

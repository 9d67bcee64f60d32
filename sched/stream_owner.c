/* stream_owner.c - the thread that keeps every drive busy.
 *
 * One turn: take what was posted, retire what was released, hand each drive as
 * many chunks as keep it saturated, then sleep in the reader until a read lands
 * or somebody wakes it. Nothing in a turn waits for compute.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sched/stream_internal.h"

enum {
    DONE_MAX = 64,
    PREFETCH_SHARE = 4, /* prefetches may hold a quarter of a drive's budget */
    COUNTERS_NS = 1000 * 1000, /* between two samples of the event ring */
};

static uint64_t make_tag(uint64_t kind, uint32_t index, uint32_t bytes)
{
    return kind | (uint64_t)index << 32 | bytes;
}

static void fail(struct stream *s, uint32_t file, uint64_t offset_bytes,
                 int error)
{
    if (atomic_load(&s->failed))
        return;
    if (file != UINT32_MAX && !s->o.simulated)
        file = reader_original(s->o.reader, file);
    s->failure = (struct stream_failure){ error, file, offset_bytes };
    atomic_store(&s->failed, 1);
}

/* A drive is idle from the end of its last read to the next one's issue. */
static void begin_idle(struct stream *s, struct drive_queue *q, int64_t now_ns)
{
    int64_t ns = idle_at(atomic_load(&q->idle), now_ns);
    atomic_store(&q->idle, idle_word(ns - now_ns, true));
    if (--s->busy)
        return;
    ns = idle_at(atomic_load(&s->all_idle), now_ns);
    atomic_store(&s->all_idle, idle_word(ns - now_ns, true));
}

static void end_idle(struct stream *s, struct drive_queue *q)
{
    int64_t now_ns = stream_now_ns(s);
    int64_t ns = idle_at(atomic_load(&q->idle), now_ns);
    atomic_store(&q->idle, idle_word(ns, false));
    if (s->busy++)
        return;
    ns = idle_at(atomic_load(&s->all_idle), now_ns);
    atomic_store(&s->all_idle, idle_word(ns, false));
}

/* Issue one chunk; 0, -EAGAIN when the reader has no slot, or what makes the
 * stream fail. */
static int issue(struct stream *s, uint32_t drive, enum read_class class,
                 const struct segment *seg, uint64_t next, uint8_t *frame,
                 uint64_t kind, uint32_t index, uint32_t *bytes)
{
    *bytes = stream_chunk(s, seg, next);
    struct read_req req = {
        .file = stream_copy_on(s, seg->file, drive),
        .offset_bytes = seg->offset_bytes + next,
        .length_bytes = *bytes,
        .target = frame + seg->at + next,
        .tag = make_tag(kind, index, *bytes),
        .class = (uint8_t)class,
    };
    int err = s->o.simulated ? virtual_start(s->o.simulated, drive, &req)
                             : reader_start(s->o.reader, &req);
    if (!err)
        stream_flies(s, drive, class, *bytes);
    else if (err != -EAGAIN)
        fail(s, req.file, req.offset_bytes, err);
    return err;
}

void stream_flies(struct stream *s, uint32_t drive, enum read_class class,
                  uint32_t bytes)
{
    struct drive_queue *q = &s->queue[drive];
    if (!q->in_flight_bytes)
        end_idle(s, q);
    q->in_flight_bytes += bytes;
    if (class == READ_PREFETCH)
        q->prefetch_flight_bytes += bytes;
}

/* ---- loads ---- */

static uint32_t load_index(const struct stream *s, const struct load *load)
{
    uint32_t i = 0;
    while (s->pending[i] != load)
        i++;
    assert(i < s->o.loads_max);
    return i;
}

static void finish_load(struct stream *s, uint32_t index)
{
    struct load *load = s->pending[index];
    s->pending[index] = NULL;
    s->pending_count--;
    load->done_ns = stream_now_ns(s);
    uint32_t state = load->error ? LOAD_FAILED
                     : load->partial ? LOAD_IDLE
                                     : LOAD_READY;
    atomic_store_explicit(&load->state, state, memory_order_release);
}

static bool load_exhausted(const struct load *load)
{
    return load->issued_segments == load->segment_count;
}

/* The rest of a load that was cancelled or has failed is not read. */
static void drop_rest(struct load *load)
{
    if (load_exhausted(load))
        return;
    load->issued_segments = load->segment_count;
    load->partial = true;
}

static void take_posted(struct stream *s)
{
    uint32_t head = atomic_load_explicit(&s->post_head, memory_order_relaxed);
    while (head != atomic_load_explicit(&s->post_tail, memory_order_acquire)) {
        struct load *load = s->post[head];
        uint32_t i = 0;
        while (s->pending[i])
            i++;
        assert(i < s->o.loads_max);
        s->pending[i] = load;
        s->pending_count++;
        head = (head + 1) % s->post_room;
        atomic_store_explicit(&s->post_head, head, memory_order_release);
    }
}

/* The first segment of a load with a chunk for this drive, or segment_count. */
static uint32_t segment_for(const struct stream *s, const struct load *load,
                            uint32_t drive)
{
    uint32_t i = 0;
    while (i < load->segment_count &&
           (load->issued[i] == load->segment[i].length_bytes ||
            !stream_takes(s, drive, &load->segment[i], load->issued[i])))
        i++;
    return i;
}

/* The oldest load of a class with a chunk for this drive, and its segment. */
static struct load *oldest_load(struct stream *s, uint32_t drive,
                                enum read_class class, uint32_t *segment)
{
    struct load *best = NULL;
    for (uint32_t i = 0, left = s->pending_count; left; i++) {
        struct load *load = s->pending[i];
        if (!load)
            continue;
        left--;
        if (load_exhausted(load) || atomic_load(&load->urgency) != class)
            continue;
        if (best && load->posted_ns >= best->posted_ns)
            continue;
        uint32_t found = segment_for(s, load, drive);
        if (found == load->segment_count)
            continue;
        best = load;
        *segment = found;
    }
    return best;
}

static bool issue_load(struct stream *s, uint32_t drive,
                       enum read_class class)
{
    struct drive_queue *q = &s->queue[drive];
    if (class == READ_PREFETCH &&
        q->prefetch_flight_bytes >= q->budget_bytes / PREFETCH_SHARE)
        return false;
    uint32_t bytes, i;
    struct load *load = oldest_load(s, drive, class, &i);
    if (!load)
        return false;
    const struct segment *seg = &load->segment[i];
    if (issue(s, drive, class, seg, load->issued[i], load->frame, TAG_LOAD,
              load_index(s, load), &bytes))
        return false;
    load->outstanding++;
    load->issued[i] += bytes;
    if (load->issued[i] == seg->length_bytes)
        load->issued_segments++;
    return true;
}

/* Finish the cancelled loads of which nothing is in flight. */
static bool drop_cancelled(struct stream *s)
{
    bool any = false;
    for (uint32_t i = 0, left = s->pending_count; left; i++) {
        struct load *load = s->pending[i];
        if (!load)
            continue;
        left--;
        if (!atomic_load(&load->cancelled))
            continue;
        drop_rest(load);
        if (load->outstanding)
            continue;
        finish_load(s, i);
        any = true;
    }
    return any;
}

/* ---- the trunk ---- */

static void retire(struct stream *s)
{
    while (s->live_count) {
        struct live_tile *live = &s->live[s->live_head];
        struct tile_state *t = &s->state[live->tile];
        if (atomic_load_explicit(&t->phase, memory_order_acquire) !=
            TILE_RELEASED)
            return;
        atomic_fetch_sub(&s->ring_used, live->bytes);
        atomic_store(&t->phase, TILE_EMPTY);
        s->live_head = (s->live_head + 1) % (s->tile_count + 1);
        s->live_count--;
    }
}

/* Take contiguous room for a tile in the ring. False if it is full. */
static bool ring_take(struct stream *s, uint32_t tile)
{
    uint64_t bytes = s->o.tiles[tile].frame_bytes, skipped = 0;
    if (!s->live_count)
        s->ring_at = 0;
    bool wraps = s->ring_at + bytes > s->o.ring_bytes;
    if (wraps)
        skipped = s->o.ring_bytes - s->ring_at;
    if (atomic_load(&s->ring_used) + skipped + bytes > s->o.ring_bytes)
        return false;
    if (wraps)
        s->ring_at = 0;
    s->state[tile].frame = s->o.ring + s->ring_at;
    s->ring_at += bytes;
    atomic_fetch_add(&s->ring_used, skipped + bytes);
    uint32_t at = (s->live_head + s->live_count) % (s->tile_count + 1);
    s->live[at] = (struct live_tile){ tile, skipped + bytes };
    s->live_count++;
    return true;
}

static void load_tile(struct stream *s, uint32_t tile)
{
    struct tile_state *t = &s->state[tile];
    t->outstanding = 0;
    t->issued = false;
    t->error = 0;
    atomic_store(&t->phase, TILE_LOADING);
}

/* Give the next tile of the circle a frame and queue it. False if
 * the ring is full or no more may be read. */
static bool give_frame(struct stream *s)
{
    if (!s->tile_count)
        return false;
    uint32_t tile = s->tile[s->given % s->tile_count];
    if (s->given / s->tile_count * s->o.tile_count + tile >=
            atomic_load(&s->end) ||
        atomic_load(&s->state[tile].phase) != TILE_EMPTY ||
        !ring_take(s, tile))
        return false;
    struct tile_queue *q = &s->tile_queue[s->queue_of[tile]];
    q->given[(q->given_head + q->given_count) % (s->o.tile_count + 1)] = tile;
    q->given_count++;
    q->given_bytes += s->o.tiles[tile].frame_bytes;
    s->number[tile] = ++s->given;
    load_tile(s, tile);
    return true;
}

/* Make the queue's next tile its current one. False if there is none now. */
static bool open_tile(struct stream *s, struct tile_queue *q)
{
    if (q->home_next < q->home_count) {
        q->current = q->home[q->home_next++];
        s->state[q->current].frame = s->o.tiles[q->current].home;
        load_tile(s, q->current);
    } else {
        if (!atomic_load(&s->end)) /* quiesced: begin no other tile */
            return false;
        while (!q->given_count)
            if (!give_frame(s))
                return false;
        q->current = q->given[q->given_head];
        q->given_head = (q->given_head + 1) % (s->o.tile_count + 1);
        q->given_count--;
        q->given_bytes -= s->o.tiles[q->current].frame_bytes;
    }
    q->open = true;
    q->next_segment = 0;
    q->next_byte = 0;
    return true;
}

static const struct segment *current_segment(const struct stream *s,
                                             const struct tile_queue *q)
{
    uint32_t first = s->o.tiles[q->current].first_segment;
    return &s->o.segments[first + q->next_segment];
}

/* Of the queues that this drive serves, the one whose current tile is needed
 * first, or NULL. */
static struct tile_queue *queue_for(struct stream *s, uint32_t drive)
{
    struct tile_queue *best = NULL;
    for (uint32_t i = 0; i < s->tile_queues; i++) {
        struct tile_queue *q = &s->tile_queue[i];
        if (!(q->drives >> drive & 1) || (!q->open && !open_tile(s, q)) ||
            !stream_takes(s, drive, current_segment(s, q), q->next_byte))
            continue;
        if (!best || s->number[q->current] < s->number[best->current])
            best = q;
    }
    return best;
}

static bool issue_trunk(struct stream *s, uint32_t drive)
{
    struct tile_queue *q = queue_for(s, drive);
    if (!q)
        return false;
    const struct stream_tile *tile = &s->o.tiles[q->current];
    const struct segment *seg = current_segment(s, q);
    struct tile_state *t = &s->state[q->current];
    uint32_t bytes;
    if (issue(s, drive, READ_TRUNK, seg, q->next_byte, t->frame, 0, q->current,
              &bytes))
        return false;
    t->outstanding++;
    q->next_byte += bytes;
    if (q->next_byte == seg->length_bytes) {
        q->next_byte = 0;
        if (++q->next_segment == tile->segment_count) {
            t->issued = true;
            q->open = false;
        }
    }
    return true;
}

/* ---- a turn ---- */

/* Bytes of the ring with tiles that this drive has, and has not begun. */
static uint64_t given_bytes(const struct stream *s, uint32_t drive)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->tile_queues; i++)
        if (s->tile_queue[i].drives >> drive & 1)
            bytes += s->tile_queue[i].given_bytes;
    return bytes;
}

/* Hand a drive as many chunks as it is to have. True: at least one. */
static bool fill_drive(struct stream *s, uint32_t drive)
{
    struct drive_queue *q = &s->queue[drive];
    bool any = false;
    for (; q->in_flight_bytes < q->budget_bytes; any = true) {
        if (issue_load(s, drive, READ_DEMAND))
            continue;
        uint64_t begun = atomic_load(&s->ring_used) - given_bytes(s, drive);
        bool ahead = begun * 2 >= s->o.ring_bytes;
        if (ahead && issue_load(s, drive, READ_PREFETCH))
            continue;
        if (issue_trunk(s, drive))
            continue;
        if (!ahead && issue_load(s, drive, READ_PREFETCH))
            continue;
        break;
    }
    return any;
}

/* Where a chunk is on several drives, one that left it to another may find that
 * the other has enough by then. */
static void fill_drives(struct stream *s)
{
    bool any = true;
    while (any) {
        any = false;
        for (uint32_t d = 0; d < s->drives; d++)
            any |= fill_drive(s, d);
        any &= s->copies;
    }
}

static uint32_t bucket(int64_t ns)
{
    uint64_t us = ns > 0 ? (uint64_t)ns / 1000 : 0;
    if (us < 2)
        return 0;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(us);
    uint32_t quarter =
        octave < 2 ? 0 : (uint32_t)(us >> (octave - 2) & 3);
    uint32_t b = octave * 4 + quarter;
    return b < STREAM_HISTOGRAM ? b : STREAM_HISTOGRAM - 1;
}

/* Counters have one writer, and readers that take any recent value. */
static void add64(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void add32(uint32_t *counter, uint32_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* Add a read to the counters and the event ring. `flight`: bytes in flight on
 * its drive after it. */
static void record(struct stream *s, const struct read_done *d,
                   uint32_t object, uint64_t flight)
{
    struct drive_queue *q = &s->queue[d->drive];
    add64(&s->stats.payload_bytes[d->class], d->bytes);
    add64(&s->stats.device_bytes[d->class], d->device_bytes);
    add64(&s->stats.reads[d->class], 1);
    add32(&s->stats.queue_us[d->class][bucket(d->issued_ns - d->queued_ns)],
          1);
    add32(&s->stats.device_us[d->class][bucket(d->done_ns - d->issued_ns)], 1);
    if (!s->o.event_ring)
        return;
    struct event e = {
        .begin_ns = d->queued_ns,
        .issued_ns = d->issued_ns,
        .end_ns = d->done_ns,
        .bytes = d->device_bytes,
        .object = object,
        .kind = EVENT_READ,
        .class = d->class,
        .drive = (uint8_t)d->drive,
    };
    event_ring_add(s->o.event_ring, EVENT_TRACK_READS, &e);
    if (flight && d->done_ns - q->counted_ns < COUNTERS_NS)
        return;
    q->counted_ns = d->done_ns;
    struct event at = { .begin_ns = d->done_ns,
                        .end_ns = d->done_ns,
                        .bytes = atomic_load(&s->ring_used),
                        .kind = EVENT_RING,
                        .drive = e.drive };
    event_ring_add(s->o.event_ring, EVENT_TRACK_READS, &at);
    at.kind = EVENT_FLIGHT;
    at.bytes = flight;
    event_ring_add(s->o.event_ring, EVENT_TRACK_READS, &at);
}

bool stream_settle(struct stream *s, const struct read_done *d)
{
    uint32_t bytes = (uint32_t)d->tag;
    uint32_t index = (uint32_t)(d->tag >> 32) & 0x7fffffff;
    struct drive_queue *q = &s->queue[d->drive];
    q->in_flight_bytes -= bytes;
    if (!q->in_flight_bytes)
        begin_idle(s, q, d->done_ns);
    if (d->class == READ_PREFETCH)
        q->prefetch_flight_bytes -= bytes;
    if (d->tag & TAG_LOAD) {
        struct load *load = s->pending[index];
        record(s, d, load->object, q->in_flight_bytes);
        if (d->error && stream_read_elsewhere(s, d))
            return false;
        load->outstanding--;
        load->landed_bytes += d->bytes;
        if (d->error && !load->error) {
            load->error = d->error;
            if (d->class == READ_DEMAND && !load->alone) /* others may fail */
                fail(s, d->file, d->offset_bytes, d->error);
        }
        if (load->error || atomic_load(&load->cancelled))
            drop_rest(load);
        if (load->outstanding || !load_exhausted(load))
            return false;
        finish_load(s, index);
        return true;
    }
    struct tile_state *t = &s->state[index];
    record(s, d, index, q->in_flight_bytes);
    if (d->error && stream_read_elsewhere(s, d))
        return false;
    t->outstanding--;
    if (d->error && !t->error) {
        t->error = d->error;
        fail(s, d->file, d->offset_bytes, d->error);
    }
    if (t->outstanding || !t->issued)
        return false;
    atomic_store_explicit(&t->phase, t->error ? TILE_FAILED : TILE_READY,
                          memory_order_release);
    return true;
}

static bool nothing_in_flight(const struct stream *s)
{
    for (uint32_t d = 0; d < s->drives; d++)
        if (s->queue[d].in_flight_bytes)
            return false;
    return true;
}

/* Nothing is in flight, and nothing that has begun has chunks to issue. */
static bool quiescent(const struct stream *s)
{
    for (uint32_t i = 0; i < s->tile_queues; i++)
        if (s->tile_queue[i].open)
            return false;
    return !s->pending_count && nothing_in_flight(s);
}

bool stream_turn(struct stream *s)
{
    bool stop = atomic_load(&s->stop) || atomic_load(&s->failed);
    take_posted(s);
    bool news = drop_cancelled(s);
    if (!stop)
        retire(s);
    if (!stop)
        fill_drives(s);
    if (atomic_load(&s->quiescing) && quiescent(s)) {
        atomic_store(&s->quiescing, false);
        news = true;
    }
    return news || (!stop && atomic_load(&s->failed));
}

void *stream_owner_main(void *arg)
{
    struct stream *s = arg;
    struct read_done done[DONE_MAX];
    for (;;) {
        if (stream_turn(s))
            stream_signal(s);
        if (atomic_load(&s->stop) && nothing_in_flight(s))
            return NULL;
        int n = reader_reap(s->o.reader, done, DONE_MAX, INT64_MAX);
        if (n < 0) {
            fail(s, UINT32_MAX, 0, n);
            stream_signal(s);
            reader_drain(s->o.reader); /* wait for the reads in flight */
            return NULL;
        }
        bool news = false;
        for (int i = 0; i < n; i++)
            news |= stream_settle(s, &done[i]);
        if (news || atomic_load(&s->failed))
            stream_signal(s);
    }
}

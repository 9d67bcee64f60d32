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
    GUESS_SHARE = 4, /* guesses may hold a quarter of a drive's budget */
    COUNTERS_NS = 1000 * 1000, /* between two samples for the journal */
};

static const uint64_t TAG_LOAD = 1ull << 63;

/* How long the piece of a segment that begins at `next` should be: equal pieces
 * of at most a chunk, cut at page bounds of the file so that no page is read
 * twice inside a segment. */
static uint32_t piece_bytes(const struct segment *seg, uint64_t next,
                            uint32_t chunk)
{
    uint64_t pieces = (seg->length_bytes + chunk - 1) / chunk;
    uint64_t size = (seg->length_bytes + pieces - 1) / pieces;
    size = (size + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
    uint64_t begin = seg->offset_bytes + next;
    uint64_t end = (begin + size) / BLOCK_PAGE * BLOCK_PAGE;
    uint64_t last = seg->offset_bytes + seg->length_bytes;
    if (end <= begin || end > last)
        end = last;
    return (uint32_t)(end - begin);
}

static uint64_t make_tag(uint64_t kind, uint32_t index, uint32_t bytes)
{
    return kind | (uint64_t)index << 32 | bytes;
}

static void fail(struct stream *s, uint32_t file, uint64_t offset_bytes,
                 int error)
{
    if (atomic_load(&s->failed))
        return;
    s->failure = (struct stream_failure){ error, file, offset_bytes };
    atomic_store(&s->failed, 1);
}

/* A drive is idle from the end of its last read to the next one's issue. */
static void begin_idle(struct lane *l, int64_t now_ns)
{
    int64_t ns = idle_at(atomic_load(&l->idle), now_ns);
    atomic_store(&l->idle, idle_word(ns - now_ns, true));
}

static void end_idle(const struct stream *s, struct lane *l)
{
    int64_t ns = idle_at(atomic_load(&l->idle), stream_now_ns(s));
    atomic_store(&l->idle, idle_word(ns, false));
}

/* Issue one chunk; 0, -EAGAIN when the reader has no slot, or what makes the
 * stream fail. */
static int start(struct stream *s, struct lane *l, enum read_class class,
                 const struct segment *seg, uint64_t next, uint8_t *frame,
                 uint64_t kind, uint32_t index, uint32_t *bytes)
{
    *bytes = piece_bytes(seg, next, s->o.chunk_bytes);
    struct read_req req = {
        .file = seg->file,
        .offset_bytes = seg->offset_bytes + next,
        .length_bytes = *bytes,
        .target = frame + seg->at + next,
        .tag = make_tag(kind, index, *bytes),
        .class = (uint8_t)class,
    };
    int err = s->o.simulated ? virtual_start(s->o.simulated, &req)
                             : reader_start(s->o.reader, &req);
    if (err) {
        if (err != -EAGAIN)
            fail(s, req.file, req.offset_bytes, err);
        return err;
    }
    if (!l->in_flight_bytes)
        end_idle(s, l);
    l->in_flight_bytes += *bytes;
    if (class == READ_GUESS)
        l->guess_flight_bytes += *bytes;
    return 0;
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
    return load->next_segment == load->segment_count;
}

/* What is left of a load that is no longer wanted, or already broken, is not
 * read. */
static void drop_rest(struct load *load)
{
    if (load_exhausted(load))
        return;
    load->next_segment = load->segment_count;
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

/* The oldest load of a class with a chunk for this drive. */
static struct load *oldest_load(struct stream *s, uint32_t drive,
                                enum read_class class)
{
    struct load *best = NULL;
    for (uint32_t i = 0, left = s->pending_count; left; i++) {
        struct load *load = s->pending[i];
        if (!load)
            continue;
        left--;
        if (load_exhausted(load) || atomic_load(&load->urgency) != class)
            continue;
        uint32_t file = load->segment[load->next_segment].file;
        if (stream_drive_of(s, file) != drive)
            continue;
        if (!best || load->posted_ns < best->posted_ns)
            best = load;
    }
    return best;
}

static bool start_load(struct stream *s, uint32_t drive,
                       enum read_class class)
{
    struct lane *l = &s->lane[drive];
    if (class == READ_GUESS &&
        l->guess_flight_bytes >= l->budget_bytes / GUESS_SHARE)
        return false;
    struct load *load = oldest_load(s, drive, class);
    if (!load)
        return false;
    uint32_t bytes;
    const struct segment *seg = &load->segment[load->next_segment];
    if (start(s, l, class, seg, load->next_byte, load->frame, TAG_LOAD,
              load_index(s, load), &bytes))
        return false;
    load->outstanding++;
    load->next_byte += bytes;
    if (load->next_byte == seg->length_bytes) {
        load->next_segment++;
        load->next_byte = 0;
    }
    return true;
}

/* Loads cancelled while nothing of them is in flight are over at once. */
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

/* Take room for a tile in the ring, in one piece; false when it is full. */
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

/* Give the next tile of the circle a frame, for its drive to fill; false when
 * the ring is full or nothing more may be read. */
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
    struct lane *l = stream_lane_of(s, tile);
    l->given[(l->given_head + l->given_count) % (s->o.tile_count + 1)] = tile;
    l->given_count++;
    l->given_bytes += s->o.tiles[tile].frame_bytes;
    s->given++;
    load_tile(s, tile);
    return true;
}

/* Make the lane's next tile its current one; false when there is none yet. */
static bool open_tile(struct stream *s, struct lane *l)
{
    if (l->home_next < l->home_count) {
        l->current = l->home[l->home_next++];
        s->state[l->current].frame = s->o.tiles[l->current].home;
        load_tile(s, l->current);
    } else {
        if (!atomic_load(&s->end)) /* at rest: what has a frame can wait */
            return false;
        while (!l->given_count)
            if (!give_frame(s))
                return false;
        l->current = l->given[l->given_head];
        l->given_head = (l->given_head + 1) % (s->o.tile_count + 1);
        l->given_count--;
        l->given_bytes -= s->o.tiles[l->current].frame_bytes;
    }
    l->open = true;
    l->next_segment = 0;
    l->next_byte = 0;
    return true;
}

static bool start_trunk(struct stream *s, struct lane *l)
{
    if (!l->open && !open_tile(s, l))
        return false;
    const struct stream_tile *tile = &s->o.tiles[l->current];
    const struct segment *seg =
        &s->o.segments[tile->first_segment + l->next_segment];
    struct tile_state *t = &s->state[l->current];
    uint32_t bytes;
    if (start(s, l, READ_TRUNK, seg, l->next_byte, t->frame, 0, l->current,
              &bytes))
        return false;
    t->outstanding++;
    l->next_byte += bytes;
    if (l->next_byte == seg->length_bytes) {
        l->next_byte = 0;
        if (++l->next_segment == tile->segment_count) {
            t->issued = true;
            l->open = false;
        }
    }
    return true;
}

/* ---- a turn ---- */

static void fill_drive(struct stream *s, uint32_t drive)
{
    struct lane *l = &s->lane[drive];
    while (l->in_flight_bytes < l->budget_bytes) {
        if (start_load(s, drive, READ_DEMAND))
            continue;
        uint64_t begun = atomic_load(&s->ring_used) - l->given_bytes;
        bool ahead = begun * 2 >= s->o.ring_bytes;
        if (ahead && start_load(s, drive, READ_GUESS))
            continue;
        if (start_trunk(s, l))
            continue;
        if (!ahead && start_load(s, drive, READ_GUESS))
            continue;
        return;
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

/* `flight`: bytes that are with the drive after this read. */
static void count(struct stream *s, const struct read_done *d, uint32_t object,
                  uint64_t flight)
{
    struct lane *l = &s->lane[d->drive];
    add64(&s->stats.payload_bytes[d->class], d->bytes);
    add64(&s->stats.device_bytes[d->class], d->device_bytes);
    add64(&s->stats.reads[d->class], 1);
    add32(&s->stats.queue_us[d->class][bucket(d->issued_ns - d->queued_ns)],
          1);
    add32(&s->stats.device_us[d->class][bucket(d->done_ns - d->issued_ns)], 1);
    if (!s->o.journal)
        return;
    struct journal_event e = {
        .begin_ns = d->queued_ns, .issued_ns = d->issued_ns,
        .end_ns = d->done_ns, .bytes = d->device_bytes, .object = object,
        .kind = JOURNAL_READ, .class = d->class, .drive = (uint8_t)d->drive,
    };
    journal_add(s->o.journal, JOURNAL_READS, &e);
    if (flight && d->done_ns - l->counted_ns < COUNTERS_NS)
        return;
    l->counted_ns = d->done_ns;
    struct journal_event at = { .begin_ns = d->done_ns, .end_ns = d->done_ns,
                                .bytes = atomic_load(&s->ring_used),
                                .kind = JOURNAL_RING, .drive = e.drive };
    journal_add(s->o.journal, JOURNAL_READS, &at);
    at.kind = JOURNAL_FLIGHT;
    at.bytes = flight;
    journal_add(s->o.journal, JOURNAL_READS, &at);
}

bool stream_settle(struct stream *s, const struct read_done *d)
{
    uint32_t bytes = (uint32_t)d->tag;
    uint32_t index = (uint32_t)(d->tag >> 32) & 0x7fffffff;
    struct lane *l = &s->lane[d->drive];
    l->in_flight_bytes -= bytes;
    if (!l->in_flight_bytes)
        begin_idle(l, d->done_ns);
    if (d->class == READ_GUESS)
        l->guess_flight_bytes -= bytes;
    if (d->tag & TAG_LOAD) {
        struct load *load = s->pending[index];
        count(s, d, load->object, l->in_flight_bytes);
        load->outstanding--;
        load->landed_bytes += d->bytes;
        if (d->error && !load->error) {
            load->error = d->error;
            if (d->class == READ_DEMAND) /* a guess may fail */
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
    count(s, d, index, l->in_flight_bytes);
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

static bool idle(const struct stream *s)
{
    for (uint32_t d = 0; d < s->lanes; d++)
        if (s->lane[d].in_flight_bytes)
            return false;
    return true;
}

/* Nothing is with a drive, and nothing begun waits to be. */
static bool rested(const struct stream *s)
{
    for (uint32_t d = 0; d < s->lanes; d++)
        if (s->lane[d].open)
            return false;
    return !s->pending_count && idle(s);
}

bool stream_turn(struct stream *s)
{
    bool stop = atomic_load(&s->stop) || atomic_load(&s->failed);
    take_posted(s);
    bool news = drop_cancelled(s);
    if (!stop)
        retire(s);
    for (uint32_t d = 0; d < s->lanes && !stop; d++)
        fill_drive(s, d);
    if (atomic_load(&s->resting) && rested(s)) {
        atomic_store(&s->resting, false);
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
        if (atomic_load(&s->stop) && idle(s))
            return NULL;
        int n = reader_reap(s->o.reader, done, DONE_MAX, INT64_MAX);
        if (n < 0) {
            fail(s, UINT32_MAX, 0, n);
            stream_signal(s);
            reader_drain(s->o.reader); /* or else they stay: reader_close */
            return NULL;
        }
        bool news = false;
        for (int i = 0; i < n; i++)
            news |= stream_settle(s, &done[i]);
        if (news || atomic_load(&s->failed))
            stream_signal(s);
    }
}

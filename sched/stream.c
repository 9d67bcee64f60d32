#include "sched/stream.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/clock.h"
#include "sched/stream_internal.h"

enum { SLEEP_NS_MAX = 100 * 1000 * 1000 };

int64_t stream_now_ns(const struct stream *s)
{
    return s->o.simulated ? virtual_now_ns(s->o.simulated)
                          : clock_ns();
}

/* Something was posted or released, or more may be read: the owner takes a
 * turn. */
static void wake(struct stream *s)
{
    if (!s->o.simulated)
        reader_wake(s->o.reader);
    else if (stream_turn(s))
        stream_signal(s);
}

/* Let the next simulated read end, if it ends by `until_ns`. */
static bool step(struct stream *s, int64_t until_ns)
{
    struct read_done done;
    if (!virtual_next(s->o.simulated, until_ns, &done))
        return false;
    bool news = stream_settle(s, &done);
    if (stream_turn(s) || news)
        stream_signal(s);
    return true;
}

void stream_compute(struct stream *s, int64_t ns)
{
    int64_t until = stream_now_ns(s) + ns;
    while (step(s, until))
        ;
}

/* Where a rate is not known, all drives are taken as equal. */
static void set_rates(struct stream *s)
{
    bool known = true;
    for (uint32_t d = 0; d < s->drives; d++) {
        s->queue[d].rate =
            s->o.simulated ? (double)virtual_rate(s->o.simulated, d)
                           : (double)reader_rate(s->o.reader, d);
        known &= s->queue[d].rate > 0;
    }
    for (uint32_t d = 0; d < s->drives && !known; d++)
        s->queue[d].rate = 1;
}

static int sort_tiles(struct stream *s)
{
    int err = stream_sort_tiles(s);
    if (err)
        return err;
    set_rates(s);
    s->tile = calloc(s->o.tile_count + 1, sizeof *s->tile);
    s->live = calloc(s->o.tile_count + 1, sizeof *s->live);
    if (!s->tile || !s->live)
        return -ENOMEM;
    for (uint32_t d = 0; d < s->drives; d++) {
        struct drive_queue *q = &s->queue[d];
        q->budget_bytes = s->o.simulated
                              ? virtual_budget(s->o.simulated, d)
                              : reader_in_flight_budget(s->o.reader, d);
        atomic_store(&q->idle, idle_word(-stream_now_ns(s), true));
    }
    atomic_store(&s->all_idle, idle_word(-stream_now_ns(s), true));
    for (uint32_t t = 0; t < s->o.tile_count; t++) {
        struct tile_queue *q = &s->tile_queue[s->queue_of[t]];
        if (s->o.tiles[t].home)
            q->home[q->home_count++] = t;
        else if (s->o.tiles[t].frame_bytes > s->o.ring_bytes)
            return -ENOBUFS;
        else
            s->tile[s->tile_count++] = t;
    }
    return 0;
}

int stream_open(struct stream **out, const struct stream_options *options)
{
    *out = NULL;
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    assert(options->tile_count <= INT32_MAX && options->chunk_bytes &&
           options->loads_max < INT32_MAX); /* they go into a tag */
    assert(!options->reader != !options->simulated);
    s->o = *options;
    s->drives = s->o.simulated ? virtual_count(s->o.simulated)
                              : reader_drives(options->reader);
    s->queue = calloc(s->drives, sizeof *s->queue);
    s->state = calloc(options->tile_count + 1, sizeof *s->state);
    s->pending = calloc(options->loads_max + 1, sizeof *s->pending);
    s->post_room = options->loads_max + 1;
    s->post = calloc(s->post_room, sizeof *s->post);
    int err = -ENOMEM;
    if (!s->queue || !s->state || !s->pending || !s->post)
        goto fail;
    err = sort_tiles(s);
    if (err)
        goto fail;
    if (s->o.simulated) {
        wake(s);
        *out = s;
        return 0;
    }
    err = -pthread_create(&s->owner, NULL, stream_owner_main, s);
    if (err)
        goto fail;
    s->running = true;
    *out = s;
    return 0;
fail:
    stream_close(s);
    return err;
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    if (s->running) {
        atomic_store(&s->stop, true);
        reader_wake(s->o.reader);
        pthread_join(s->owner, NULL);
    }
    for (uint32_t i = 0; i < s->tile_queues; i++) {
        free(s->tile_queue[i].home);
        free(s->tile_queue[i].given);
    }
    free(s->tile_queue);
    free(s->queue_of);
    free(s->number);
    free(s->tile);
    free(s->live);
    free(s->queue);
    free(s->state);
    free(s->pending);
    free(s->post);
    free(s);
}

void stream_set_readahead(struct stream *s, uint64_t end)
{
    atomic_store(&s->end, end);
    wake(s);
}

void stream_quiesce(struct stream *s)
{
    atomic_store(&s->end, 0);
    atomic_store(&s->quiescing, true);
    wake(s);
    for (;;) {
        uint32_t seen = stream_events(s);
        if (!atomic_load(&s->quiescing) || atomic_load(&s->failed))
            return;
        stream_sleep(s, seen);
    }
}

uint32_t stream_events(const struct stream *s)
{
    return atomic_load(&s->events);
}

void stream_signal(struct stream *s)
{
    atomic_fetch_add(&s->events, 1);
    if (atomic_load(&s->sleepers))
        syscall(SYS_futex, &s->events, FUTEX_WAKE_PRIVATE, INT_MAX, NULL,
                NULL, 0);
}

void stream_sleep(struct stream *s, uint32_t seen)
{
    struct timespec max = { .tv_nsec = SLEEP_NS_MAX };
    if (s->o.simulated) {
        while (stream_events(s) == seen)
            if (!step(s, INT64_MAX)) { /* nobody would ever wake us */
                s->failure.error = -EDEADLK;
                atomic_store(&s->failed, 1);
                return;
            }
        return;
    }
    atomic_fetch_add(&s->sleepers, 1);
    if (atomic_load(&s->events) == seen)
        syscall(SYS_futex, &s->events, FUTEX_WAIT_PRIVATE, seen, &max, NULL, 0);
    atomic_fetch_sub(&s->sleepers, 1);
}

bool stream_ready(const struct stream *s, uint32_t tile)
{
    uint32_t phase = atomic_load_explicit(&s->state[tile].phase,
                                          memory_order_acquire);
    return phase == TILE_READY || phase == TILE_FAILED;
}

/* Sleep until the tile is READY or FAILED, or the stream has failed. */
static int sleep_until_ready(struct stream *s, uint32_t tile)
{
    for (;;) {
        uint32_t seen = stream_events(s);
        if (stream_ready(s, tile))
            return 0;
        if (atomic_load(&s->failed))
            return s->failure.error;
        if (s->o.cancel && atomic_load(s->o.cancel))
            return -ECANCELED;
        stream_sleep(s, seen);
    }
}

int stream_preload(struct stream *s)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < s->o.tile_count; t++) {
        if (!s->o.tiles[t].home)
            continue;
        int err = sleep_until_ready(s, t);
        if (!err && atomic_load(&s->state[t].phase) == TILE_FAILED)
            err = s->state[t].error;
        if (err)
            return err;
        bytes += s->o.tiles[t].payload_bytes;
        if (s->o.loaded)
            s->o.loaded(s->o.loaded_arg, bytes);
    }
    return 0;
}

int stream_wait(struct stream *s, uint32_t tile)
{
    assert(tile < s->o.tile_count);
    struct tile_state *t = &s->state[tile];
    if (s->o.cancel && atomic_load(s->o.cancel))
        return -ECANCELED;
    if (!stream_ready(s, tile)) {
        int64_t begin = stream_now_ns(s);
        int err = sleep_until_ready(s, tile);
        int64_t end = stream_now_ns(s);
        s->hold_wait_ns += end - begin;
        struct event e = { .begin_ns = begin,
                           .end_ns = end,
                           .object = tile,
                           .kind = EVENT_WAIT_TRUNK };
        event_ring_add(s->o.event_ring, EVENT_TRACK_COMPUTE, &e);
        if (err)
            return err;
    }
    uint32_t phase = atomic_load_explicit(&t->phase, memory_order_acquire);
    return phase == TILE_FAILED ? t->error : 0;
}

/* The tile must be the next of the circle: a skipped one would stay in the ring
 * and block it. And it must be ready, or be allowed to be read. */
static void check_turn(const struct stream *s, uint32_t tile)
{
    uint64_t pass = s->held / s->tile_count;
    assert(tile == s->tile[s->held % s->tile_count]);
    assert(s->o.simulated || stream_ready(s, tile) ||
           atomic_load(&s->failed) ||
           pass * s->o.tile_count + tile < atomic_load(&s->end));
}

int stream_hold(struct stream *s, uint32_t tile, const uint8_t **frame)
{
    assert(tile < s->o.tile_count);
    if (!s->o.tiles[tile].home)
        check_turn(s, tile);
    int err = stream_wait(s, tile);
    *frame = err ? NULL : s->state[tile].frame;
    if (err)
        return err;
    s->held += !s->o.tiles[tile].home;
    return 0;
}

void stream_release(struct stream *s, uint32_t tile)
{
    if (s->o.tiles[tile].home)
        return;
    struct tile_state *t = &s->state[tile];
    assert(s->released < s->held &&
           tile == s->tile[s->released % s->tile_count] &&
           atomic_load(&t->phase) == TILE_READY);
    s->released++;
    atomic_store_explicit(&t->phase, TILE_RELEASED, memory_order_release);
    wake(s);
}

void stream_post(struct stream *s, struct load *load)
{
    uint32_t tail = atomic_load_explicit(&s->post_tail, memory_order_relaxed);
    uint32_t next = (tail + 1) % s->post_room;
    assert(next != atomic_load(&s->post_head));
    assert(load->segment_count >= 1 &&
           load->segment_count <= BLOCK_SEGMENTS_MAX &&
           atomic_load(&load->state) != LOAD_WAITING);
    memset(load->issued, 0, sizeof load->issued);
    load->issued_segments = load->outstanding = 0;
    load->landed_bytes = 0;
    load->error = 0;
    load->partial = false;
    load->posted_ns = stream_now_ns(s);
    atomic_store(&load->cancelled, false);
    atomic_store(&load->state, LOAD_WAITING);
    s->post[tail] = load;
    atomic_store_explicit(&s->post_tail, next, memory_order_release);
    wake(s);
}

void stream_notify(struct stream *s)
{
    wake(s);
}

struct stream_failure stream_failure(const struct stream *s)
{
    struct stream_failure none = { 0 };
    return atomic_load(&s->failed) ? s->failure : none;
}

int64_t stream_hold_wait_ns(const struct stream *s)
{
    return s->hold_wait_ns;
}

int64_t stream_idle_ns(const struct stream *s)
{
    int64_t sum = 0;
    for (uint32_t d = 0; d < s->drives; d++)
        sum += stream_drive_idle_ns(s, d);
    return sum;
}

int64_t stream_drive_idle_ns(const struct stream *s, uint32_t drive)
{
    return idle_at(atomic_load(&s->queue[drive].idle), stream_now_ns(s));
}

int64_t stream_all_idle_ns(const struct stream *s)
{
    return idle_at(atomic_load(&s->all_idle), stream_now_ns(s));
}

static uint64_t get64(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static uint32_t get32(const uint32_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void stream_stats(const struct stream *s, struct stream_stats *out)
{
    const struct stream_stats *in = &s->stats;
    for (uint32_t c = 0; c < READ_CLASSES; c++) {
        out->payload_bytes[c] = get64(&in->payload_bytes[c]);
        out->device_bytes[c] = get64(&in->device_bytes[c]);
        out->reads[c] = get64(&in->reads[c]);
        for (uint32_t b = 0; b < STREAM_HISTOGRAM; b++) {
            out->queue_us[c][b] = get32(&in->queue_us[c][b]);
            out->device_us[c][b] = get32(&in->device_us[c][b]);
        }
    }
}

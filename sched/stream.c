#include "sched/stream.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sched/stream_internal.h"

enum { AWAIT_NS_MAX = 100 * 1000 * 1000 };

int64_t stream_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t stream_now_ns(const struct stream *s)
{
    return s->o.simulated ? virtual_now_ns(s->o.simulated)
                          : stream_clock_ns();
}

/* Something was posted, released or allowed: the owner should look. */
static void wake(struct stream *s)
{
    if (!s->o.simulated)
        reader_wake(s->o.reader);
    else if (stream_turn(s))
        stream_signal(s);
}

/* One read of the simulated drives, not later than `until_ns`. */
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

void stream_spend(struct stream *s, int64_t ns)
{
    int64_t until = stream_now_ns(s) + ns;
    while (step(s, until))
        ;
}

static int sort_tiles(struct stream *s)
{
    s->tile = calloc(s->o.tile_count + 1, sizeof *s->tile);
    s->live = calloc(s->o.tile_count + 1, sizeof *s->live);
    if (!s->tile || !s->live)
        return -ENOMEM;
    for (uint32_t d = 0; d < s->lanes; d++) {
        struct lane *l = &s->lane[d];
        l->home = calloc(s->o.tile_count + 1, sizeof *l->home);
        l->given = calloc(s->o.tile_count + 1, sizeof *l->given);
        if (!l->home || !l->given)
            return -ENOMEM;
        l->budget_bytes = s->o.simulated
                              ? virtual_budget(s->o.simulated, d)
                              : reader_in_flight_budget(s->o.reader, d);
        atomic_store(&l->idle, idle_word(-stream_now_ns(s), true));
    }
    for (uint32_t t = 0; t < s->o.tile_count; t++) {
        struct lane *l = stream_lane_of(s, t);
        if (s->o.tiles[t].home)
            l->home[l->home_count++] = t;
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
    s->o = *options;
    s->lanes = s->o.simulated ? virtual_count(s->o.simulated)
                              : reader_drives(options->reader);
    s->lane = calloc(s->lanes, sizeof *s->lane);
    s->state = calloc(options->tile_count + 1, sizeof *s->state);
    s->pending = calloc(options->loads_max + 1, sizeof *s->pending);
    s->post_room = options->loads_max + 1;
    s->post = calloc(s->post_room, sizeof *s->post);
    int err = -ENOMEM;
    if (!s->lane || !s->state || !s->pending || !s->post)
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
    for (uint32_t d = 0; s->lane && d < s->lanes; d++) {
        free(s->lane[d].home);
        free(s->lane[d].given);
    }
    free(s->tile);
    free(s->live);
    free(s->lane);
    free(s->state);
    free(s->pending);
    free(s->post);
    free(s);
}

void stream_allow(struct stream *s, uint64_t end)
{
    atomic_store(&s->end, end);
    wake(s);
}

void stream_rest(struct stream *s)
{
    atomic_store(&s->end, 0);
    atomic_store(&s->resting, true);
    wake(s);
    for (;;) {
        uint32_t seen = stream_events(s);
        if (!atomic_load(&s->resting) || atomic_load(&s->failed))
            return;
        stream_await(s, seen);
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

void stream_await(struct stream *s, uint32_t seen)
{
    struct timespec most = { .tv_nsec = AWAIT_NS_MAX };
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
        syscall(SYS_futex, &s->events, FUTEX_WAIT_PRIVATE, seen, &most, NULL,
                0);
    atomic_fetch_sub(&s->sleepers, 1);
}

bool stream_ready(const struct stream *s, uint32_t tile)
{
    uint32_t phase = atomic_load_explicit(&s->state[tile].phase,
                                          memory_order_acquire);
    return phase == TILE_READY || phase == TILE_FAILED;
}

/* Sleep until the tile is there or something broke. */
static int sleep_for(struct stream *s, uint32_t tile)
{
    for (;;) {
        uint32_t seen = stream_events(s);
        if (stream_ready(s, tile))
            return 0;
        if (atomic_load(&s->failed))
            return s->failure.error;
        if (s->o.cancel && atomic_load(s->o.cancel))
            return -ECANCELED;
        stream_await(s, seen);
    }
}

int stream_preload(struct stream *s)
{
    for (uint32_t t = 0; t < s->o.tile_count; t++) {
        if (!s->o.tiles[t].home)
            continue;
        int err = sleep_for(s, t);
        if (!err && atomic_load(&s->state[t].phase) == TILE_FAILED)
            err = s->state[t].error;
        if (err)
            return err;
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
        int err = sleep_for(s, tile);
        int64_t end = stream_now_ns(s);
        s->hold_wait_ns += end - begin;
        struct journal_event e = { .begin_ns = begin, .end_ns = end,
                                   .object = tile,
                                   .kind = JOURNAL_WAIT_TRUNK };
        journal_add(s->o.journal, JOURNAL_COMPUTE, &e);
        if (err)
            return err;
    }
    uint32_t phase = atomic_load_explicit(&t->phase, memory_order_acquire);
    return phase == TILE_FAILED ? t->error : 0;
}

int stream_hold(struct stream *s, uint32_t tile, const uint8_t **frame)
{
    int err = stream_wait(s, tile);
    *frame = err ? NULL : s->state[tile].frame;
    if (err)
        return err;
    if (!s->o.tiles[tile].home)
        atomic_fetch_add(&s->held_bytes, s->o.tiles[tile].frame_bytes);
    return 0;
}

void stream_release(struct stream *s, uint32_t tile)
{
    if (s->o.tiles[tile].home)
        return;
    struct tile_state *t = &s->state[tile];
    assert(atomic_load(&t->phase) == TILE_READY);
    atomic_fetch_sub(&s->held_bytes, s->o.tiles[tile].frame_bytes);
    atomic_store_explicit(&t->phase, TILE_RELEASED, memory_order_release);
    wake(s);
}

void stream_post(struct stream *s, struct load *load)
{
    uint32_t tail = atomic_load_explicit(&s->post_tail, memory_order_relaxed);
    uint32_t next = (tail + 1) % s->post_room;
    assert(next != atomic_load(&s->post_head));
    load->next_segment = load->outstanding = 0;
    load->next_byte = load->landed_bytes = 0;
    load->error = 0;
    load->partial = false;
    load->posted_ns = stream_now_ns(s);
    atomic_store(&load->cancelled, false);
    atomic_store(&load->state, LOAD_WAITING);
    s->post[tail] = load;
    atomic_store_explicit(&s->post_tail, next, memory_order_release);
    wake(s);
}

void stream_poke(struct stream *s)
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
    for (uint32_t d = 0; d < s->lanes; d++)
        sum += idle_at(atomic_load(&s->lane[d].idle), stream_now_ns(s));
    return sum;
}

static uint64_t look64(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static uint32_t look32(const uint32_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void stream_stats(const struct stream *s, struct stream_stats *out)
{
    const struct stream_stats *in = &s->stats;
    for (uint32_t c = 0; c < READ_CLASSES; c++) {
        out->payload_bytes[c] = look64(&in->payload_bytes[c]);
        out->device_bytes[c] = look64(&in->device_bytes[c]);
        out->reads[c] = look64(&in->reads[c]);
        for (uint32_t b = 0; b < STREAM_HISTOGRAM; b++) {
            out->queue_us[c][b] = look32(&in->queue_us[c][b]);
            out->device_us[c][b] = look32(&in->device_us[c][b]);
        }
    }
}

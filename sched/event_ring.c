#include "sched/event_ring.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Counters only grow; an event's place is its number modulo the capacity. The
 * writer owns `added`, the taker `taken`. They lie on different cache lines, so
 * that a take does not slow the next add. */
struct track {
    struct event *event;
    _Alignas(64) _Atomic uint64_t added;
    _Atomic uint64_t dropped;
    _Alignas(64) _Atomic uint64_t taken;
};

struct event_ring {
    struct track track[EVENT_TRACKS];
    uint32_t    capacity;
};

int event_ring_open(struct event_ring **out, uint32_t capacity)
{
    assert(capacity > 0);
    *out = NULL;
    struct event_ring *j = aligned_alloc(64, sizeof *j);
    if (!j)
        return -ENOMEM;
    *j = (struct event_ring){ .capacity = capacity };
    for (int l = 0; l < EVENT_TRACKS; l++) {
        j->track[l].event = malloc(capacity * sizeof *j->track[l].event);
        if (!j->track[l].event) {
            event_ring_close(j);
            return -ENOMEM;
        }
    }
    *out = j;
    return 0;
}

void event_ring_close(struct event_ring *j)
{
    if (!j)
        return;
    for (int l = 0; l < EVENT_TRACKS; l++)
        free(j->track[l].event);
    free(j);
}

void event_ring_add(struct event_ring *j, enum event_track track,
                    const struct event *event)
{
    if (!j)
        return;
    struct track *l = &j->track[track];
    uint64_t n = atomic_load_explicit(&l->added, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&l->taken, memory_order_acquire);
    if (n - taken == j->capacity) {
        atomic_fetch_add_explicit(&l->dropped, 1, memory_order_relaxed);
        return;
    }
    l->event[n % j->capacity] = *event;
    atomic_store_explicit(&l->added, n + 1, memory_order_release);
}

uint32_t event_ring_take(struct event_ring *j, enum event_track track,
                         struct event *out, uint32_t max)
{
    struct track *l = &j->track[track];
    uint64_t at = atomic_load_explicit(&l->taken, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&l->added, memory_order_acquire);
    uint32_t n = 0;
    for (; at < end && n < max; at++)
        out[n++] = l->event[at % j->capacity];
    atomic_store_explicit(&l->taken, at, memory_order_release);
    return n;
}

uint64_t event_ring_dropped(const struct event_ring *j, enum event_track track)
{
    return atomic_load_explicit(&j->track[track].dropped, memory_order_relaxed);
}

#include "sched/journal.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Counters run for ever; an event's place is its number modulo the capacity.
 * The writer owns `added`, the taker `taken`. They are on lines of their own,
 * so that a take does not slow the next add. */
struct lane {
    struct journal_event *event;
    _Alignas(64) _Atomic uint64_t added;
    _Atomic uint64_t dropped;
    _Alignas(64) _Atomic uint64_t taken;
};

struct journal {
    struct lane lane[JOURNAL_LANES];
    uint32_t    capacity;
};

int journal_open(struct journal **out, uint32_t capacity)
{
    assert(capacity > 0);
    *out = NULL;
    struct journal *j = aligned_alloc(64, sizeof *j);
    if (!j)
        return -ENOMEM;
    *j = (struct journal){ .capacity = capacity };
    for (int l = 0; l < JOURNAL_LANES; l++) {
        j->lane[l].event = malloc(capacity * sizeof *j->lane[l].event);
        if (!j->lane[l].event) {
            journal_close(j);
            return -ENOMEM;
        }
    }
    *out = j;
    return 0;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    for (int l = 0; l < JOURNAL_LANES; l++)
        free(j->lane[l].event);
    free(j);
}

void journal_add(struct journal *j, enum journal_lane lane,
                 const struct journal_event *event)
{
    if (!j)
        return;
    struct lane *l = &j->lane[lane];
    uint64_t n = atomic_load_explicit(&l->added, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&l->taken, memory_order_acquire);
    if (n - taken == j->capacity) {
        atomic_fetch_add_explicit(&l->dropped, 1, memory_order_relaxed);
        return;
    }
    l->event[n % j->capacity] = *event;
    atomic_store_explicit(&l->added, n + 1, memory_order_release);
}

uint32_t journal_take(struct journal *j, enum journal_lane lane,
                      struct journal_event *out, uint32_t most)
{
    struct lane *l = &j->lane[lane];
    uint64_t at = atomic_load_explicit(&l->taken, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&l->added, memory_order_acquire);
    uint32_t n = 0;
    for (; at < end && n < most; at++)
        out[n++] = l->event[at % j->capacity];
    atomic_store_explicit(&l->taken, at, memory_order_release);
    return n;
}

uint64_t journal_dropped(const struct journal *j, enum journal_lane lane)
{
    return atomic_load_explicit(&j->lane[lane].dropped, memory_order_relaxed);
}

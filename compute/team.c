#include "compute/team.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 64,
    GROUP = 8,            /* workers that draw chunks from one counter */
    CHUNKS_A_THREAD = 8,  /* enough to even out threads of unequal speed */
    SPIN_NS = 5000,       /* then sleep */
    CPUS_MAX = 1 << 16,
};

/* What a worker is doing with the open job. */
enum { IDLE, BUSY, AWAITED /* busy, and the caller sleeps until it is not */ };

struct worker {
    _Alignas(LINE) atomic_uint state;
    unsigned index;
    struct team *team;
    pthread_t thread;
};

struct counter {
    _Alignas(LINE) atomic_size_t next; /* chunks taken of the group's share */
};

/* The job fields are plain: the caller writes them only while no worker is in
 * a job. A worker enters by storing BUSY and then reading epoch; the caller
 * leaves by storing epoch and then reading every state. Both are sequentially
 * consistent, so either the worker sees the job closed or the caller sees the
 * worker busy and waits for it. */
struct team {
    _Alignas(LINE) atomic_uint epoch; /* odd: a job is open; a futex */
    atomic_uint sleepers;
    atomic_bool stop;

    _Alignas(LINE) void (*body)(void *arg, size_t begin, size_t end,
                                unsigned worker);
    void *arg;
    size_t count;
    size_t chunk; /* elements, a multiple of grain */
    size_t chunks;

    unsigned threads;
    unsigned groups;
    bool inside; /* team_run */
    struct worker *worker;
    struct counter *counter;
};

static void futex_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Watch a word for SPIN_NS; true if it changed from `value`. */
static bool watch(atomic_uint *word, unsigned value)
{
    uint64_t until = 0;
    for (unsigned round = 0;; round++) {
        if (atomic_load(word) != value)
            return true;
        relax();
        if (round % 8 != 7)
            continue;
        uint64_t now = now_ns();
        if (until == 0)
            until = now + SPIN_NS;
        if (now >= until)
            return false;
    }
}

/* Take chunks until none is left: first from the own group's share, which
 * keeps a thread on the same part of a tile, then from the others'. */
static void serve(struct team *t, unsigned index)
{
    for (unsigned i = 0; i < t->groups; i++) {
        unsigned g = (index / GROUP + i) % t->groups;
        size_t first = t->chunks * g / t->groups;
        size_t share = t->chunks * (g + 1) / t->groups - first;
        for (;;) {
            if (atomic_load_explicit(&t->counter[g].next,
                                     memory_order_relaxed) >= share)
                break;
            size_t n = atomic_fetch_add_explicit(&t->counter[g].next, 1,
                                                 memory_order_relaxed);
            if (n >= share)
                break;
            size_t begin = (first + n) * t->chunk;
            size_t end = begin + t->chunk < t->count ? begin + t->chunk
                                                     : t->count;
            t->body(t->arg, begin, end, index);
        }
    }
}

/* Wait for an epoch other than `seen`. Whoever was asleep wakes two more: the
 * wake-up of a large team is a tree, not a loop in the caller. */
static unsigned next_epoch(struct team *t, unsigned seen)
{
    while (!watch(&t->epoch, seen)) {
        atomic_fetch_add(&t->sleepers, 1);
        futex_wait(&t->epoch, seen);
        atomic_fetch_sub(&t->sleepers, 1);
        if (atomic_load(&t->epoch) % 2 == 1 && atomic_load(&t->sleepers) > 0)
            futex_wake(&t->epoch, 2);
    }
    return atomic_load(&t->epoch);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct team *t = w->team;
    unsigned seen = 0;
    for (;;) {
        unsigned epoch = next_epoch(t, seen);
        if (atomic_load(&t->stop))
            return NULL;
        if (epoch % 2 == 1) {
            atomic_store(&w->state, BUSY);
            if (atomic_load(&t->epoch) == epoch)
                serve(t, w->index);
            if (atomic_exchange(&w->state, IDLE) == AWAITED)
                futex_wake(&w->state, 1);
        }
        seen = epoch;
    }
}

static void wait_for(struct worker *w)
{
    unsigned state = BUSY;
    if (atomic_load(&w->state) == IDLE || watch(&w->state, BUSY))
        return;
    if (!atomic_compare_exchange_strong(&w->state, &state, AWAITED))
        return;
    while (atomic_load(&w->state) == AWAITED)
        futex_wait(&w->state, AWAITED);
}

void team_for(struct team *t, size_t count, size_t grain,
              void (*body)(void *arg, size_t begin, size_t end,
                           unsigned worker),
              void *arg)
{
    assert(grain >= 1);
    if (count == 0)
        return;
    size_t units = (count + grain - 1) / grain;
    if (!t->inside || t->threads == 1 || units == 1) {
        body(arg, 0, count, 0);
        return;
    }
    size_t max = (size_t)t->threads * CHUNKS_A_THREAD;
    t->body = body;
    t->arg = arg;
    t->count = count;
    t->chunk = (units + max - 1) / max * grain;
    t->chunks = (count + t->chunk - 1) / t->chunk;
    for (unsigned g = 0; g < t->groups; g++)
        atomic_store_explicit(&t->counter[g].next, 0, memory_order_relaxed);

    assert(atomic_load(&t->epoch) % 2 == 0);
    atomic_fetch_add(&t->epoch, 1);
    if (atomic_load(&t->sleepers) > 0)
        futex_wake(&t->epoch, 2);
    serve(t, 0);
    atomic_fetch_add(&t->epoch, 1);
    for (unsigned i = 1; i < t->threads; i++)
        wait_for(&t->worker[i]);
}

void team_run(struct team *t, void (*fn)(void *arg), void *arg)
{
    assert(!t->inside);
    t->inside = true;
    fn(arg);
    t->inside = false;
}

unsigned team_threads(const struct team *t)
{
    return t->threads;
}

/* The lowest CPU of this CPU's core, or the CPU itself if the kernel does not
 * say: it stands for the core. */
static unsigned core_of(unsigned cpu)
{
    char path[96], text[32];
    snprintf(path, sizeof path,
             "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
             cpu);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cpu;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return cpu;
    text[n] = '\0';
    unsigned long first = strtoul(text, NULL, 10);
    return first < CPUS_MAX ? (unsigned)first : cpu;
}

unsigned team_cores(void)
{
    static const size_t bits = CPUS_MAX;
    cpu_set_t *allowed = CPU_ALLOC(bits), *cores = CPU_ALLOC(bits);
    unsigned count = 1;
    if (allowed && cores &&
        sched_getaffinity(0, CPU_ALLOC_SIZE(bits), allowed) == 0) {
        CPU_ZERO_S(CPU_ALLOC_SIZE(bits), cores);
        for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++)
            if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(bits), allowed))
                CPU_SET_S(core_of(cpu), CPU_ALLOC_SIZE(bits), cores);
        count = (unsigned)CPU_COUNT_S(CPU_ALLOC_SIZE(bits), cores);
    }
    CPU_FREE(allowed);
    CPU_FREE(cores);
    if (count > TEAM_THREADS_MAX)
        count = TEAM_THREADS_MAX;
    return count;
}

int team_open(struct team **out, unsigned threads)
{
    *out = NULL;
    if (threads > TEAM_THREADS_MAX)
        return -EINVAL;
    if (threads == 0)
        threads = team_cores();
    struct team *t = aligned_alloc(LINE, sizeof *t);
    if (!t)
        return -ENOMEM;
    *t = (struct team){ .threads = 1 };
    t->groups = (threads + GROUP - 1) / GROUP;
    t->worker = aligned_alloc(LINE, threads * sizeof *t->worker);
    t->counter = aligned_alloc(LINE, t->groups * sizeof *t->counter);
    if (!t->worker || !t->counter) {
        team_close(t);
        return -ENOMEM;
    }
    for (unsigned g = 0; g < t->groups; g++)
        t->counter[g] = (struct counter){ .next = 0 };
    for (unsigned i = 1; i < threads; i++) {
        struct worker *w = &t->worker[i];
        *w = (struct worker){ .index = i, .team = t };
        int err = pthread_create(&w->thread, NULL, work, w);
        if (err) {
            team_close(t);
            return -err;
        }
        t->threads++;
    }
    *out = t;
    return 0;
}

void team_close(struct team *t)
{
    if (!t)
        return;
    atomic_store(&t->stop, true);
    atomic_fetch_add(&t->epoch, 2);
    futex_wake(&t->epoch, INT_MAX);
    for (unsigned i = 1; i < t->threads; i++)
        pthread_join(t->worker[i].thread, NULL);
    free(t->worker);
    free(t->counter);
    free(t);
}

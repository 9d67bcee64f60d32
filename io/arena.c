#include "io/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/numa.h"

#define PAGE_BYTES  ((uint64_t)4096)
#define HUGE_BYTES  ((uint64_t)2 << 20)
#define SLICE_BYTES ((uint64_t)256 << 20) /* least work worth a thread */
#define THREADS_MAX 8u
#define SMAPS_BYTES (1u << 16)
#define LOW_SHARE   0.95

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

struct arena {
    char    *base;
    uint64_t bytes;
    uint64_t taken_bytes;
    double   huge_page_share;
    uint32_t nodes;
    bool     interleaved;
    bool     kept;
};

struct slice {
    char    *base;
    uint64_t bytes;
    int      error;
};

static void *populate(void *arg)
{
    struct slice *s = arg;
    int err;
    do
        err = madvise(s->base, s->bytes, MADV_POPULATE_WRITE) ? errno : 0;
    while (err == EINTR || err == EAGAIN);
    /* An older kernel, or a container that allows no advice: touch. */
    if (err == EINVAL || err == EPERM || err == ENOSYS || err == ENOTSUP) {
        for (uint64_t at = 0; at < s->bytes; at += PAGE_BYTES)
            *(volatile char *)(s->base + at) = 0;
        err = 0;
    }
    s->error = -err;
    return NULL;
}

/* Zeroing is bound by one core long before it is bound by memory. */
static int populate_all(struct arena *a)
{
    struct slice slices[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = { false };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n = a->bytes / SLICE_BYTES + 1;
    if (n > THREADS_MAX)
        n = THREADS_MAX;
    if (cores > 0 && n > (uint64_t)cores)
        n = (uint64_t)cores;
    uint64_t step = (a->bytes / n + HUGE_BYTES) & ~(HUGE_BYTES - 1);
    uint32_t made = 0;
    for (uint64_t at = 0; at < a->bytes; at += step, made++) {
        struct slice *s = &slices[made];
        uint64_t left = a->bytes - at;
        *s = (struct slice){ a->base + at, left < step ? left : step, 0 };
        if (made > 0) /* the first is for this thread */
            started[made] = !pthread_create(&threads[made], NULL, populate, s);
    }
    int err = 0;
    for (uint32_t i = 0; i < made; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        else
            populate(&slices[i]);
        if (slices[i].error < 0)
            err = slices[i].error;
    }
    return err;
}

/* Sum of AnonHugePages over the parts of the mapping, 0 if nothing tells. */
static uint64_t huge_bytes(const char *base, uint64_t bytes)
{
    char *text = malloc(SMAPS_BYTES);
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    uint64_t sum = 0, kib;
    uintptr_t from = 0, to = 0, begin = (uintptr_t)base;
    size_t kept = 0;
    while (text && fd >= 0) {
        ssize_t n = read(fd, text + kept, SMAPS_BYTES - 1 - kept);
        if (n <= 0)
            break;
        text[kept + (size_t)n] = '\0';
        char *line = text, *end;
        while ((end = strchr(line, '\n'))) {
            unsigned long lo, hi;
            *end = '\0';
            if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
                from = lo, to = hi;
            else if (from < begin + bytes && to > begin &&
                     sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
                sum += kib << 10;
            line = end + 1;
        }
        kept = strlen(line);
        memmove(text, line, kept);
    }
    if (fd >= 0)
        close(fd);
    free(text);
    return sum < bytes ? sum : bytes;
}

/* Map on a 2 MiB boundary: the kernel only promises a page. */
static char *map_aligned(uint64_t bytes)
{
    char *p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint64_t head = -(uintptr_t)p & (HUGE_BYTES - 1);
    if (head > 0)
        munmap(p, head);
    munmap(p + head + bytes, HUGE_BYTES - head);
    return p + head;
}

int arena_open(struct arena **out, uint64_t bytes)
{
    *out = NULL;
    if (bytes == 0)
        return -EINVAL;
    if (bytes > SIZE_MAX / 2)
        return -ENOMEM;
    struct arena *a = calloc(1, sizeof *a);
    if (!a)
        return -ENOMEM;
    a->bytes = (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    a->base = map_aligned(a->bytes);
    if (!a->base) {
        free(a);
        return -ENOMEM;
    }
    /* Both before the first touch, or they come too late. */
    uint64_t nodes = numa_memory_nodes();
    a->interleaved = numa_interleave(a->base, a->bytes, nodes) == 0;
    a->nodes = a->interleaved ? numa_count(nodes) : 1;
    madvise(a->base, a->bytes, MADV_HUGEPAGE);
    int err = populate_all(a);
    if (err < 0) {
        arena_close(a);
        return err == -EFAULT || err == -EHWPOISON ? -ENOMEM : err;
    }
    a->huge_page_share =
        (double)huge_bytes(a->base, a->bytes) / (double)a->bytes;
    *out = a;
    return 0;
}

void arena_close(struct arena *a)
{
    if (!a)
        return;
    if (!a->kept)
        munmap(a->base, a->bytes);
    free(a);
}

void arena_keep(struct arena *a)
{
    a->kept = true;
}

void *arena_base(const struct arena *a)
{
    return a->base;
}

uint64_t arena_bytes(const struct arena *a)
{
    return a->bytes;
}

void *arena_take(struct arena *a, uint64_t bytes, uint64_t align)
{
    assert(align > 0 && align <= HUGE_BYTES);
    assert((align & (align - 1)) == 0);
    uint64_t at = (a->taken_bytes + align - 1) & ~(align - 1);
    if (at > a->bytes || bytes > a->bytes - at)
        return NULL;
    a->taken_bytes = at + bytes;
    return a->base + at;
}

void arena_facts(const struct arena *a, struct arena_facts *out)
{
    *out = (struct arena_facts){
        .bytes = a->bytes,
        .taken_bytes = a->taken_bytes,
        .huge_page_share = a->huge_page_share,
        .nodes = a->nodes,
    };
    /* A tail below 2 MiB cannot be huge: count what could have been. */
    uint64_t whole = a->bytes & ~(HUGE_BYTES - 1);
    if (a->huge_page_share * (double)a->bytes < LOW_SHARE * (double)whole)
        out->note = "huge pages refused: reads cost more; try 'echo madvise > "
                    "/sys/kernel/mm/transparent_hugepage/enabled'";
    else if (!a->interleaved)
        out->note = "NUMA interleaving refused: memory lies on one node; try "
                    "numactl --interleave=all";
}

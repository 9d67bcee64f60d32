/* arena.h - one mapping for everything that reads land in.
 *
 * Anonymous memory, 2 MiB aligned, on huge pages where the kernel grants any,
 * spread over the NUMA nodes where there are several, and populated at open:
 * the first touch of a page costs more than reading it from a drive, so none
 * is left to the token loop. Parts are taken once and live as long as the
 * arena.
 *
 *     arena_open -> { arena_take ... } -> arena_close
 *
 * Bytes    Taken memory is the taker's, zero until written.
 * Threads  arena_take: one at a time. The memory itself: any.
 * Errors   negative errno from arena_open only.
 * Cost     arena_open touches every page, on up to eight threads.
 */
#ifndef IO_ARENA_H
#define IO_ARENA_H

#include <stdint.h>

struct arena;

struct arena_facts {
    uint64_t bytes, taken_bytes;
    double   huge_page_share; /* of bytes, by /proc/self/smaps at open */
    uint32_t nodes;           /* NUMA nodes the pages are spread over */
    const char *note; /* what was refused and a hint, one line, or NULL */
};

/* `bytes` is rounded up to 4 KiB. -EINVAL: zero. -ENOMEM: the kernel or a
 * limit refuses; nothing stays mapped. */
int arena_open(struct arena **out, uint64_t bytes);

/* NULL is allowed. The reader that reads into this arena is closed first. */
void arena_close(struct arena *a);
/* Reads into it are in flight for which nobody can wait any more: it will stay
 * mapped until the process ends. The reader says so at its own close. */
void arena_keep(struct arena *a);

void    *arena_base(const struct arena *a);
uint64_t arena_bytes(const struct arena *a);

/* The next `bytes` at a multiple of `align` (a power of two, at most 2 MiB),
 * or NULL when they do not fit; the arena is then as before. */
void *arena_take(struct arena *a, uint64_t bytes, uint64_t align);

void arena_facts(const struct arena *a, struct arena_facts *out);

#endif

/* bare.h - an io_uring loop with nothing around it: what readers are held
 * against.
 *
 *     bare_open -> { bare_run ... } -> bare_close
 */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

enum { BARE_DEPTH_MAX = 128 };

struct bare {
    struct io_uring ring;
    bool  open;
    bool  registered; /* the area is, as buffers */
    char *area;
    uint64_t area_bytes;
};

/* `fd` is open with O_DIRECT and stays the caller's, like the pages of `area`.
 * Buffers are registered where the limits allow. 0 or a negative errno. */
int bare_open(struct bare *b, int fd, char *area, uint64_t area_bytes);
/* Without an open it does nothing. */
void bare_close(struct bare *b);

/* Where chunk number n of an endless sequence begins in the file. */
typedef uint64_t bare_at_fn(const void *arg, uint64_t n);

/* Read chunks, `depth` <= BARE_DEPTH_MAX at one time, round and round into the
 * area, which is whole chunks, until `until_ns` (CLOCK_MONOTONIC), and wait for
 * what is in flight. `registered`: into registered buffers, which there must
 * be. Returns bytes, or a negative errno. */
int64_t bare_run(struct bare *b, uint64_t chunk_bytes, uint64_t depth,
                 bool registered, bare_at_fn *at, const void *arg,
                 int64_t until_ns);

#endif

/* profile_time.h - a timeline file read back, as sums over even bins of time.
 *
 *     times_open -> { times_fill }* -> times_close
 *
 * The file is read one event a line, as timeline.c writes it, once at open and
 * once for each fill; it may be of any length.
 *
 * Errors  a sentence in `why`: no such file, not a timeline of sluice.
 */
#ifndef BIN_PROFILE_TIME_H
#define BIN_PROFILE_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "model/why.h"
#include "sched/block.h"

enum { TIMES_BINS = 240, TIMES_DRIVES_MAX = 64 };

struct times_pass {
    double from_us, to_us;
    bool   decode;
};

struct times {
    FILE       *file;
    const char *path;
    struct times_pass *pass;
    uint32_t passes, pass_room;
    uint32_t drives;
    double   ring_bytes; /* as planned; 0: no ring */
    uint64_t lost;       /* events that are missing */
    uint64_t reads;
};

/* One drive, one window: bytes a second by class. The window: share of time. */
struct times_window {
    double from_us, to_us;
    double read[TIMES_DRIVES_MAX][READ_CLASSES][TIMES_BINS];
    double work[TIMES_BINS], wait_trunk[TIMES_BINS], wait_expert[TIMES_BINS];
    double ring[TIMES_BINS]; /* share of the ring that is filled */
};

int  times_open(struct times **out, const char *path, struct why *why);
void times_close(struct times *t);
/* Everything between from_us and to_us. */
int  times_fill(struct times *t, struct times_window *w, double from_us,
                double to_us, struct why *why);

#endif

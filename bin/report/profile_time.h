/* profile_time.h - read a timeline file back, as sums over equal bins of time.
 *
 *     times_open -> { times_fill } -> times_close
 *
 * The file has one event a line, as timeline.c writes it. It is read once at
 * open and once for each fill, and may be of any length.
 *
 * Threads one caller.
 * Errors  the errno of the file; -EBADMSG: not a timeline of sluice; -ENOMEM.
 */
#ifndef BIN_REPORT_PROFILE_TIME_H
#define BIN_REPORT_PROFILE_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "io/limits.h"
#include "model/ckpt/error.h"
#include "sched/block.h"

enum { TIMES_BINS = 240 };

struct times_pass {
    double from_us, to_us; /* microseconds since the start of the timeline */
    bool   decode;         /* else prefill */
};

struct times {
    FILE       *file;
    const char *path;
    struct times_pass *pass; /* [passes] */
    uint32_t passes, pass_room;
    uint32_t drives;     /* that the timeline has */
    double   ring_bytes; /* as planned; 0: no ring */
    double   rate[DRIVES_MAX]; /* bytes a second as measured; 0: not known */
    double   opened_us;  /* when the session was open; 0: not known */
    double   probe_us;   /* of it, measuring the drives */
    char     run[40];    /* the run's name; "": not known */
    uint64_t lost;       /* events that the timeline lacks */
    uint64_t reads;      /* that the timeline has */
};

/* A part of the timeline, in TIMES_BINS equal bins.
 *
 * A drive moves the bytes of all reads in flight by turns, and the timeline
 * knows only when each ended. So `read` has them as they ended, spread over the
 * time since the read before; where that would be more than the drive's rate,
 * over the time before too, as long as the drive was busy. */
struct times_window {
    double from_us, to_us;
    double read[DRIVES_MAX][READ_CLASSES][TIMES_BINS]; /* bytes a second */
    /* What compute did: shares of a bin's time, 0 to 1. */
    double work[TIMES_BINS], wait_trunk[TIMES_BINS], wait_expert[TIMES_BINS];
    double wait_embed[TIMES_BINS];
    double ring[TIMES_BINS]; /* share of the ring that is filled, 0 to 1 */
};

int times_open(struct times **out, const char *path, struct error *error);
void times_close(struct times *t);
/* Fill *w from the events between from_us and to_us. */
int times_fill(struct times *t, struct times_window *w, double from_us,
               double to_us, struct error *error);

#endif

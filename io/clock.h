/* clock.h - the one clock of the program: CLOCK_MONOTONIC in nanoseconds. */
#ifndef IO_CLOCK_H
#define IO_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif

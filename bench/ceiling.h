/* ceiling.h - what this machine can do at most, measured beside a kernel. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include <stddef.h>
#include <stdint.h>

#include "compute/kern.h"
#include "compute/team.h"

/* Nanoseconds to measure a team's work with: of one thread its CPU time, which
 * other programs do not add to; of more, the clock. */
int64_t ceiling_clock(const struct team *team);

/* GB/s of the fastest plain read loop we know over `bytes` (a multiple of
 * 4 MiB) at `from`, on all threads of the team. */
double ceiling_read(struct team *team, const char *from, size_t bytes);

/* GFLOP/s of fused multiply-adds that touch no memory, in the vectors of `isa`,
 * on all threads of the team. */
double ceiling_fma(struct team *team, enum isa isa);

#endif

/* governor.h - which of a prefetcher's names are read.
 *
 * A name is read only
 *   - while the drive is expected to be idle,
 *   - if its precision is high enough,
 *   - if reads take longer than compute, also only while the wasted bytes stay
 *     below 5 % of all bytes read.
 *
 * Precision is the share of names that their router then chose, counted by
 * layer and place. Places number the names that were not resident, 1 first,
 * read or not. A layer without results has the mean over the layers.
 *
 *     governor_open -> { governor_width, governor_allows, governor_saw,
 *                        governor_count ... } -> governor_close
 *
 * Bytes   it reads nothing and asks no clock.
 * Threads one owner at a time.
 * Errors  -ENOMEM from governor_open.
 */
#ifndef SCHED_PREFETCH_GOVERNOR_H
#define SCHED_PREFETCH_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define GOVERNOR_WIDTH_MAX 16   /* prefetches in a layer */
#define GOVERNOR_RATE 0.2f      /* weight of a new result in a layer's mean */
#define GOVERNOR_RATE_ALL 0.05f /* and in the mean over the layers */
#define GOVERNOR_START 0.5f     /* precision before any result */
#define GOVERNOR_BOUND 0.5f     /* precision needed if reads take longer */
#define GOVERNOR_IDLE 0.25f     /* and if compute does */
#define GOVERNOR_WASTE 0.05     /* share of bytes, if reads take longer */

struct governor;

/* The situation in which a prefetch could be issued. */
struct governor_now {
    bool disk_bound;             /* in the last pass, reads took longer */
    uint64_t expert_bytes;       /* of one expert */
    uint64_t prefetch_bytes;     /* of prefetches queued or in flight */
    uint64_t prefetch_bytes_max; /* limit of prefetch_bytes */
    double idle_s; /* seconds the drive will be idle before the router runs */
    double read_s; /* seconds one expert takes to read */
};

int governor_open(struct governor **out, uint32_t layers);
void governor_close(struct governor *g);

/* How many more experts fit into the idle time and the limit of bytes:
 * 0 .. GOVERNOR_WIDTH_MAX. */
uint32_t governor_width(const struct governor_now *now);

/* Whether to read the name in place `rank` (1: the first that is not resident)
 * of `layer`. False if governor_width is 0. */
bool governor_allows(const struct governor *g, const struct governor_now *now,
                     uint32_t layer, uint32_t rank);

/* The layer has chosen: was the name in place `rank` among them? */
void governor_saw(struct governor *g, uint32_t layer, uint32_t rank,
                  bool useful);
/* The share of names in place `rank` of `layer` that were chosen, 0 .. 1. */
float governor_precision(const struct governor *g, uint32_t layer,
                         uint32_t rank);

/* `bytes` were read, of any kind; `wasted` of them were prefetches that no
 * router chose. */
void governor_count(struct governor *g, uint64_t bytes, uint64_t wasted);

#endif

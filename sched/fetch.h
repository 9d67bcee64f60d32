/* fetch.h - the experts of one layer: known late, wanted at once.
 *
 * The cache decides what is a hit, what is admitted and what is bypassed, from
 * the routing alone; so replay decides the same. Fetch owns the frames. It
 * reads an admitted expert into a frame of the cache and a bypassed one into a
 * staging frame, and hands experts out as they arrive. Where a layer needs more
 * experts than there are staging frames, the others are read as frames become
 * free.
 *
 * fetch_prefetch reads ahead into staging frames that the running layer does
 * not need. If the router then chooses the expert, it keeps that frame; the
 * cache decides as without a prefetch. If not, the prefetch is cancelled.
 *
 *     fetch_open -> { fetch_begin, (fetch_next ... fetch_done)*, fetch_end }
 *     -> fetch_close
 *
 * Bytes    a frame is valid from fetch_next to fetch_done.
 * Threads  the compute thread; reads are the owner's (stream.h).
 * Errors   -ENOMEM from open; the errno of a read from fetch_next.
 */
#ifndef SCHED_FETCH_H
#define SCHED_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/cache/cache.h"
#include "sched/stream.h"

struct fetch;

/* Fill load->segment, segment_count, part_at and object for one expert. The
 * load keeps them as long as the expert is in its frame. */
typedef void fetch_place_fn(void *arg, uint32_t layer, uint32_t expert,
                            struct load *load);

/* Every byte of an expert has landed: check it and decode what is coded, within
 * its frame. Called once a load, before it is handed out. An error fails the
 * layer. */
typedef int fetch_landed_fn(void *arg, uint32_t layer, uint32_t expert,
                            const struct load *load);

struct fetch_options {
    struct stream  *stream;
    struct cache   *cache; /* its frames are the first of ours */
    uint32_t        layers, experts;
    uint32_t        cache_frames;
    uint32_t        staging_frames; /* >= 1 */
    uint32_t reserve;      /* staging frames that prefetches may not take */
    uint8_t        *frames;         /* (cache + staging) x frame_bytes */
    uint64_t        frame_bytes;    /* whole pages, of the largest expert */
    fetch_place_fn *place;
    fetch_landed_fn *landed;        /* or NULL */
    void           *place_arg;
};

/* Where an expert was when it was requested. */
enum fetch_source {
    FETCH_MISS,       /* nowhere: demanded */
    FETCH_RESIDENT,   /* in a frame of the cache */
    FETCH_PREFETCHED, /* prefetched, and there */
    FETCH_LATE,       /* prefetched, and not there yet */
    FETCH_SOURCES
};

struct fetch_counts {
    uint64_t requests; /* experts chosen, counted for each row */
    uint64_t loads;    /* distinct experts of a group that were not resident */
    uint64_t hits;     /* requests - loads */
    uint64_t prefetched; /* prefetches posted */
    uint64_t prefetch_hits, late; /* loads: FETCH_PREFETCHED, FETCH_LATE */
    uint64_t evictions, bypassed;
    uint64_t demand_bytes, prefetch_bytes, wasted_bytes; /* payload */
    /* Loads without a prefetch, from the request to the last byte. */
    uint64_t timed;
    int64_t latency_ns, latency_max_ns; /* sum over `timed`, largest */
};

int  fetch_open(struct fetch **out, const struct fetch_options *options);
/* The stream is closed first: no load may be in flight. */
void fetch_close(struct fetch *f);

/* Request the distinct experts of one layer in pass `step`. `uses` stays valid
 * until fetch_end; n <= experts. */
void fetch_begin(struct fetch *f, uint32_t step, uint32_t layer,
                 const struct cache_use *uses, uint32_t n);
/* 1: *item is the index in `uses` of an expert that has arrived, and *load has
 * its frame and part_at, until fetch_done. 0: none has arrived now; -ENOENT:
 * all have been handed out; another negative errno: a read or `landed`
 * failed. */
int  fetch_next(struct fetch *f, uint32_t *item, const struct load **load);
/* Give the frame back. */
void fetch_done(struct fetch *f, uint32_t item);
/* After fetch_done of all items. */
void fetch_end(struct fetch *f);
/* Requested experts whose reads are in flight. */
uint32_t fetch_waiting(const struct fetch *f);
enum fetch_source fetch_source(const struct fetch *f, uint32_t item);

/* Prefetch experts of a later layer. Those that are resident, prefetched
 * already or for which no frame is free are skipped. Returns how many were
 * posted. */
uint32_t fetch_prefetch(struct fetch *f, uint32_t layer,
                        const uint32_t *experts, uint32_t n);
/* True when the expert is resident or prefetched. */
bool fetch_has(const struct fetch *f, uint32_t layer, uint32_t expert);

struct fetch_counts fetch_counts(const struct fetch *f);

#endif

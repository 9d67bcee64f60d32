/* fetch.h - the experts of one layer: known late, wanted at once.
 *
 * The cache decides what is a hit, what is admitted and what passes through; it
 * decides from the routing alone, so replay reaches the same verdicts. This
 * module owns the frames: it loads an admitted miss straight into its frame and
 * a bypassed one into a staging frame, and hands experts out in the order in
 * which they are there. When a layer needs more experts than there are staging
 * frames, the rest flows through in waves.
 *
 *     fetch_open -> { fetch_begin, (fetch_next ... fetch_done)*, fetch_end }
 *     -> fetch_close
 *
 * Bytes    a frame is lent from fetch_next to fetch_done.
 * Threads  the compute thread; reads are the owner's (stream.h).
 * Guesses  fetch_guess reads ahead into staging frames that the running layer
 *          can spare. A guess that comes true changes its label, never its
 *          place; one that does not is dropped as far as it is not yet issued.
 */
#ifndef SCHED_FETCH_H
#define SCHED_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/cache.h"
#include "sched/stream.h"

struct fetch;

/* Fill load->segment, segment_count and object for one expert. */
typedef void fetch_place_fn(void *arg, uint32_t layer, uint32_t expert,
                            struct load *load);

struct fetch_options {
    struct stream  *stream;
    struct cache   *cache; /* its frames are the first of ours */
    uint32_t        layers, experts;
    uint32_t        cache_frames;
    uint32_t        staging_frames; /* >= 1 */
    uint32_t        reserve;        /* staging frames that guesses leave */
    uint8_t        *frames;         /* (cache + staging) x frame_bytes */
    uint64_t        frame_bytes;    /* whole pages, of the largest expert */
    uint64_t        payload_bytes;  /* of one expert */
    fetch_place_fn *place;
    void           *place_arg;
};

/* How an expert came to be there: the hit column of a trace. */
enum fetch_how { FETCH_MISS, FETCH_RESIDENT, FETCH_GUESSED, FETCH_LATE };

struct fetch_counts {
    uint64_t requests, loads, hits;
    uint64_t guessed, guess_hits, late, evictions, bypassed;
    uint64_t demand_bytes, guess_bytes, wasted_bytes; /* payload */
    /* Of experts that nobody had guessed: from asking to the last byte. */
    uint64_t timed;
    int64_t  latency_ns, latency_most_ns; /* sum over `timed`, largest */
};

int  fetch_open(struct fetch **out, const struct fetch_options *options);
/* The stream is closed first: no load may be in flight. */
void fetch_close(struct fetch *f);

/* Ask for the distinct experts of one (step, layer). `uses` is kept until
 * fetch_end; n <= experts. */
void fetch_begin(struct fetch *f, uint32_t step, uint32_t layer,
                 const struct cache_use *uses, uint32_t n);
/* 1: *item is the index in `uses` of an expert that is there and *frame its
 * bytes; 0: none is there now; -ENOENT: all have been handed out; another
 * negative errno: a read failed. */
int  fetch_next(struct fetch *f, uint32_t *item, const uint8_t **frame);
/* Compute is done with it. */
void fetch_done(struct fetch *f, uint32_t item);
void fetch_end(struct fetch *f);
/* Experts that are asked for and not yet there. */
uint32_t fetch_waiting(const struct fetch *f);
enum fetch_how fetch_how(const struct fetch *f, uint32_t item);

/* Read experts of a later layer while nothing else is to be read; those that
 * are resident, guessed already or for which no frame is free are skipped.
 * Returns how many were issued. */
uint32_t fetch_guess(struct fetch *f, uint32_t layer, const uint32_t *experts,
                     uint32_t n);
/* True when the expert is resident or on its way. */
bool fetch_has(const struct fetch *f, uint32_t layer, uint32_t expert);

struct fetch_counts fetch_counts(const struct fetch *f);

#endif

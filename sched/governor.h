/* governor.h - which guesses may spend the drive's time.
 *
 * A guess is read only while the drive has nothing better to do, only if
 * guesses like it were right often enough, and when the drive is the longer
 * side only as long as the waste stays a small share of all bytes read. Like
 * it: of the same layer and the same place in the predictor's order, counted
 * among guesses that were not resident, whether they were read or not. A layer
 * that was not seen yet is taken to be like the others.
 *
 *     governor_open -> { governor_width, governor_allows, governor_saw,
 *                        governor_spent ... } -> governor_close
 *
 * Everything is a function of what it is told: no clock, no reads.
 * Threads: one owner at a time. Errors: -ENOMEM from governor_open.
 */
#ifndef SCHED_GOVERNOR_H
#define SCHED_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define GOVERNOR_WIDTH_MOST 16   /* guesses a layer */
#define GOVERNOR_RATE       0.2f /* of the running mean of precision */
#define GOVERNOR_RATE_ALL   0.05f /* of the mean over the layers */
#define GOVERNOR_START      0.5f /* precision before anything is known */
#define GOVERNOR_BOUND      0.5f /* precision needed if the drive is the */
#define GOVERNOR_IDLE       0.25f /* longer side, and if it is not */
#define GOVERNOR_WASTE      0.05 /* share of all bytes, if it is */

struct governor;

/* How things stand when a guess could be issued. */
struct governor_now {
    bool     disk_bound;     /* the last pass: bytes / rate above compute */
    uint64_t expert_bytes;
    uint64_t guess_bytes;      /* of guesses, queued or in flight */
    uint64_t guess_bytes_most; /* their bound */
    double   idle_s; /* expected of the drive until the layer's router ran */
    double   read_s; /* that one expert takes */
};

int  governor_open(struct governor **out, uint32_t layers);
void governor_close(struct governor *g);

/* How many more experts the idle time and the bound on bytes have room for:
 * 0 .. GOVERNOR_WIDTH_MOST. */
uint32_t governor_width(const struct governor_now *now);

/* May the guess in place `rank` (1 = first of those not resident) for `layer`
 * be read? Needs room for at least one. */
bool governor_allows(const struct governor *g, const struct governor_now *now,
                     uint32_t layer, uint32_t rank);

/* The layer's choice is known: was that guess in it? */
void governor_saw(struct governor *g, uint32_t layer, uint32_t rank,
                  bool useful);
float governor_precision(const struct governor *g, uint32_t layer,
                         uint32_t rank);

/* `bytes` of any kind were read, of which `wasted` for guesses that nobody
 * wanted. */
void governor_spent(struct governor *g, uint64_t bytes, uint64_t wasted);

#endif

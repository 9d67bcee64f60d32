/* prefetcher.h - names the experts that a layer will probably choose, before
 * its router runs.
 *
 * A wrong name costs a read and never changes a result; governor.h decides
 * which names are read. A prefetcher is told what the layers chose and names
 * experts of a layer, the likeliest first.
 *
 *     prefetcher_open -> { prefetcher_next(m), prefetcher_saw(m) ... }
 *                     -> prefetcher_close
 *
 * A sequence is a slot 0 .. sequences-1. Call prefetcher_forget before another
 * sequence takes the slot. The rows of a sequence in a pass are seen in order,
 * layer by layer. prefetcher_next names for the row after the last one that
 * layer m saw.
 *
 * Bytes   reads nothing. Memory is allocated in prefetcher_open: `table` takes
 *         layers x experts^2 bytes (74 MB for K3), `path` at most
 *         PREFETCH_PATH_BYTES, `ema` 8 bytes an expert and sequence.
 * Threads one owner at a time.
 * Errors  only from prefetcher_open.
 */
#ifndef SCHED_PREFETCH_PREFETCHER_H
#define SCHED_PREFETCH_PREFETCHER_H

#include <stdbool.h>
#include <stdint.h>

#define PREFETCH_PATH_BYTES (256u << 20)

struct prefetcher;

/* The names for `gate`: what the router of `layer` says of the sequence's last
 * row. Fills ids [n], the likeliest first, and their chances in confidence [n];
 * returns n <= max. */
typedef uint32_t prefetch_gate_fn(void *arg, uint32_t sequence, uint32_t layer,
                                  uint32_t *ids, float *confidence,
                                  uint32_t max);

/* -EINVAL: unknown name or an impossible shape. -ENOMEM. */
int prefetcher_open(struct prefetcher **out, const char *name, uint32_t layers,
                    uint32_t experts, uint32_t top_k, uint32_t sequences);
void prefetcher_close(struct prefetcher *p);

/* Set where `gate` gets its names from; before, it names none. The other
 * prefetchers ignore it. */
void prefetcher_set_gate(struct prefetcher *p, prefetch_gate_fn *gate,
                         void *arg);

/* A row of `sequence` chose ids [k] in `layer` of pass `step`, best first, or
 * in any order if the ranks are unknown. Steps never decrease. */
void prefetcher_saw(struct prefetcher *p, uint32_t sequence, uint32_t step,
                    uint32_t layer, const uint32_t *ids, uint32_t k);

/* Name distinct experts of `layer` in ids [n], the likeliest first, with their
 * chances, 0 .. 1, in confidence [n]. Returns n <= max. */
uint32_t prefetcher_next(struct prefetcher *p, uint32_t sequence,
                         uint32_t layer, uint32_t *ids, float *confidence,
                         uint32_t max);

/* The slot's sequence has ended. What was learned from all sequences stays. */
void prefetcher_forget(struct prefetcher *p, uint32_t sequence);

/* The i-th prefetcher and one line about it; NULL past the last. */
const char *prefetcher_name(uint32_t i, const char **about);

#endif

/* prefetch.h - experts of the next layer, read before its router has run.
 *
 * When a layer's own experts have been requested, the prefetcher names experts
 * of the next MoE layer. The governor lets those through that are likely enough
 * and for which the drive has time. Fetch reads them after everything else.
 * The prefetcher `gate` computes the next layer's router early, on the residual
 * after this layer's attention (gate.c); the simulator has its own.
 * A prefetch never changes a result.
 *
 * Threads  that of the pass.
 * Errors   -ENOMEM, -EINVAL from k3_prefetch_open.
 */
#ifndef MODEL_K3_PREFETCH_H
#define MODEL_K3_PREFETCH_H

#include <stdint.h>

#include "model/ckpt/error.h"
#include "sched/prefetch/prefetcher.h"

struct flow;
struct prefetching;

/* NULL in *out when options.prefetch is "none" or there are no experts.
 * -ENOMEM; -EINVAL: no such prefetcher. */
int k3_prefetch_open(struct prefetching **out, const struct flow *f,
                     struct error *error);
void k3_prefetch_close(struct prefetching *p);
/* Set the function that names experts for `gate`. */
void k3_prefetch_set_gate(struct prefetching *p, prefetch_gate_fn *gate,
                          void *arg);
/* Bytes of heap that a prefetcher of this name takes, with its gate. */
uint64_t k3_prefetch_bytes(const char *name, uint32_t layers, uint32_t experts,
                           uint32_t hidden);

/* The slot `sequence` gets another sequence: forget what the last one chose. */
void k3_prefetch_forget(struct flow *f, uint32_t sequence);
/* A layer has chosen its experts: compare them with what was named for it, and
 * let the prefetcher learn. Before fetch_begin. */
void k3_prefetch_compare(struct flow *f, int32_t layer);
/* Prefetch for the layer after this one, whose own experts, if it has any, have
 * been requested. */
void k3_prefetch_ahead(struct flow *f, int32_t layer);
/* A pass is over: its seconds of compute, and the bytes it read. */
void k3_prefetch_pass(struct flow *f, double compute_s, uint64_t bytes,
                      uint64_t wasted_bytes);

#endif

/* k3_guess.h - experts of the next layer, read before its router has run.
 *
 * When a layer's own experts have been asked for, the predictor names experts
 * of the next MoE layer; the governor lets those through that are likely enough
 * and for which the drive has time; fetch reads them behind everything else.
 * `gate` asks the next layer's own router, on the residual after this layer's
 * attention. A guess never changes a result.
 */
#ifndef MODEL_K3_GUESS_H
#define MODEL_K3_GUESS_H

#include <stdint.h>

#include "model/why.h"
#include "sched/predict.h"

struct k3;
struct pass;
struct guesser;

/* NULL in *out when options.prefetch is "none" or there are no experts. */
int  k3_guess_open(struct guesser **out, struct k3 *k, struct why *why);
void k3_guess_close(struct guesser *g);
/* Who is asked instead of the model's own routers, for `gate`. */
void k3_guess_supply(struct guesser *g, predict_gate_fn *gate, void *arg);
/* Heap that k3_guess_open takes for a predictor of this name. */
uint64_t k3_guess_bytes(const char *name, uint32_t layers, uint32_t experts,
                        uint32_t hidden);

/* Another sequence begins in this place: what it will choose does not follow
 * from what the last one chose. */
void k3_guess_forget(struct k3 *k, uint32_t sequence);

/* The vectors of a layer went by: keep what `gate` will need. */
void k3_guess_layer(struct k3 *k, uint32_t layer);
/* The layer's routing is known, before its experts are asked for: judge what
 * was guessed for it and let the predictor learn. */
void k3_guess_judge(struct pass *p, uint32_t layer);
/* The layer's experts, if it has any, have been asked for: guess for the
 * next. */
void k3_guess_ahead(struct pass *p, uint32_t layer);
/* A pass is over: `compute_s` against what its bytes took. */
void k3_guess_pass(struct k3 *k, double compute_s, uint64_t bytes,
                   uint64_t wasted);

#endif

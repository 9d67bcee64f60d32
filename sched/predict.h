/* predict.h - guesses which experts a layer will choose, before its router ran.
 *
 * A guess costs a read when it is wrong and never changes a result: governor.h
 * decides which are worth issuing. A predictor sees what was chosen and names
 * experts of a layer, the likeliest first.
 *
 *     predict_open -> { predict_next(m), predict_saw(m) ... } -> predict_close
 *
 * Sequences are slots 0 .. sequences-1: predict_forget when another sequence
 * takes a slot. The rows of one sequence in one pass are seen in order, layer
 * by layer; predict_next speaks for the row after the last one seen of layer m.
 *
 * Bytes   none. Memory is bounded and allocated in predict_open: `table` takes
 *         layers x experts^2 (74 MB for K3), `path` at most PREDICT_PATH_BYTES.
 * Threads one owner at a time. Errors: only from predict_open.
 */
#ifndef SCHED_PREDICT_H
#define SCHED_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#define PREDICT_PATH_BYTES (256u << 20)

struct predict;

/* What the model's own router says of layer m for the sequence's last row:
 * at most `most` ids, the likeliest first, each with its chance. Returns how
 * many. */
typedef uint32_t predict_gate_fn(void *arg, uint32_t sequence, uint32_t layer,
                                 uint32_t *ids, float *confidence,
                                 uint32_t most);

/* -EINVAL: unknown name or an impossible shape. -ENOMEM. */
int  predict_open(struct predict **out, const char *name, uint32_t layers,
                  uint32_t experts, uint32_t top_k, uint32_t sequences);
void predict_close(struct predict *p);

/* Where `gate` gets its names from; until then it names nobody. The others
 * ignore it. */
void predict_supply(struct predict *p, predict_gate_fn *gate, void *arg);

/* A row of `sequence` chose `ids` [k] in `layer` of pass `step`, best first
 * (or in any order, if that is unknown). Steps never decrease. */
void predict_saw(struct predict *p, uint32_t sequence, uint32_t step,
                 uint32_t layer, const uint32_t *ids, uint32_t k);

/* Name at most `most` distinct experts of `layer`, the likeliest first, each
 * with a chance in 0 .. 1 that falls or stays. Returns how many. */
uint32_t predict_next(struct predict *p, uint32_t sequence, uint32_t layer,
                      uint32_t *ids, float *confidence, uint32_t most);

/* The slot's sequence is over. What was learned over all sequences stays. */
void predict_forget(struct predict *p, uint32_t sequence);

/* The i-th predictor and one line about it; NULL past the last. */
const char *predict_name(uint32_t i, const char **about);

#endif

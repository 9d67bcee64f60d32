/* sequence.h - the states of an engine's sequences, between passes: copied from
 * one to another, and as blocks that a file can hold (state_file.h).
 *
 * Threads  the engine's caller; no drafts wait for k3_accept.
 * Cost     a copy: one pass over the bytes of the positions so far.
 */
#ifndef MODEL_K3_SEQUENCE_H
#define MODEL_K3_SEQUENCE_H

#include <stdint.h>

#include "model/state/state.h"
#include "model/state/state_file.h"

struct k3;

/* Rows that have gone into the sequence. */
uint32_t k3_positions(const struct k3 *k, uint32_t sequence);
/* Make `to` what `from` is: it goes on with the same bits. */
void k3_copy(struct k3 *k, uint32_t to, uint32_t from);
/* The sequence's block; fill it only after k3_reset. */
uint8_t *k3_state(struct k3 *k, uint32_t sequence);
const struct state_shape *k3_state_shape(const struct k3 *k);
/* What states of this engine belong to. Reads samples of the shards
 * (ckpt/identity.h). */
int k3_state_owner(struct state_owner *out, const struct k3 *k,
                   struct error *error);

#endif

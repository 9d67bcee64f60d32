/* owned.h - the rows that this process computes, where several share a model.
 *
 * Each of N processes has a contiguous range of output rows of every matrix
 * (ckpt/cuts.h). It reads and multiplies those, and gets the other rows of a
 * product from the others (k3/shared.h). NULL everywhere: all rows.
 *
 * Threads  any: all functions are pure. Errors: none.
 */
#ifndef MODEL_CKPT_OWNED_H
#define MODEL_CKPT_OWNED_H

#include "model/ckpt/ckpt.h"
#include "model/ckpt/cuts.h"

struct owned {
    struct cuts cuts;
    uint32_t    part; /* ours */
};

/* Rows of a matrix; all of them where it is small. */
struct row_range owned_rows(const struct owned *o, enum tensor_role role,
                            const struct config *c, int64_t layer);
/* Rows of tensor `which` of any expert. */
struct row_range owned_expert_rows(const struct owned *o, uint32_t which,
                                   const struct config *c);
/* The heads of KDA and of MLA layers. */
struct row_range owned_kda_heads(const struct owned *o, const struct config *c);
struct row_range owned_mla_heads(const struct owned *o, const struct config *c);
/* Make the extents of an expert those of its owned rows; some may be empty. */
void owned_expert(const struct owned *o, const struct config *c,
                  struct extent e[EXPERT_TENSORS]);
/* Bytes of those. */
uint64_t owned_expert_bytes(const struct owned *o, const struct config *c);
/* Every process has rows of every expert: else a sentence can say so. */
bool owned_by_all(const struct cuts *cuts, const struct config *c);

#endif

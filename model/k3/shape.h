/* shape.h - what a model needs and what a budget gives it: tiles, sizes,
 * plan. The same for a session and for `sluice plan`, which has no weights.
 *
 *     k3_shape_of -> [k3_shape_plan] -> k3_shape_free, or flow_prepare
 *
 * Threads  one caller a shape.
 * Errors   a negative errno and a sentence; -ENOBUFS: below the floor.
 */
#ifndef MODEL_K3_SHAPE_H
#define MODEL_K3_SHAPE_H

#include "model/k3/k3.h"
#include "model/k3/tiles.h"
#include "model/k3/weights.h"
#include "model/state/state.h"

struct ckpt;

struct k3_shape {
    struct tiles      *tiles;
    struct plan_tile  *plan_tile;
    bool              *resident; /* [tiles->count] */
    struct state_shape state;
    struct plan_input  input; /* of the last plan */
    struct plan        plan;
    struct expert_form form;
    uint64_t           weights_bytes; /* of memory for what is coded */
    uint64_t           expert_frame_bytes;
    uint64_t           expert_read_bytes; /* of an expert, on average */
    uint32_t           drafts; /* max draft rows a pass, as planned */
    bool               guest_resident; /* its weights, as planned */
    const char        *prefetch; /* chosen, if the option is "auto" */
    uint32_t           packed_skip; /* the option, and what the drives add */
};

/* Options left 0 or NULL get their defaults. */
void k3_option_defaults(struct k3_options *o);

/* Build tiles and plan: of o->parts, or else of `ckpt`; NULL: from the config
 * alone, with the layout of published checkpoints. On success the caller frees
 * it, or takes over tiles (tiles_free), plan_tile and resident; on failure
 * nothing is left, but plan.floor_bytes is set for -ENOBUFS. *o but for what
 * the shape says: prefetch, drafts, packed_skip. */
int k3_shape_of(struct k3_shape *out, const struct ckpt *ckpt,
                const struct config *c, const struct k3_options *o,
                uint32_t threads, struct error *error);
void k3_shape_free(struct k3_shape *s);

/* Make the plan again, for other memory, rows, sequences, drafts, logits,
 * policy or prefetch. After -ENOBUFS the shape stays usable. */
int k3_shape_plan(struct k3_shape *s, const struct config *c,
                  const struct k3_options *o, uint32_t threads);

/* Bytes for the vectors of any layer. */
uint64_t k3_vectors_bytes(const struct tiles *t);

#endif

/* k3_shape.h - what a model needs and what a budget gives it: tiles, sizes,
 * plan. The same for a session and for `sluice plan`, which has no weights. */
#ifndef MODEL_K3_SHAPE_H
#define MODEL_K3_SHAPE_H

#include "model/k3.h"
#include "model/state.h"
#include "model/tiles.h"

struct ckpt;

struct k3_shape {
    struct tiles      *tiles;
    struct plan_tile  *plan_tile;
    bool              *resident; /* [tiles->count] */
    struct state_shape state;
    struct plan_input  input; /* of the last plan */
    struct plan        plan;
    uint64_t           expert_frame_bytes;
    uint32_t           drafts; /* as granted */
    const char        *prefetch; /* chosen, when the option says auto */
};

/* Options left 0 or NULL get their defaults. */
void k3_option_defaults(struct k3_options *o);

/* Build tiles and plan. `ckpt` NULL: from the config alone, with the layout of
 * published checkpoints. On success the caller frees it, or takes over tiles
 * (tiles_free), plan_tile and resident; on failure nothing is left, but
 * plan.floor_bytes is set for -ENOBUFS. */
int k3_shape_of(struct k3_shape *out, const struct ckpt *ckpt,
                const struct config *c, const struct k3_options *o,
                uint32_t threads, struct why *why);
void k3_shape_free(struct k3_shape *s);

/* Make the plan again, for other options of the same drives: memory, rows,
 * sequences, drafts, logits, policy, prefetch. -ENOBUFS as above, and the shape
 * stays usable. */
int k3_shape_plan(struct k3_shape *s, const struct config *c,
                  const struct k3_options *o, uint32_t threads);

/* Room for the vectors of any layer. */
uint64_t k3_smalls_bytes(const struct tiles *t);

#endif

/* tiles.h - the trunk cut into tiles, in the order of first use.
 *
 * A tile is what the ring holds: whole rows of one matrix, or the small tensors
 * of a layer together. Its bytes come from one or more extents of one file. The
 * order is the order in which model/k3_*.c asks for them, which never changes:
 *
 *   small   attention matrices   [router  latent down  shared gate, up, down
 *                                 latent up]  or  [mlp gate, up, down]
 *
 * for every layer, then the vectors of the model level, then lm_head.
 *
 *     tiles_build -> { tiles_of, tiles_piece } -> tiles_free
 */
#ifndef MODEL_TILES_H
#define MODEL_TILES_H

#include <stdint.h>

#include "model/config.h"
#include "model/tensors.h"
#include "model/why.h"
#include "sched/stream.h"

struct extent;

/* Where the tensors are: a checkpoint, or the layout that a config implies.
 * Like ckpt_tensor and ckpt_expert. */
struct tiles_source {
    int (*tensor)(const void *arg, int layer, enum tensor_role role,
                  struct extent *out);
    const void *arg;
};

/* Rows [row, row + rows) of a tensor, from byte `at` of the tile's frame. */
struct tile_piece {
    int32_t  layer;
    uint32_t role;
    uint32_t row, rows;
    uint32_t at;
    uint64_t row_bytes;
};

struct tiles {
    uint32_t            count, segment_count, piece_count;
    struct stream_tile *tile;
    struct segment     *segment;
    uint32_t           *first_piece; /* [count + 1] */
    struct tile_piece  *piece;
    /* [(layer + 1) * T_COUNT + role]: the first tile and how many there are;
     * small tensors have one, which they share. */
    uint32_t *first_tile, *tile_count;
    uint64_t  payload_bytes, largest_frame_bytes;
};

/* -ENOMEM, -ENOTSUP above 16 TiB or 4 GiB a tile, or what the source returns.
 */
int  tiles_build(struct tiles **out, const struct tiles_source *source,
                 const struct config *c, struct why *why);
void tiles_free(struct tiles *t);

/* The tiles of a tensor: first and count. */
static inline uint32_t tiles_of(const struct tiles *t, int layer,
                                enum tensor_role role, uint32_t *count)
{
    uint32_t i = (uint32_t)(layer + 1) * T_COUNT + role;
    *count = t->tile_count[i];
    return t->first_tile[i];
}

/* The piece of a tile that belongs to a tensor. */
const struct tile_piece *tiles_piece(const struct tiles *t, uint32_t tile,
                                     int layer, enum tensor_role role);

/* True for tensors that share the small tile of their layer; where the layer is
 * in several files it has one for each, those with vectors first, then f_a
 * before f_b. */
bool tiles_small(enum tensor_role role);
/* True for the small tensors that are matrices, used where they lie. */
bool tiles_in_place(uint32_t role);

#endif

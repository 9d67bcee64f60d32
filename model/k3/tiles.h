/* tiles.h - the trunk cut into tiles, in the order of the table of steps.
 *
 * A tile is a unit of reading, with a frame in the ring or a permanent one:
 * whole rows of one matrix, or the vectors of a layer together with the small
 * matrices that share their tile. Its bytes come from one or more extents of
 * one file. Where the rows of a matrix are in several files, on drives that
 * read at once, its tiles take turns. A piece is the part of a tile that one
 * step works with. Pieces are numbered by tile; a use numbers the same pieces
 * in the order of the steps. A tile is released after its last use.
 *
 *     tiles_build -> { the tables, tiles_hold_vectors } -> tiles_free
 *
 * Errors   -ENOMEM; -ENOTSUP above 16 TiB or 4 GiB a tile; what the source
 *          returns.
 * Threads  any; nothing changes after tiles_build but tile[].home and pieces
 *          that are kept decoded, which the session sets when it opens.
 */
#ifndef MODEL_K3_TILES_H
#define MODEL_K3_TILES_H

#include <stdint.h>

#include "model/ckpt/ckpt.h"
#include "model/ckpt/config.h"
#include "model/ckpt/error.h"
#include "model/k3/steps.h"
#include "sched/stream.h"

struct box_ref;

/* The coded form of a matrix (model/pack): blocks of block_rows rows, one after
 * the other in a file. */
struct tiles_coded {
    uint32_t file; /* as in struct extent */
    uint32_t block_rows, blocks;
    const struct box_ref *block; /* [blocks] */
};

enum { TILES_SLICES_MAX = 16 };

/* Rows [row, row + rows) of a matrix, in one file. */
struct tiles_slice {
    uint32_t row, rows;
    struct extent at;
    struct tiles_coded coded; /* blocks > 0: these are read instead */
};

/* Where the tensors are: a checkpoint, or the layout that follows from a config
 * (ckpt/layout.h). */
struct tiles_source {
    int (*tensor)(const void *arg, int layer, enum tensor_role role,
                  struct extent *out);
    const void *arg;
    /* The coded form, if any, of the tensor at an extent: it is read instead.
     * False: there is none. NULL: no tensor has one. */
    bool (*coded)(const void *arg, const struct extent *e, uint32_t rows,
                  uint32_t cols, struct tiles_coded *out);
    const void *coded_arg;
    const struct owned *owned; /* tiles are of these rows; NULL: of all */
    /* NULL, or the files that the rows of a matrix are divided over: fills
     * `out` in the order of rows and returns how many. Then `tensor` is asked
     * for vectors and small matrices only. */
    uint32_t (*slices)(const void *arg, int layer, enum tensor_role role,
                       struct tiles_slice out[TILES_SLICES_MAX]);
};

/* Rows [row, row + rows) of a tensor, from byte `at` of the tile's frame: as in
 * the checkpoint, or, if `block` is not NULL, as whole coded blocks. */
struct tile_piece {
    uint32_t tile, step;
    int32_t  layer;
    uint32_t role;
    uint32_t row, rows;
    uint32_t at;
    uint64_t row_bytes; /* of bf16 or f32: decoded */
    const struct box_ref *block; /* [blocks] */
    uint32_t block_rows, blocks;
    uint32_t first_block; /* number of block[0] among those of all pieces */
};

struct tiles {
    struct steps        steps;
    uint32_t            count, segment_count, piece_count;
    struct stream_tile *tile;    /* [count] */
    struct segment     *segment; /* [segment_count] */
    uint32_t           *first_piece; /* [count + 1] */
    struct tile_piece  *piece;       /* [piece_count], tile after tile */
    uint32_t           *use;         /* [piece_count]: piece, step after step */
    uint32_t           *first_use;   /* [steps.count + 1] */
    uint32_t           *last_use;    /* [count]: of a tile */
    uint64_t  payload_bytes, largest_frame_bytes;
    uint64_t  decoded_bytes; /* the same without coding */
    uint32_t  blocks;        /* coded ones, of all pieces */
};

int tiles_build(struct tiles **out, const struct tiles_source *source,
                const struct config *c, struct error *error);
void tiles_free(struct tiles *t);

static inline const struct tile_piece *tiles_use(const struct tiles *t,
                                                 uint32_t use)
{
    return &t->piece[t->use[use]];
}

static inline const struct tile_piece *tiles_first_piece(const struct tiles *t,
                                                         uint32_t tile)
{
    return &t->piece[t->first_piece[tile]];
}

/* True for a tile of a layer's vectors and small matrices. A layer has one for
 * each file that these are in: vectors first, then the matrices in the order of
 * their steps. */
bool tiles_hold_vectors(const struct tiles *t, uint32_t tile);
/* Bytes of a tile's payload without coding. */
uint64_t tiles_decoded_bytes(const struct tiles *t, uint32_t tile);

/* ---- a coded tile that is kept decoded ---- */

/* Bytes of a frame in which the tile is decoded in place: it is read to the
 * end, and its blocks are decoded to the beginning, one after the other, each
 * from a copy. */
uint64_t tiles_decoded_frame(const struct tiles *t, uint32_t tile);
/* Let it be read into such a frame. */
void tiles_read_for_decoding(struct tiles *t, uint32_t tile);
/* It has been decoded: from now on it is as if its rows had been read. */
void tiles_set_decoded(struct tiles *t, uint32_t tile);

#endif

/* part.h - X.part: one part's rows of what a shard X.safetensors has.
 *
 * It is a box (pack/box.h). Nothing but these files, the config and the
 * tokenizer is needed to run; with part 0 of all shards, the shards can be
 * written again byte by byte. Which rows are whose is the business of
 * ckpt/cuts.h.
 *
 *   in the head, from byte 64
 *     u64 source_bytes   i64 source_mtime_ns   u8 source_header_sha256[32]
 *     u8  model[32]                the identity of the model (ckpt/identity.h)
 *     u32 part, parts, shard, shards          numbers from 0, and how many
 *     u32 weight[16]                          of the cuts
 *     u32 matrices, blocks, smalls, experts, rests, spots     of the tables
 *
 *   tables, one after the other
 *     matrix[matrices]  by layer and role; a part may have none of a matrix
 *     rest[rests]       bytes of the shard that are in no tensor of the model:
 *                       its header, gaps, vision; in part 0 only
 *     small[smalls]     by layer and role: tensors whole in every part
 *     block[blocks]     a struct box_ref each, matrix after matrix
 *     spot[spots]       u64 source_at, u32 crc of SIDECAR_SPOT bytes there, 0
 *     expert[experts]   by number; none where the part has no rows
 *
 * The rows of a matrix are one run from a multiple of 4096: `coded`, blocks of
 * compute/u3.h; else the rows as they are, whose blocks only carry checksums.
 * The slice of an expert is a run from a multiple of 4096: the MXFP4 weights of
 * its rows of w1, w3 and w2, then an object of compute/s5.h with the scales of
 * its rows of w1, w2 and w3. The small tensors of a layer follow each other.
 *
 * Threads  Read-only after open.
 * Errors   as box.h; -EBADMSG for tables that contradict themselves, the head
 *          or the config. After open every place is inside the file and every
 *          count is what follows from the config and the cuts; blocks and
 *          objects are checked when they are read.
 */
#ifndef MODEL_PARTS_PART_H
#define MODEL_PARTS_PART_H

#include <stdint.h>

#include "model/ckpt/cuts.h"
#include "model/ckpt/identity.h"
#include "model/pack/sidecar.h"

#define PART_MAGIC "SLPART\r\n"

enum { PART_VERSION = 1, PART_REST_MAX = 1 << 20 };

struct part_head {
    uint64_t source_bytes;
    int64_t  source_mtime_ns;
    uint8_t  source_header_sha256[32];
    struct identity model;
    uint32_t part, parts, shard, shards;
    uint32_t weight[CUTS_PARTS_MAX];
    uint32_t matrices, blocks, smalls, experts, rests, spots;
};

struct part_matrix {
    int32_t  layer; /* or TENSOR_MODEL_LEVEL */
    uint32_t role;
    uint32_t row, rows, cols, block_rows;
    uint32_t first_block, block_count;
    uint64_t at, bytes;  /* of its blocks, in this file */
    uint32_t source_crc; /* of the rows, decoded */
    uint32_t coded;      /* 1: U3; 0: as they are */
    uint64_t patches;
};

struct part_small {
    int32_t  layer;
    uint32_t role;
    struct box_ref ref;
};

struct part_expert {
    struct sidecar_expert scales; /* its ref: the object */
    uint32_t number; /* (layer - first_dense) * experts + expert */
    uint32_t weights_crc; /* of the MXFP4 weights, before the object */
};

struct part_rest {
    uint64_t source_at;
    struct box_ref ref; /* at most PART_REST_MAX bytes */
};

struct part {
    char *path;
    struct box box;
    const struct part_head    *head;
    const struct part_matrix  *matrix;
    const struct box_ref      *block;
    const struct part_small   *small;
    const struct part_expert  *expert;
    const struct part_rest    *rest;
    const struct sidecar_spot *spot;
};

int  part_open(struct part **out, const char *path, const struct config *c,
               struct error *error);
void part_close(struct part *p);

struct cuts part_cuts(const struct part_head *h);
/* Rows of block b of a matrix. */
uint32_t part_block_rows(const struct part_matrix *m, uint32_t b);
/* Bytes of the tables that a head promises, in the order of the file: where
 * each begins, from the first. */
struct part_tables {
    uint64_t matrix, rest, small, block, spot, expert, bytes;
};
struct part_tables part_tables(const struct part_head *h);

/* "DIR/X.part" for the shard at `shard`; malloc'ed, or NULL. */
char *part_path(const char *dir, const char *shard);

/* Does a part belong to this shard? 0; -ESTALE and in the sentence what
 * differs; errnos. */
int part_bind(const struct part *p, const char *shard, struct error *error);

#endif

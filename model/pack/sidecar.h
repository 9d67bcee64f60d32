/* sidecar.h - X.pack: the coded weights of one shard X.safetensors.
 *
 * It stands alone: what it does not have is read from the shard. Tensors are
 * known by their place in the shard. Blocks are those of compute/u3.h, expert
 * objects three planes of compute/s5.h; the file is a box (box.h) with
 *
 *   in the head, from byte 64
 *     u64 source_bytes   i64 source_mtime_ns   u8 source_header_sha256[32]
 *     u32 tensors, blocks, experts, spots      of the tables
 *     u64 experts_at, expert_stride            expert i of the shard begins at
 *                                              experts_at + i * stride
 *     struct { u32 rows, cols } plane[3]       scales of w1, w2, w3
 *     u64 plane_at[3]                          from an expert's first byte
 *     u32 whole                                bits: 1 all matrices that can be
 *                                              coded are, 2 all experts are
 *     u32 zero
 *
 *   tables, one after the other
 *     tensor[tensors]  by place in the shard
 *     block[blocks]    a struct box_ref each, tensor after tensor
 *     expert[experts]
 *     spot[spots]      u64 source_at, u32 crc of SIDECAR_SPOT bytes there, 0
 *
 * The blocks of a tensor are one run from a multiple of 4096. An expert object
 * is a run from a multiple of 4096: the parts of w1, w2, w3, then their
 * patches.
 *
 * Binding  A sidecar belongs to a shard of the same size whose time of change
 *          is the same, or whose header and spots are: a fine-tune has the
 *          header of its base, its spots differ. Spots lie in the middle of
 *          every coded matrix and of some experts.
 * Threads  Read-only after open.
 * Errors   as box.h; -EBADMSG for tables that contradict themselves or the
 *          head; -ESTALE from sidecar_bind: of another shard. After open every
 *          place is inside the file and every count is what follows from
 *          shapes; blocks and objects are checked when they are read.
 */
#ifndef MODEL_PACK_SIDECAR_H
#define MODEL_PACK_SIDECAR_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/s5.h"
#include "model/ckpt/error.h"
#include "model/pack/box.h"

#define SIDECAR_MAGIC "SLPACK\r\n"

enum {
    SIDECAR_VERSION = 1,
    SIDECAR_SPOT = 4096,
    SIDECAR_TRUNK = 1,
    SIDECAR_SCALES = 2, /* bits of `whole` */
    SIDECAR_PLANES = 3,
};

struct plane_shape {
    uint32_t rows, cols;
};

struct sidecar_head {
    uint64_t source_bytes;
    int64_t  source_mtime_ns;
    uint8_t  source_header_sha256[32];
    uint32_t tensors, blocks, experts, spots;
    uint64_t experts_at, expert_stride;
    struct plane_shape plane[SIDECAR_PLANES];
    uint64_t plane_at[SIDECAR_PLANES];
    uint32_t whole, zero;
};

struct sidecar_tensor {
    uint64_t source_at, source_bytes; /* rows * cols * 2 */
    uint64_t at, bytes;               /* of its blocks, in this file */
    uint32_t rows, cols;
    uint32_t block_rows;              /* of each but the last */
    uint32_t first_block, block_count;
    uint32_t source_crc;              /* of the decoded bytes */
    uint64_t patches;
};

struct sidecar_expert {
    struct box_ref ref;
    uint32_t source_crc; /* of the three planes, one after the other */
    uint8_t  mode[SIDECAR_PLANES], zero;
    uint8_t  palette[SIDECAR_PLANES][4];
    uint16_t patches[SIDECAR_PLANES];
    uint8_t  pad[6];
};

struct sidecar_spot {
    uint64_t source_at;
    uint32_t crc, zero;
};

struct sidecar {
    char *path;
    struct box box;
    const struct sidecar_head   *head;
    const struct sidecar_tensor *tensor;
    const struct box_ref        *block;
    const struct sidecar_expert *expert;
    const struct sidecar_spot   *spot;
};

int  sidecar_open(struct sidecar **out, const char *path, struct error *error);
void sidecar_close(struct sidecar *s);

/* Does it belong to this shard? 0; -ESTALE and in the sentence what differs;
 * errnos. *moved: the time of change differs, the contents do not. */
int  sidecar_bind(const struct sidecar *s, const char *shard, bool *moved,
                  struct error *error);
/* What binds a sidecar to a shard, for the writer: fills source_* of `head` and
 * the crc of each spot, whose source_at is given. */
int  sidecar_source(struct sidecar_head *head, struct sidecar_spot *spot,
                    uint32_t spots, const char *shard, struct error *error);

/* The matrix that begins at this byte of the shard and has this shape, or
 * NULL. */
const struct sidecar_tensor *sidecar_find(const struct sidecar *s,
                                          uint64_t source_at, uint32_t rows,
                                          uint32_t cols);
/* The expert whose first byte this is, or NULL. */
const struct sidecar_expert *sidecar_find_expert(const struct sidecar *s,
                                                 uint64_t source_at);

/* Rows of block b of a tensor. */
uint32_t sidecar_block_rows(const struct sidecar_tensor *t, uint32_t b);
/* The coding of plane p, as s5.h has it. */
struct s5 sidecar_plane(const struct sidecar_expert *e, unsigned p);
/* The bytes that the object of an expert with these planes has. */
uint64_t sidecar_object_bytes(const struct sidecar_expert *e,
                              const struct plane_shape *plane);

/* "X.pack" in `dir` for the shard at `shard`; malloc'ed, or NULL. */
char *sidecar_path(const char *dir, const char *shard);
/* MODEL.packed, where sidecars are looked for; malloc'ed, or NULL. */
char *sidecar_folder(const char *model);

#endif

/* pack.h - make the sidecars of a model, a shard at a time.
 *
 *     pack_run (once)
 *
 * Bytes    A sidecar is a function of its shard and the config: the same from
 *          any number of threads, in one go or in several. Each appears whole
 *          or not at all (replace.h); one that is there, is bound to its shard
 *          and has what is asked for is kept. Every block is decoded and
 *          compared before it is written.
 * Threads  as many as `jobs` say read, code and write; one reads ahead of what
 *          another computes, so more than cores pay.
 * Errors   -ENOSPC before anything is written, where it can be foreseen;
 *          -EBUSY: another pack works on the folder; -ESTALE: a shard changed
 *          while it was read; -EIO: object.h; what ckpt.h and the files say.
 *          Sidecars finished by then stay.
 * Cost     reads the trunk and the scales, 196 GB for K3, writes .48 of that;
 *          about .5 core-seconds a GB read.
 */
#ifndef MODEL_PACK_PACK_H
#define MODEL_PACK_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/ckpt.h"
#include "model/pack/sidecar.h"
#include "model/pack/work.h"

struct kern;

struct pack_options {
    const char *model; /* folder */
    const char *to;    /* folder; made if it is not there */
    uint32_t    jobs;  /* 1..WORK_JOBS_MAX */
    uint32_t    what;  /* SIDECAR_TRUNK | SIDECAR_SCALES */
    const struct kern *kern;
    /* Above 0: the shards are holes, and so are the blocks made of them, with
     * this share of their bytes (assume.h); nothing is read. */
    double      assume_ratio;
    /* Called from one thread at a time; may be NULL. Bytes of the shards. */
    void      (*progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);
    void       *arg;
};

/* What became of the tensors of one role; T_COUNT: the scales of experts. */
struct pack_kind {
    uint64_t count, raw_bytes, stored_bytes, patches;
};

struct pack_facts {
    uint32_t made, kept, empty; /* shards; empty: nothing to code */
    uint64_t read_bytes, stored_bytes, file_bytes;
    double   seconds;
    struct pack_kind kind[T_COUNT + 1];
};

int pack_run(struct pack_facts *facts, const struct pack_options *o,
             const struct config *c, const struct ckpt *k,
             struct error *error);

/* ---- what of a shard is coded ---- */

struct pack_matrix {
    enum tensor_role role;
    uint32_t rows, cols, block_rows;
    uint64_t at; /* in the shard */
};

struct pack_shard {
    uint32_t matrices;
    struct pack_matrix *matrix; /* ascending by place */
    uint32_t experts;           /* 0: none, or not in equal steps */
    uint64_t experts_at, expert_stride;
    struct plane_shape plane[SIDECAR_PLANES];
    uint64_t plane_at[SIDECAR_PLANES];
};

/* Is a tensor of this role coded? bf16 matrices are, but those that are copied
 * out of their tile and the embedding, which is read by rows. */
bool pack_codes(enum tensor_role role, const struct config *c, int64_t layer);
/* The most bytes of bf16 in a block: 1 MiB, less in a small model, whose tiles
 * are smaller too. */
uint64_t pack_block_bytes(const struct config *c);
int  pack_shard_of(struct pack_shard *out, const struct config *c,
                   const struct ckpt *k, uint32_t file);
void pack_shard_free(struct pack_shard *s);

#endif

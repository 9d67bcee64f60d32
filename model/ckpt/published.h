/* published.h - the shards of a published checkpoint: which tensors each has,
 * in which order, and its safetensors header.
 *
 * The order is by dtype, F32 then BF16 then U8, and within a dtype by name,
 * byte by byte. So expert 10 comes before expert 2.
 *
 *     published_shard_init -> { tensor[], published_shard_header }
 *                          -> published_shard_free
 *
 * Threads  one caller a shard.
 * Errors   -ENOMEM.
 */
#ifndef MODEL_CKPT_PUBLISHED_H
#define MODEL_CKPT_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/ckpt/tensors.h"

struct published_tensor {
    char               name[TENSOR_NAME_BYTES];
    enum tensor_role   role; /* T_COUNT: of an expert, or vision */
    int64_t            layer; /* or TENSOR_MODEL_LEVEL */
    uint32_t           which; /* tensor of an expert; EXPERT_TENSORS: vision */
    enum tensor_dtype  dtype;
    struct tensor_dims dims;
    uint64_t           offset_bytes; /* from the end of the header */
    uint64_t           length_bytes;
};

struct published_shard {
    uint32_t             count;
    struct published_tensor *tensor; /* [count], in the order of the file */
    uint64_t             data_bytes;
    uint64_t             header_bytes; /* with the 8 of its length */
};

/* How many shards: one a layer, one for the tensors outside the layers, and
 * with vision two for projector and tower. */
uint32_t published_shard_count(const struct config *c, bool vision);
int published_shard_init(struct published_shard *s, const struct config *c,
                     uint32_t shard);
void published_shard_free(struct published_shard *s);
/* The header, header_bytes long, for free(); NULL: no memory. */
char *published_shard_header(const struct published_shard *s);

#endif

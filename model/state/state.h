/* state.h - the state of a sequence: one relocatable block.
 *
 *   header | KDA states | convolution histories | latent cache
 *
 * KDA layers keep S [heads][dim][dim] and the last kernel-1 inputs of the three
 * convolutions; MLA layers keep one row of kv_rank + rope values a position.
 * All float32. The block holds offsets only, so it may be copied and moved.
 * Where several processes share a model, each keeps its own heads of KDA and
 * the whole latent cache.
 *
 * Threads  one caller a block.
 * Errors   none.
 */
#ifndef MODEL_STATE_STATE_H
#define MODEL_STATE_STATE_H

#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/ckpt/cuts.h"

enum { STATE_VERSION = 1 };

struct state_share;

struct state_header {
    char     magic[8]; /* "SLUICEST" */
    uint32_t version;
    uint32_t positions; /* rows that have updated it */
    uint64_t bytes;     /* the whole block */
    uint32_t context;   /* room of the latent cache, in positions */
    uint32_t kda_layers, mla_layers;
    uint8_t  reserved[28]; /* zero */
};
_Static_assert(sizeof(struct state_header) == 64, "on disk");

/* Where the parts lie, for one config and context. */
struct state_shape {
    uint64_t bytes;
    uint64_t kda_offset, kda_bytes;   /* a layer: [heads][dim][dim] */
    uint64_t conv_offset, conv_bytes; /* a layer: [3][kernel-1][width] */
    uint64_t mla_offset, mla_bytes;   /* a layer: [context][kv_rank+rope] */
    uint32_t context, kda_layers, mla_layers;
    uint32_t conv_history; /* kernel - 1 */
    uint32_t first, width; /* channels [first, first + width) of KDA */
    const struct state_share *share; /* state_share.h; NULL: all heads */
};

void state_shape(struct state_shape *out, const struct config *c,
                 uint32_t context);
/* Only these heads of KDA, and the latent cache. */
void state_shape_of(struct state_shape *out, const struct config *c,
                    uint32_t context, struct row_range kda_heads);
/* Make `block` an empty sequence. The latent cache is not touched. */
void state_reset(uint8_t *block, const struct state_shape *shape);

static inline struct state_header *state_header(uint8_t *block)
{
    return (struct state_header *)(void *)block;
}

/* S of the index-th KDA layer. */
static inline float *state_kda(uint8_t *block, const struct state_shape *s,
                               uint32_t index)
{
    return (float *)(void *)(block + s->kda_offset + index * s->kda_bytes);
}

/* History `which` (0 q, 1 k, 2 v) of the index-th KDA layer, oldest first. */
static inline float *state_conv(uint8_t *block, const struct state_shape *s,
                                uint32_t index, uint32_t which)
{
    float *layer =
        (float *)(void *)(block + s->conv_offset + index * s->conv_bytes);
    return layer + (uint64_t)which * s->conv_history * s->width;
}

/* The cache of the index-th MLA layer. */
static inline float *state_mla(uint8_t *block, const struct state_shape *s,
                               uint32_t index)
{
    return (float *)(void *)(block + s->mla_offset + index * s->mla_bytes);
}

#endif

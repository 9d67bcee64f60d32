/* config.h - the shape of a DSpark drafter, from its config.json.
 *
 * Two drafters are published for Kimi K3. They differ in their attention:
 *
 *     DSPARK_GQA   architecture DSparkDraftModel (RadixArk)
 *     DSPARK_MLA   architecture K3DSparkModel (Inferact)
 *
 * A field is looked up in the root, then in dspark_config, then in
 * dflash_config. Anything that would change what the drafter computes, and that
 * this program does not compute, is refused.
 *
 * Threads  read-only after load. Nothing is allocated.
 * Errors   as config.h of the model: errnos of the file; -EBADMSG: a field is
 *          missing, malformed or does not fit the model; -ENOTSUP: a value that
 *          is not supported. The sentence names file and field.
 */
#ifndef MODEL_DSPARK_CONFIG_H
#define MODEL_DSPARK_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/config.h"

enum {
    DSPARK_BLOCK = 7,        /* rows of a block, and ids that it proposes */
    DSPARK_TAPS_MAX = 16,
    DSPARK_LAYERS_MAX = 64,
    DSPARK_ROPE_MAX = 256,   /* rotated values of a head */
};

enum dspark_kind { DSPARK_GQA, DSPARK_MLA };

/* Which hidden states of the model it reads. */
enum dspark_stream {
    DSPARK_STREAM_AUTO,   /* that of the kind, or what the config says */
    DSPARK_STREAM_PREFIX, /* the running sum after a layer */
    DSPARK_STREAM_MIXED   /* what the layer after it reads, before its norm */
};

struct dspark_rope {
    bool   yarn; /* else plain */
    double theta, factor, original, beta_fast, beta_slow;
    double mscale, mscale_all; /* 0: absent */
    double attention_factor;   /* 0: absent */
};

struct dspark_config {
    enum dspark_kind kind;
    uint32_t hidden, vocab, layers, inter;
    uint32_t taps, tap[DSPARK_TAPS_MAX]; /* layers of the model, ascending */
    bool     mixed;   /* DSPARK_STREAM_MIXED */
    bool     tap_norm; /* each tap is normed before it is fused */
    uint32_t mask_id, rank; /* rank: of the Markov head */
    uint32_t heads;
    uint32_t kv_heads, head_dim;            /* GQA */
    uint32_t q_rank, kv_rank, nope, rope, v_dim; /* MLA */
    float    eps;
    struct dspark_rope rotation;
};

/* Read dir/config.json of a drafter for the model `k3`. */
int dspark_config_load(struct dspark_config *out, const char *dir,
                       const struct config *k3, enum dspark_stream stream,
                       struct error *error);
/* "prefix", "attn_res", NULL; else -EINVAL. */
int dspark_stream_named(enum dspark_stream *out, const char *name);
/* "RadixArk (GQA)", "Inferact (MLA)". */
const char *dspark_kind_name(enum dspark_kind kind);

/* Values of a head that are rotated. */
static inline uint32_t dspark_rotated(const struct dspark_config *c)
{
    return c->kind == DSPARK_MLA ? c->rope : c->head_dim;
}

/* Floats that a layer keeps of a position. */
static inline uint32_t dspark_kept(const struct dspark_config *c)
{
    return c->kind == DSPARK_MLA ? c->kv_rank + c->rope
                                 : 2 * c->kv_heads * c->head_dim;
}

#endif

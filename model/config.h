/* config.h - the shape of a model, from its config.json, or a refusal.
 *
 * Nothing is guessed: a required field that is missing, a field whose meaning
 * this program does not serve and a number out of its range are errors that
 * name the field. Every number is bounded: rows, columns and widths fit in 32
 * bits, and the bytes of all tensors, states and caches in 62.
 *
 *     config_load -> { fields, config_is_* } -> config_free
 *
 * The published layout is nested (text_config, and linear_attn_config in it).
 * A flat file, where everything stands in the root, is served too, with the
 * names kda_num_heads, kda_head_dim, situ_beta, situ_linear_beta, and
 * short_conv_kernel_size, gate_lower_bound, full_attn_layers beside the rest.
 *
 * Bytes    is_mla belongs to the struct and goes with config_free.
 * Threads  read-only after load.
 * Errors   -ENOENT and other errnos of the file; -EBADMSG for what is not
 *          JSON, missing, malformed or out of range; -ENOTSUP for a meaning
 *          not served; -ENOMEM.
 */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "model/why.h"

struct json_t;

enum {
    CONFIG_MXFP4_GROUP = 32, /* weights that share a scale byte */
    CONFIG_EXPERTS_MAX = 1 << 22, /* layers times experts */
};

struct config {
    uint32_t hidden;         /* hidden_size */
    uint32_t layers;         /* num_hidden_layers */
    uint32_t vocab;          /* vocab_size */
    uint32_t dense_inter;    /* intermediate_size: MLP of the dense layers */
    uint32_t attn_res_block; /* attn_res_block_size, layers a snapshot */
    uint32_t heads;          /* num_attention_heads: MLA */
    uint32_t q_rank;         /* q_lora_rank */
    uint32_t kv_rank;        /* kv_lora_rank */
    uint32_t nope;           /* qk_nope_head_dim */
    uint32_t rope;           /* qk_rope_head_dim; never rotated */
    uint32_t v_dim;          /* v_head_dim */
    uint32_t kda_heads;      /* linear_attn_config.num_heads */
    uint32_t kda_dim;        /* linear_attn_config.head_dim, keys = values */
    uint32_t conv_kernel;    /* linear_attn_config.short_conv_kernel_size */
    uint32_t experts;        /* num_experts, a layer */
    uint32_t top_k;          /* num_experts_per_token */
    uint32_t shared_experts; /* num_shared_experts: factor on moe_inter */
    uint32_t moe_inter;      /* moe_intermediate_size */
    uint32_t latent;         /* routed_expert_hidden_size */
    uint32_t first_dense;    /* first_k_dense_replace */
    uint32_t max_positions;  /* max_position_embeddings */
    uint32_t bos_id, eos_id, pad_id;
    uint32_t media_pad_id;   /* media_placeholder_token_id; UINT32_MAX when a
                                flat file has none */
    float    rms_eps;        /* rms_norm_eps */
    float    situ_b1, situ_b2; /* activation_situ_beta, _linear_beta */
    float    gate_lower_bound; /* of the KDA decay, negative */
    float    routed_scaling;   /* routed_scaling_factor */
    float    mla_latent_eps;   /* 1e-6; not in the file */
    bool     renormalize;      /* moe_renormalize */
    bool     latent_norm;      /* latent_moe_use_norm */
    bool    *is_mla;           /* [layers], from layer 0 */
};

/* Read dir/config.json; nothing else has to be in the folder. On failure *out
 * is all zero and `why` names the file and the field. */
int config_load(struct config *out, const char *dir, struct why *why);
/* The same from parsed JSON; `name` stands for the file in sentences. */
int config_parse(struct config *out, struct json_t *root, const char *name,
                 struct why *why);
void config_free(struct config *c);

static inline bool config_is_mla(const struct config *c, uint32_t layer)
{
    return c->is_mla[layer];
}

static inline bool config_is_dense(const struct config *c, uint32_t layer)
{
    return layer < c->first_dense;
}

/* Channels of KDA: heads times dim. */
static inline uint32_t config_kda_width(const struct config *c)
{
    return c->kda_heads * c->kda_dim;
}

/* Width of the one MLP that the shared experts are. */
static inline uint32_t config_shared_inter(const struct config *c)
{
    return c->shared_experts * c->moe_inter;
}

/* Layers with routed experts, first_dense .. layers-1: at least one. */
static inline uint32_t config_moe_layers(const struct config *c)
{
    return c->layers - c->first_dense;
}

#endif

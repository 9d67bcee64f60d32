/* config.h - the shape of a model, from its config.json.
 *
 * There are no defaults. A field that is missing, out of its range, or has a
 * value that this program does not support is an error that names the field.
 * The ranges are such that rows, columns and widths fit in 32 bits, and the
 * bytes of all tensors, states and caches in 62.
 *
 *     config_load -> { fields, config_is_* } -> config_free
 *
 * The published file is nested: text_config, and linear_attn_config in it. A
 * flat file, with all fields in the root, is read too. There the fields of
 * linear_attn_config are kda_num_heads, kda_head_dim, short_conv_kernel_size,
 * gate_lower_bound and full_attn_layers, and the activation's are situ_beta and
 * situ_linear_beta.
 *
 * Bytes    is_mla is allocated; config_free frees it.
 * Threads  read-only after load.
 * Errors   errnos of the file; -EBADMSG: not JSON, or a field missing,
 *          malformed or out of range; -ENOTSUP: a value that is not supported;
 *          -ENOMEM.
 */
#ifndef MODEL_CKPT_CONFIG_H
#define MODEL_CKPT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/error.h"

struct json_t;

enum {
    CONFIG_CONV_KERNEL_MAX = 16, /* taps of the short convolution */
    CONFIG_SOURCES_MAX = 64, /* that a mix over depth adds: snapshots and the
                              * running sum */
    CONFIG_MXFP4_GROUP = 32, /* weights with one scale byte */
    CONFIG_EXPERTS_MAX = 1 << 22, /* layers times experts */
};

/* Counts and widths in values, unless noted; beside each its name in the
 * file. */
#define CONFIG_NO_ID UINT32_MAX
enum { CONFIG_ENDS_MAX = 16 };

struct config {
    uint32_t hidden;         /* hidden_size */
    uint32_t layers;         /* num_hidden_layers */
    uint32_t vocab;          /* vocab_size */
    uint32_t dense_inter;    /* intermediate_size: MLP of the dense layers */
    uint32_t attn_res_block; /* attn_res_block_size: layers from one
                                snapshot to the next */
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
    uint32_t shared_experts; /* num_shared_experts: moe_inter times this is
                                the width of the one shared MLP */
    uint32_t moe_inter;      /* moe_intermediate_size */
    uint32_t latent;         /* routed_expert_hidden_size */
    uint32_t first_dense;    /* first_k_dense_replace */
    uint32_t bos_id, pad_id; /* CONFIG_NO_ID: the file has none; so below */
    uint32_t ends, end_id[CONFIG_ENDS_MAX]; /* eos_token_id, one or a list */
    uint32_t eos_id;         /* the first of them */
    uint32_t media_pad_id;   /* media_placeholder_token_id */
    float    rms_eps;        /* rms_norm_eps */
    float    situ_b1, situ_b2; /* activation_situ_beta, _linear_beta */
    float    gate_lower_bound; /* of the KDA decay, negative */
    float    routed_scaling;   /* routed_scaling_factor */
    float    mla_latent_eps;   /* 1e-6; not in the file */
    bool     renormalize;      /* moe_renormalize */
    bool     latent_norm;      /* latent_moe_use_norm */
    bool    *is_mla;           /* [layers], from layer 0 */
};

/* Read dir/config.json, and no other file. On failure *out is all zero. */
int config_load(struct config *out, const char *dir, struct error *error);
/* The same from parsed JSON; `name` is the file's name in sentences. */
int config_parse(struct config *out, struct json_t *root, const char *name,
                 struct error *error);
void config_free(struct config *c);

static inline bool config_is_mla(const struct config *c, uint32_t layer)
{
    return c->is_mla[layer];
}

static inline bool config_is_dense(const struct config *c, uint32_t layer)
{
    return layer < c->first_dense;
}

/* Channels of KDA: kda_heads x kda_dim. */
static inline uint32_t config_kda_width(const struct config *c)
{
    return c->kda_heads * c->kda_dim;
}

/* Width of the one MLP that the shared experts form. */
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

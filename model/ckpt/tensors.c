#include "model/ckpt/tensors.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Which layers have it. */
enum where { EVERY, KDA, MLA, DENSE, MOE, MODEL };

/* How the two dimensions are stored. */
enum form { VECTOR, ROW, MATRIX, TAPS };

/* What a dimension is. */
enum dim {
    ONE,
    HIDDEN,
    KDA_WIDTH,
    KDA_HEADS,
    KDA_DIM,
    CONV,
    ATTN_WIDTH, /* kda_width, or MLA heads times v_dim */
    Q_RANK,
    Q_WIDTH,
    KV_RANK,
    KV_RANK_ROPE,
    KV_WIDTH,
    DENSE_INTER,
    EXPERTS,
    LATENT,
    SHARED_INTER,
    VOCAB,
};

static const struct tensor {
    const char       *suffix;
    enum where        where;
    enum tensor_dtype dtype;
    enum form         form;
    enum dim          rows, cols;
} tensors[T_COUNT] = {
#define SELF "self_attn."
#define MOE_ "block_sparse_moe."
#define SHARED MOE_ "shared_experts."
#define ROOT "language_model.model."
    [T_INPUT_NORM] = { "input_layernorm.weight", EVERY, DTYPE_BF16, VECTOR, ONE,
                       HIDDEN },
    [T_POST_NORM] = { "post_attention_layernorm.weight", EVERY, DTYPE_BF16,
                      VECTOR, ONE, HIDDEN },
    [T_ATTN_RES_NORM] = { "self_attention_res_norm.weight", EVERY, DTYPE_BF16,
                          VECTOR, ONE, HIDDEN },
    [T_ATTN_RES_PROJ] = { "self_attention_res_proj.weight", EVERY, DTYPE_BF16,
                          ROW, ONE, HIDDEN },
    [T_MLP_RES_NORM] = { "mlp_res_norm.weight", EVERY, DTYPE_BF16, VECTOR, ONE,
                         HIDDEN },
    [T_MLP_RES_PROJ] = { "mlp_res_proj.weight", EVERY, DTYPE_BF16, ROW, ONE,
                         HIDDEN },
    [T_G] = { SELF "g_proj.weight", EVERY, DTYPE_BF16, MATRIX, ATTN_WIDTH,
              HIDDEN },
    [T_O] = { SELF "o_proj.weight", EVERY, DTYPE_BF16, MATRIX, HIDDEN,
              ATTN_WIDTH },
    [T_Q] = { SELF "q_proj.weight", KDA, DTYPE_BF16, MATRIX, KDA_WIDTH,
              HIDDEN },
    [T_K] = { SELF "k_proj.weight", KDA, DTYPE_BF16, MATRIX, KDA_WIDTH,
              HIDDEN },
    [T_V] = { SELF "v_proj.weight", KDA, DTYPE_BF16, MATRIX, KDA_WIDTH,
              HIDDEN },
    [T_FA] = { SELF "f_a_proj.weight", KDA, DTYPE_BF16, MATRIX, KDA_DIM,
               HIDDEN },
    [T_FB] = { SELF "f_b_proj.weight", KDA, DTYPE_BF16, MATRIX, KDA_WIDTH,
               KDA_DIM },
    [T_B] = { SELF "b_proj.weight", KDA, DTYPE_BF16, MATRIX, KDA_HEADS,
              HIDDEN },
    [T_QCONV] = { SELF "q_conv1d.weight", KDA, DTYPE_F32, TAPS, KDA_WIDTH,
                  CONV },
    [T_KCONV] = { SELF "k_conv1d.weight", KDA, DTYPE_F32, TAPS, KDA_WIDTH,
                  CONV },
    [T_VCONV] = { SELF "v_conv1d.weight", KDA, DTYPE_F32, TAPS, KDA_WIDTH,
                  CONV },
    [T_A_LOG] = { SELF "A_log", KDA, DTYPE_F32, VECTOR, ONE, KDA_HEADS },
    [T_DT_BIAS] = { SELF "dt_bias", KDA, DTYPE_F32, VECTOR, ONE, KDA_WIDTH },
    [T_O_NORM] = { SELF "o_norm.weight", KDA, DTYPE_F32, VECTOR, ONE,
                   KDA_DIM },
    [T_QA] = { SELF "q_a_proj.weight", MLA, DTYPE_BF16, MATRIX, Q_RANK,
               HIDDEN },
    [T_QA_NORM] = { SELF "q_a_layernorm.weight", MLA, DTYPE_BF16, VECTOR, ONE,
                    Q_RANK },
    [T_QB] = { SELF "q_b_proj.weight", MLA, DTYPE_BF16, MATRIX, Q_WIDTH,
               Q_RANK },
    [T_KVA] = { SELF "kv_a_proj_with_mqa.weight", MLA, DTYPE_BF16, MATRIX,
                KV_RANK_ROPE, HIDDEN },
    [T_KVA_NORM] = { SELF "kv_a_layernorm.weight", MLA, DTYPE_BF16, VECTOR, ONE,
                     KV_RANK },
    [T_KVB] = { SELF "kv_b_proj.weight", MLA, DTYPE_BF16, MATRIX, KV_WIDTH,
                KV_RANK },
    [T_GATE_PROJ] = { "mlp.gate_proj.weight", DENSE, DTYPE_BF16, MATRIX,
                      DENSE_INTER, HIDDEN },
    [T_UP_PROJ] = { "mlp.up_proj.weight", DENSE, DTYPE_BF16, MATRIX,
                    DENSE_INTER, HIDDEN },
    [T_DOWN_PROJ] = { "mlp.down_proj.weight", DENSE, DTYPE_BF16, MATRIX, HIDDEN,
                      DENSE_INTER },
    [T_ROUTER] = { MOE_ "gate.weight", MOE, DTYPE_BF16, MATRIX, EXPERTS,
                   HIDDEN },
    [T_ROUTER_BIAS] = { MOE_ "gate.e_score_correction_bias", MOE, DTYPE_F32,
                        VECTOR, ONE, EXPERTS },
    [T_LATENT_DOWN] = { MOE_ "routed_expert_down_proj.weight", MOE, DTYPE_BF16,
                        MATRIX, LATENT, HIDDEN },
    [T_LATENT_UP] = { MOE_ "routed_expert_up_proj.weight", MOE, DTYPE_BF16,
                      MATRIX, HIDDEN, LATENT },
    [T_LATENT_NORM] = { MOE_ "routed_expert_norm.weight", MOE, DTYPE_BF16,
                        VECTOR, ONE, LATENT },
    [T_SHARED_GATE] = { SHARED "gate_proj.weight", MOE, DTYPE_BF16, MATRIX,
                        SHARED_INTER, HIDDEN },
    [T_SHARED_UP] = { SHARED "up_proj.weight", MOE, DTYPE_BF16, MATRIX,
                      SHARED_INTER, HIDDEN },
    [T_SHARED_DOWN] = { SHARED "down_proj.weight", MOE, DTYPE_BF16, MATRIX,
                        HIDDEN, SHARED_INTER },
    [T_EMBED] = { ROOT "embed_tokens.weight", MODEL, DTYPE_BF16, MATRIX, VOCAB,
                  HIDDEN },
    [T_HEAD] = { "language_model.lm_head.weight", MODEL, DTYPE_BF16, MATRIX,
                 VOCAB, HIDDEN },
    [T_NORM] = { ROOT "norm.weight", MODEL, DTYPE_BF16, VECTOR, ONE, HIDDEN },
    [T_OUT_RES_NORM] = { ROOT "output_attn_res_norm.weight", MODEL, DTYPE_BF16,
                         VECTOR, ONE, HIDDEN },
    [T_OUT_RES_PROJ] = { ROOT "output_attn_res_proj.weight", MODEL, DTYPE_BF16,
                         ROW, ONE, HIDDEN },
};

const char *tensor_dtype_name(enum tensor_dtype dtype)
{
    static const char *const names[DTYPE_COUNT] = { "F32", "BF16", "U8" };
    return names[dtype];
}

uint32_t tensor_dtype_bytes(enum tensor_dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_BF16 ? 2 : 1;
}

enum tensor_dtype tensor_dtype(enum tensor_role role)
{
    return tensors[role].dtype;
}

const char *tensor_suffix(enum tensor_role role)
{
    return tensors[role].suffix;
}

bool tensor_in_layer(enum tensor_role role, const struct config *c,
                     int64_t layer)
{
    const enum where where = tensors[role].where;
    if (layer < 0 || where == MODEL)
        return layer < 0 && where == MODEL;
    assert(layer < c->layers);
    if (role == T_LATENT_NORM && !c->latent_norm)
        return false;
    switch (where) {
    case KDA:
        return !config_is_mla(c, (uint32_t)layer);
    case MLA:
        return config_is_mla(c, (uint32_t)layer);
    case DENSE:
        return config_is_dense(c, (uint32_t)layer);
    case MOE:
        return !config_is_dense(c, (uint32_t)layer);
    default:
        return true;
    }
}

/* Bounded by config.c: every product is below 2^32. */
static uint32_t measure(enum dim dim, const struct config *c, int64_t layer)
{
    switch (dim) {
    case ONE:
        return 1;
    case HIDDEN:
        return c->hidden;
    case KDA_WIDTH:
        return config_kda_width(c);
    case KDA_HEADS:
        return c->kda_heads;
    case KDA_DIM:
        return c->kda_dim;
    case CONV:
        return c->conv_kernel;
    case ATTN_WIDTH:
        return config_is_mla(c, (uint32_t)layer) ? c->heads * c->v_dim
                                                 : config_kda_width(c);
    case Q_RANK:
        return c->q_rank;
    case Q_WIDTH:
        return c->heads * (c->nope + c->rope);
    case KV_RANK:
        return c->kv_rank;
    case KV_RANK_ROPE:
        return c->kv_rank + c->rope;
    case KV_WIDTH:
        return c->heads * (c->nope + c->v_dim);
    case DENSE_INTER:
        return c->dense_inter;
    case EXPERTS:
        return c->experts;
    case LATENT:
        return c->latent;
    case SHARED_INTER:
        return config_shared_inter(c);
    case VOCAB:
        return c->vocab;
    }
    return 0;
}

void tensor_shape(enum tensor_role role, const struct config *c, int64_t layer,
                  uint32_t *rows, uint32_t *cols)
{
    *rows = measure(tensors[role].rows, c, layer);
    *cols = measure(tensors[role].cols, c, layer);
}

void tensor_dims(enum tensor_role role, const struct config *c, int64_t layer,
                 struct tensor_dims *out)
{
    uint32_t rows, cols;
    tensor_shape(role, c, layer, &rows, &cols);
    switch (tensors[role].form) {
    case VECTOR:
        *out = (struct tensor_dims){ 1, { cols } };
        break;
    case TAPS:
        *out = (struct tensor_dims){ 3, { rows, 1, cols } };
        break;
    default:
        *out = (struct tensor_dims){ 2, { rows, cols } };
    }
}

void tensor_name(char *out, enum tensor_role role, int64_t layer)
{
    if (layer < 0)
        snprintf(out, TENSOR_NAME_BYTES, "%s", tensors[role].suffix);
    else
        snprintf(out, TENSOR_NAME_BYTES, TENSOR_LAYER_PREFIX "%u.%s",
                 (unsigned)layer, tensors[role].suffix);
}

enum tensor_role tensor_find(const char *suffix, bool model_level)
{
    for (int r = 0; r < T_COUNT; r++)
        if ((tensors[r].where == MODEL) == model_level &&
            !strcmp(tensors[r].suffix, suffix))
            return (enum tensor_role)r;
    return T_COUNT;
}

void expert_shape(uint32_t which, const struct config *c, uint32_t *rows,
                  uint32_t *cols)
{
    assert(which < EXPERT_TENSORS);
    bool down = which / 2 == 1;
    uint32_t in = down ? c->moe_inter : c->latent;
    *rows = down ? c->latent : c->moe_inter;
    *cols = which % 2 ? in / CONFIG_MXFP4_GROUP : in / 2;
}

const char *expert_suffix(uint32_t which)
{
    static const char *const suffixes[EXPERT_TENSORS] = {
        "w1.weight_packed", "w1.weight_scale",  "w2.weight_packed",
        "w2.weight_scale",  "w3.weight_packed", "w3.weight_scale",
    };
    return suffixes[which];
}

void expert_name(char *out, uint32_t layer, uint32_t expert, uint32_t which)
{
    snprintf(out, TENSOR_NAME_BYTES,
             TENSOR_LAYER_PREFIX "%u." TENSOR_EXPERT_PREFIX "%u.%s", layer,
             expert, expert_suffix(which));
}

uint64_t expert_bytes(const struct config *c)
{
    uint64_t sum = 0;
    for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
        uint32_t rows, cols;
        expert_shape(which, c, &rows, &cols);
        sum += (uint64_t)rows * cols;
    }
    return sum;
}

/* tensors.h - the table of tensors: role to name, dtype and shape.
 *
 * The reader checks files against it; the writer of synthetic checkpoints makes
 * files from it. A linear layer is stored [out, in], row-major: y = W x.
 * Vectors have one row. The six tensors of an expert are numbered as they are
 * in the file, in the order of their names: w1 (gate), w2 (down), w3 (up), of
 * each first the packed weights, then the scales.
 *
 * Threads  any: all functions are pure. Errors: none.
 */
#ifndef MODEL_CKPT_TENSORS_H
#define MODEL_CKPT_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/config.h"

enum tensor_dtype { DTYPE_F32, DTYPE_BF16, DTYPE_U8, DTYPE_COUNT };

enum tensor_role {
    /* every layer */
    T_INPUT_NORM,
    T_POST_NORM,
    T_ATTN_RES_NORM,
    T_ATTN_RES_PROJ,
    T_MLP_RES_NORM,
    T_MLP_RES_PROJ,
    T_G, /* both kinds of attention, with different shapes */
    T_O,
    /* KDA layers */
    T_Q,
    T_K,
    T_V,
    T_FA,
    T_FB,
    T_B,
    T_QCONV, /* rows: channels; cols: taps, the last for the current input */
    T_KCONV,
    T_VCONV,
    T_A_LOG, /* in the file, may be longer than kda_heads */
    T_DT_BIAS,
    T_O_NORM,
    /* MLA layers */
    T_QA,
    T_QA_NORM,
    T_QB,
    T_KVA,
    T_KVA_NORM,
    T_KVB,
    /* dense layers */
    T_GATE_PROJ,
    T_UP_PROJ,
    T_DOWN_PROJ,
    /* MoE layers */
    T_ROUTER,
    T_ROUTER_BIAS,
    T_LATENT_DOWN,
    T_LATENT_UP,
    T_LATENT_NORM, /* only with latent_norm */
    T_SHARED_GATE,
    T_SHARED_UP,
    T_SHARED_DOWN,
    /* model level */
    T_EMBED,
    T_HEAD,
    T_NORM,
    T_OUT_RES_NORM,
    T_OUT_RES_PROJ,
    T_COUNT
};

enum {
    TENSOR_MODEL_LEVEL = -1, /* the layer of T_EMBED .. T_OUT_RES_PROJ */
    TENSOR_NAME_BYTES = 128, /* every name fits, with its NUL */
    TENSOR_DIMS_MAX = 4,
    EXPERT_TENSORS = 6,
    A_LOG_MAX = 1 << 16, /* values of a stored A_log */
};

struct tensor_dims {
    uint32_t count;                 /* of dimensions */
    uint64_t size[TENSOR_DIMS_MAX]; /* [count] values */
};

/* "F32", "BF16", "U8", as safetensors spells them. */
const char *tensor_dtype_name(enum tensor_dtype dtype);
uint32_t tensor_dtype_bytes(enum tensor_dtype dtype);

enum tensor_dtype tensor_dtype(enum tensor_role role);
/* The name after "language_model.model.layers.L."; the whole name for tensors
 * outside the layers. */
const char *tensor_suffix(enum tensor_role role);
/* Whether layer `layer`, or TENSOR_MODEL_LEVEL, has such a tensor. */
bool tensor_in_layer(enum tensor_role role, const struct config *c,
                     int64_t layer);
/* Rows and columns as a matrix, of a role that the layer has: those of T_G and
 * T_O depend on its kind. T_A_LOG has the kda_heads values that are used. */
void tensor_shape(enum tensor_role role, const struct config *c, int64_t layer,
                  uint32_t *rows, uint32_t *cols);
/* The dimensions as stored: [n], [1, n], [n, 1, taps], [rows, cols]. */
void tensor_dims(enum tensor_role role, const struct config *c, int64_t layer,
                 struct tensor_dims *out);
/* The whole name, into out [TENSOR_NAME_BYTES]. */
void tensor_name(char *out, enum tensor_role role, int64_t layer);
/* The role of a suffix, or T_COUNT. */
enum tensor_role tensor_find(const char *suffix, bool model_level);

/* [rows, cols] bytes of tensor `which` (0..5) of any expert. */
void expert_shape(uint32_t which, const struct config *c, uint32_t *rows,
                  uint32_t *cols);
void expert_name(char *out, uint32_t layer, uint32_t expert, uint32_t which);
/* The name after "experts.E.": "w1.weight_packed" .. "w3.weight_scale". */
const char *expert_suffix(uint32_t which);
/* Bytes of one expert, all six tensors. */
uint64_t expert_bytes(const struct config *c);

#define TENSOR_LAYER_PREFIX "language_model.model.layers."
#define TENSOR_EXPERT_PREFIX "block_sparse_moe.experts."

#endif

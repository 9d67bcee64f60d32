/* weights.h - the tensors of a drafter: where they lie in model.safetensors.
 *
 * All are bf16, matrices stored [out, in]. After dspark_weights_open each has
 * the shape that follows from the config, and the file has no others but a copy
 * of the model's embedding, which is not read.
 *
 * Threads  any; nothing changes after open.
 * Errors   those of safetensors.h; -EBADMSG: a tensor is missing, unknown, or
 *          has another dtype or shape. The sentence names file and tensor.
 */
#ifndef MODEL_DSPARK_WEIGHTS_H
#define MODEL_DSPARK_WEIGHTS_H

#include <stdint.h>

#include "model/ckpt/error.h"
#include "model/dspark/config.h"

enum dspark_role {
    /* outside the layers */
    D_FUSE,         /* [hidden, taps * hidden] */
    D_CONTEXT_NORM, /* of the fused taps */
    D_NORM,         /* the last */
    D_W1, D_W2,     /* the Markov head, [vocab, rank] */
    D_CONFIDENCE,   /* [1, hidden + rank] */
    D_CONFIDENCE_BIAS,
    D_EMBED,        /* the model's own */
    D_TAP_NORM,     /* "layer" i: of tap i */
    /* every layer */
    D_INPUT_NORM, D_POST_NORM, D_GATE, D_UP, D_DOWN, D_O,
    /* GQA */
    D_Q, D_K, D_V, D_Q_NORM, D_K_NORM,
    /* MLA */
    D_QA, D_QA_NORM, D_QB, D_KVA, D_KVA_NORM, D_KVB,
    DSPARK_ROLES
};

struct dspark_tensor {
    uint64_t offset_bytes, length_bytes; /* length 0: there is none */
};

struct dspark_weights {
    uint64_t file_bytes;
    /* By layer; those outside the layers in row 0, D_TAP_NORM by tap. */
    struct dspark_tensor at[DSPARK_LAYERS_MAX][DSPARK_ROLES];
};

enum { DSPARK_NAME_BYTES = 96 };

int dspark_weights_open(struct dspark_weights *out, const char *path,
                        const struct dspark_config *c, struct error *error);
/* Whether the drafter has such a tensor. */
bool dspark_has(const struct dspark_config *c, enum dspark_role role);
/* How many of them: layers, taps, or 1. */
uint32_t dspark_count(const struct dspark_config *c, enum dspark_role role);
void dspark_shape(const struct dspark_config *c, enum dspark_role role,
                  uint32_t *rows, uint32_t *cols);
/* True for a vector, which is stored with one dimension. */
bool dspark_is_vector(enum dspark_role role);
void dspark_name(char out[DSPARK_NAME_BYTES], const struct dspark_config *c,
                 enum dspark_role role, uint32_t index);

#endif

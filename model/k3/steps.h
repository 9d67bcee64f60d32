/* steps.h - what a pass does, as one table: the order of use of all weights.
 *
 * A step either works through weights, a piece at a time (the ops up to
 * STEP_ATTEND), or computes without weights. The table is built from the
 * config. Three readers walk it: tiles.c cuts the trunk into tiles in its
 * order; flow.c runs a pass along it, for the engine and for the simulator;
 * simulate_cost.c divides seconds over it. model/README.md says how to add a
 * tensor or a kind of layer.
 *
 * The steps of a layer; h is the residual sum, x the normed input of a half:
 *
 *     VECTORS MIX [B FA FB] [SNAPSHOT]
 *     KDA:    Q K V G RECUR O
 *     MLA:    QA NORM_QUERY QB KVA STORE ATTEND G GATE_ATTENTION O
 *     ADD MIX
 *     dense:  PREFETCH GATE UP ACTIVATE DOWN
 *     MoE:    ROUTE CHOOSE LATENT_DOWN PACK PREFETCH
 *             EXPERTS | SHARED_GATE UP ACTIVATE DOWN   (these run while
 *                                                      experts are awaited)
 *             REDUCE NORM_EXPERTS LATENT_UP ADD_SHARED
 *     ADD
 *
 * Where several processes share a model (owned.h), a product is of the rows
 * that this one owns, and a GATHER follows where the others' are needed: not
 * between the products of one head, or of one row of the MLP.
 *
 *     steps_build -> the table -> steps_free
 *
 * Threads  any; nothing changes after steps_build.
 * Errors   -ENOMEM.
 */
#ifndef MODEL_K3_STEPS_H
#define MODEL_K3_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/ckpt/tensors.h"
#include "model/ckpt/owned.h"

enum step_op {
    /* Over weights: once for each piece. */
    STEP_VECTORS, /* copy the vectors of the layer out of their tile */
    STEP_PRODUCT, /* out = W in */
    STEP_ROUTE,   /* scores of the experts */
    STEP_ATTEND,  /* whole heads of kv_b over the latent cache */
    /* Without weights, or with rows of a table: once. */
    STEP_EMBED,      /* h = embedding rows */
    STEP_MIX,        /* x = rms(mix over the snapshots and h) */
    STEP_SNAPSHOT,   /* save h; it starts again at zero */
    STEP_PACK,       /* out = in, packed */
    STEP_RECUR,      /* convolution and delta rule of KDA */
    STEP_NORM_QUERY, /* rms of the query latent */
    STEP_STORE,      /* key latents go into the latent cache */
    STEP_GATE_ATTENTION,       /* attention times sigmoid of its gate */
    STEP_ADD,        /* h += out */
    STEP_ACTIVATE,   /* SiTU of gate and up */
    STEP_CHOOSE,     /* top k; then the experts are requested */
    STEP_PREFETCH,   /* name experts of the next MoE layer */
    STEP_EXPERTS,    /* routed experts, as they arrive */
    STEP_REDUCE,     /* weighted sum of the experts */
    STEP_NORM_EXPERTS, /* rms of that */
    STEP_ADD_SHARED, /* out += shared expert */
    STEP_GATHER,     /* get what other processes have computed of `in`; then
                      * out = in, packed, if there is an `out` */
    STEP_OPS
};

/* Rows of floats between steps. "Packed" rows are in the order in which product
 * kernels read them (compute/pack.h). */
enum step_buffer {
    BUFFER_NONE,
    BUFFER_SUM, /* h */
    BUFFER_X, /* packed input of a half of the layer */
    BUFFER_Q, BUFFER_K, BUFFER_V, BUFFER_DECAY, BUFFER_BETA, BUFFER_KDA_GATE,
    BUFFER_FA, BUFFER_FA_PACKED,
    BUFFER_QUERY_LATENT, BUFFER_QUERY_LATENT_PACKED, BUFFER_QUERY,
    BUFFER_KEY_LATENT, BUFFER_MLA_GATE,
    BUFFER_KDA_HEADS, BUFFER_MLA_HEADS, /* what attention found */
    BUFFER_ATTENDED, /* the same, packed */
    BUFFER_SCORES, /* of the experts */
    BUFFER_GATE, BUFFER_UP, BUFFER_ACTIVATED /* packed */, BUFFER_SHARED,
    BUFFER_LATENT, BUFFER_LATENT_PACKED, /* input of the experts */
    BUFFER_REDUCED, BUFFER_REDUCED_PACKED, /* sum of the experts */
    BUFFER_OUT, /* what a half of the layer adds to h */
    BUFFER_LOGITS,
    BUFFERS
};

enum step_flag {
    STEP_BEGINS_LAYER = 1,
    STEP_ENDS_ATTENTION = 2, /* time after it is counted for the MLP */
    STEP_ENDS_LAYER = 4,
    STEP_WITH_VECTORS = 8,   /* its matrix shares the tile of the vectors */
    STEP_BESIDE = 16,        /* may run while STEP_EXPERTS waits */
    STEP_LOGIT_ROWS = 32,    /* only for rows with `logits` */
};

/* What a step's time is counted under, and its name in the timeline
 * (k3_kernel_name). Products have the number of their tensor role. */
enum k3_kernel {
    K3_MIX = T_COUNT,
    K3_RECURRENCE,
    K3_ATTEND,
    K3_ROUTE,
    K3_EXPERTS,
    K3_REDUCE,
    K3_PREFETCH,
    K3_GATHER,
    K3_KERNELS,
    K3_NO_KERNEL = 255 /* not counted by kernel */
};

enum { STEP_VECTORS_MAX = 6 };

struct step {
    uint8_t op;     /* enum step_op */
    uint8_t kernel; /* enum k3_kernel or enum tensor_role */
    uint8_t role;   /* its matrix; PACK, ACTIVATE, GATHER: that of their input;
                     * T_COUNT: none */
    uint8_t in, out; /* enum step_buffer */
    uint8_t flags;  /* enum step_flag */
    uint8_t vectors; /* how many vectors of the layer it reads */
    uint8_t vector[STEP_VECTORS_MAX]; /* enum tensor_role */
    int32_t layer;  /* or TENSOR_MODEL_LEVEL */
    uint32_t width; /* floats a row of `role`'s product; 0: no role */
    struct row_range own; /* of them: rows of the matrix that are ours */
    uint32_t unit;  /* a tile has a multiple of this many rows */
};

struct steps {
    struct step *step; /* in the order of a pass */
    uint32_t count;
};

/* `owned` NULL: all rows are ours. 0 or -ENOMEM. */
int  steps_build(struct steps *out, const struct config *c,
                 const struct owned *owned);
void steps_free(struct steps *s);

/* Works through pieces of tiles; there may be none that are ours. */
static inline bool step_has_pieces(const struct step *s)
{
    return s->op <= STEP_ATTEND;
}

/* Works with rows as bf16: coded ones are decoded first. */
static inline bool step_decodes_first(const struct step *s)
{
    return s->op == STEP_ROUTE || s->op == STEP_ATTEND;
}

/* List the weights of the tiles of step `i`: of a product its matrix; of
 * VECTORS each vector of the layer once, and the matrices that share their
 * tile. Fills role[] and, with the steps that work with them, step[]. Returns
 * how many; 0 for a step whose weights are in the tiles of another. */
uint32_t steps_weights(const struct steps *s, uint32_t i,
                       uint8_t role[T_COUNT], uint32_t step[T_COUNT]);

#endif

#include "model/k3/steps.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define STEP(OP, KERNEL, ROLE, IN, OUT, FLAGS)                           \
    {                                                                    \
        .op = OP, .kernel = KERNEL, .role = ROLE, .in = BUFFER_##IN,     \
        .out = BUFFER_##OUT, .flags = FLAGS                              \
    }
/* A product with tiles of its own. */
#define PRODUCT(ROLE, IN, OUT) STEP(STEP_PRODUCT, ROLE, ROLE, IN, OUT, 0)
/* One that may run while experts are awaited. */
#define BESIDE(ROLE, IN, OUT)                                            \
    STEP(STEP_PRODUCT, ROLE, ROLE, IN, OUT, STEP_BESIDE)
/* One whose matrix is small and in the tile of the vectors. */
#define WITH_VECTORS(ROLE, IN, OUT)                                      \
    STEP(STEP_PRODUCT, K3_NO_KERNEL, ROLE, IN, OUT, STEP_WITH_VECTORS)
/* Pack the product of ROLE. */
#define PACK(ROLE, IN, OUT) STEP(STEP_PACK, K3_NO_KERNEL, ROLE, IN, OUT, 0)
/* Rows of the product of ROLE from other processes; left out where there are
 * none. */
#define GATHER(ROLE, IN, OUT) STEP(STEP_GATHER, K3_GATHER, ROLE, IN, OUT, 0)
/* Neither weights nor buffers of the table. */
#define PLAIN(OP) STEP(OP, K3_NO_KERNEL, T_COUNT, NONE, NONE, 0)
/* The vectors that a step reads. */
#define VECTORS_OF(...)            \
    .vector = { __VA_ARGS__ },     \
    .vectors = sizeof((uint8_t[]){ __VA_ARGS__ })

static const struct step embedding[] = {
    { .op = STEP_EMBED, .kernel = K3_NO_KERNEL, .role = T_EMBED,
      .flags = STEP_ENDS_ATTENTION },
    STEP(STEP_GATHER, K3_GATHER, T_EMBED, SUM, NONE, STEP_ENDS_ATTENTION),
};

static const struct step layer_begin[] = {
    { .op = STEP_VECTORS, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .flags = STEP_BEGINS_LAYER },
    { .op = STEP_MIX, .kernel = K3_MIX, .role = T_COUNT, .out = BUFFER_X,
      VECTORS_OF(T_ATTN_RES_NORM, T_ATTN_RES_PROJ, T_INPUT_NORM) },
};

static const struct step kda_begin[] = {
    WITH_VECTORS(T_B, X, BETA),
    WITH_VECTORS(T_FA, X, FA),
    PACK(T_FA, FA, FA_PACKED),
    WITH_VECTORS(T_FB, FA_PACKED, DECAY),
};

/* Where the layer begins a block of the residual. */
static const struct step snapshot[] = { PLAIN(STEP_SNAPSHOT) };

static const struct step kda[] = {
    PRODUCT(T_Q, X, Q),
    PRODUCT(T_K, X, K),
    PRODUCT(T_V, X, V),
    PRODUCT(T_G, X, KDA_GATE),
    { .op = STEP_RECUR, .kernel = K3_RECURRENCE, .role = T_COUNT,
      .out = BUFFER_ATTENDED,
      VECTORS_OF(T_QCONV, T_KCONV, T_VCONV, T_A_LOG, T_DT_BIAS, T_O_NORM) },
    GATHER(T_Q, KDA_HEADS, ATTENDED),
    PRODUCT(T_O, ATTENDED, OUT),
    GATHER(T_O, OUT, NONE),
};

static const struct step mla[] = {
    PRODUCT(T_QA, X, QUERY_LATENT),
    GATHER(T_QA, QUERY_LATENT, NONE),
    { .op = STEP_NORM_QUERY, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .in = BUFFER_QUERY_LATENT, .out = BUFFER_QUERY_LATENT_PACKED,
      VECTORS_OF(T_QA_NORM) },
    PRODUCT(T_QB, QUERY_LATENT_PACKED, QUERY),
    PRODUCT(T_KVA, X, KEY_LATENT),
    GATHER(T_KVA, KEY_LATENT, NONE),
    { .op = STEP_STORE, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .in = BUFFER_KEY_LATENT, VECTORS_OF(T_KVA_NORM) },
    { .op = STEP_ATTEND, .kernel = K3_ATTEND, .role = T_KVB,
      .in = BUFFER_QUERY },
    PRODUCT(T_G, X, MLA_GATE),
    { .op = STEP_GATE_ATTENTION, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .in = BUFFER_MLA_GATE, .out = BUFFER_ATTENDED },
    GATHER(T_G, MLA_HEADS, ATTENDED),
    PRODUCT(T_O, ATTENDED, OUT),
    GATHER(T_O, OUT, NONE),
};

/* Attention is over: the second half of the layer. */
static const struct step middle[] = {
    { .op = STEP_ADD, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .in = BUFFER_OUT },
    { .op = STEP_MIX, .kernel = K3_MIX, .role = T_COUNT, .out = BUFFER_X,
      VECTORS_OF(T_MLP_RES_NORM, T_MLP_RES_PROJ, T_POST_NORM) },
};

static const struct step dense[] = {
    PLAIN(STEP_PREFETCH),
    PRODUCT(T_GATE_PROJ, X, GATE),
    PRODUCT(T_UP_PROJ, X, UP),
    { .op = STEP_ACTIVATE, .kernel = T_DOWN_PROJ, .role = T_GATE_PROJ },
    GATHER(T_GATE_PROJ, GATE, ACTIVATED),
    PRODUCT(T_DOWN_PROJ, ACTIVATED, OUT),
    GATHER(T_DOWN_PROJ, OUT, NONE),
};

static const struct step moe[] = {
    { .op = STEP_ROUTE, .kernel = K3_ROUTE, .role = T_ROUTER,
      .in = BUFFER_X },
    GATHER(T_ROUTER, SCORES, NONE),
    { .op = STEP_CHOOSE, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .flags = STEP_ENDS_ATTENTION, VECTORS_OF(T_ROUTER_BIAS) },
    PRODUCT(T_LATENT_DOWN, X, LATENT),
    GATHER(T_LATENT_DOWN, LATENT, NONE),
    PACK(T_LATENT_DOWN, LATENT, LATENT_PACKED),
    PLAIN(STEP_PREFETCH),
    { .op = STEP_EXPERTS, .kernel = K3_EXPERTS, .role = T_COUNT,
      .in = BUFFER_LATENT_PACKED },
    BESIDE(T_SHARED_GATE, X, GATE),
    BESIDE(T_SHARED_UP, X, UP),
    { .op = STEP_ACTIVATE, .kernel = T_SHARED_DOWN, .role = T_SHARED_GATE,
      .flags = STEP_BESIDE },
    GATHER(T_SHARED_GATE, GATE, ACTIVATED),
    BESIDE(T_SHARED_DOWN, ACTIVATED, SHARED),
    { .op = STEP_REDUCE, .kernel = K3_REDUCE, .role = T_COUNT,
      .out = BUFFER_REDUCED },
    GATHER(T_LATENT_DOWN, REDUCED, NONE), /* as wide as w2 is high */
    { .op = STEP_NORM_EXPERTS, .kernel = K3_REDUCE, .role = T_COUNT,
      .in = BUFFER_REDUCED, .out = BUFFER_REDUCED_PACKED,
      VECTORS_OF(T_LATENT_NORM) },
    PRODUCT(T_LATENT_UP, REDUCED_PACKED, OUT),
    { .op = STEP_ADD_SHARED, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .in = BUFFER_SHARED, .out = BUFFER_OUT },
    GATHER(T_LATENT_UP, OUT, NONE),
};

static const struct step layer_end[] = {
    { .op = STEP_ADD, .kernel = K3_NO_KERNEL, .role = T_COUNT,
      .in = BUFFER_OUT, .flags = STEP_ENDS_LAYER },
};

static const struct step head[] = {
    PLAIN(STEP_VECTORS),
    { .op = STEP_MIX, .kernel = K3_MIX, .role = T_COUNT, .out = BUFFER_X,
      .flags = STEP_LOGIT_ROWS,
      VECTORS_OF(T_OUT_RES_NORM, T_OUT_RES_PROJ, T_NORM) },
    { .op = STEP_PRODUCT, .kernel = T_HEAD, .role = T_HEAD, .in = BUFFER_X,
      .out = BUFFER_LOGITS, .flags = STEP_LOGIT_ROWS | STEP_ENDS_LAYER },
    STEP(STEP_GATHER, K3_GATHER, T_HEAD, LOGITS, NONE,
         STEP_LOGIT_ROWS | STEP_ENDS_LAYER),
};

enum { LAYER_STEPS_MAX = 32 };
#define LENGTH(LIST) (sizeof LIST / sizeof *LIST)
_Static_assert(LENGTH(layer_begin) + LENGTH(kda_begin) + LENGTH(snapshot) +
                       LENGTH(kda) + LENGTH(mla) + LENGTH(middle) +
                       LENGTH(layer_end) <= LAYER_STEPS_MAX &&
                   LENGTH(moe) >= LENGTH(dense), "a layer's steps");

struct builder {
    struct steps *s;
    const struct config *c;
    const struct owned *owned;
    int32_t layer;
};

static void add_step(struct builder *b, const struct step *line)
{
    if (line->op == STEP_GATHER && !b->owned)
        return;
    struct step *s = &b->s->step[b->s->count++];
    uint32_t cols;
    *s = *line;
    s->layer = b->layer;
    s->unit = 1;
    s->vectors = 0; /* those that this config has */
    for (uint32_t i = 0; i < line->vectors; i++)
        if (tensor_in_layer((enum tensor_role)line->vector[i], b->c, b->layer))
            s->vector[s->vectors++] = line->vector[i];
    if (s->role != T_COUNT) {
        enum tensor_role role = (enum tensor_role)s->role;
        tensor_shape(role, b->c, b->layer, &s->width, &cols);
        s->own = owned_rows(b->owned, role, b->c, b->layer);
    }
    if (s->op == STEP_ATTEND)
        s->unit = b->c->nope + b->c->v_dim;
}

static void add_list(struct builder *b, const struct step *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_step(b, &list[i]);
}

#define ADD(B, LIST) add_list(B, LIST, LENGTH(LIST))

static void add_layer(struct builder *b, uint32_t layer)
{
    const struct config *c = b->c;
    bool is_mla = config_is_mla(c, layer), is_dense = config_is_dense(c, layer);
    b->layer = (int32_t)layer;
    ADD(b, layer_begin);
    if (!is_mla)
        ADD(b, kda_begin);
    if (layer % c->attn_res_block == 0)
        ADD(b, snapshot);
    is_mla ? ADD(b, mla) : ADD(b, kda);
    ADD(b, middle);
    if (is_dense) /* the ADD before the MIX */
        b->s->step[b->s->count - 2].flags |= STEP_ENDS_ATTENTION;
    is_dense ? ADD(b, dense) : ADD(b, moe);
    ADD(b, layer_end);
}

int steps_build(struct steps *s, const struct config *c,
                const struct owned *owned)
{
    size_t max = LENGTH(embedding) + LENGTH(head) +
                 (size_t)c->layers * (LAYER_STEPS_MAX + LENGTH(moe));
    struct builder b = { .s = s, .c = c, .owned = owned,
                         .layer = TENSOR_MODEL_LEVEL };
    *s = (struct steps){ .step = calloc(max, sizeof *s->step) };
    if (!s->step)
        return -ENOMEM;
    ADD(&b, embedding);
    for (uint32_t layer = 0; layer < c->layers; layer++)
        add_layer(&b, layer);
    b.layer = TENSOR_MODEL_LEVEL;
    ADD(&b, head);
    assert(s->count <= max);
    return 0;
}

void steps_free(struct steps *s)
{
    free(s->step);
    *s = (struct steps){ 0 };
}

uint32_t steps_weights(const struct steps *s, uint32_t i,
                       uint8_t role[T_COUNT], uint32_t step[T_COUNT])
{
    const struct step *first = &s->step[i];
    uint32_t n = 0;
    if (!step_has_pieces(first) || first->flags & STEP_WITH_VECTORS)
        return 0;
    if (first->op != STEP_VECTORS) {
        role[0] = first->role;
        step[0] = i;
        return 1;
    }
    bool seen[T_COUNT] = { false };
    for (uint32_t j = i + 1;
         j < s->count && s->step[j].layer == first->layer; j++) {
        const struct step *at = &s->step[j];
        for (uint32_t v = 0; v < at->vectors; v++) {
            if (!seen[at->vector[v]]) {
                step[n] = i;
                role[n++] = at->vector[v];
            }
            seen[at->vector[v]] = true;
        }
        if (at->flags & STEP_WITH_VECTORS) {
            step[n] = j;
            role[n++] = at->role;
        }
    }
    return n;
}

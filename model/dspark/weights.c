#include "model/dspark/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/ckpt/safetensors.h"

enum { HEADER_MAX = 1 << 20 };

/* Names by role: of the layers, those after "layers.L.". */
static const char *const names[DSPARK_ROLES] = {
    [D_FUSE] = "fc.weight", [D_CONTEXT_NORM] = "hidden_norm.weight",
    [D_NORM] = "norm.weight", [D_W1] = "markov_head.markov_w1.weight",
    [D_W2] = "markov_head.markov_w2.weight",
    [D_CONFIDENCE] = "confidence_head.proj.weight",
    [D_CONFIDENCE_BIAS] = "confidence_head.proj.bias",
    [D_EMBED] = "embed_tokens.weight",
    [D_INPUT_NORM] = "input_layernorm.weight",
    [D_POST_NORM] = "post_attention_layernorm.weight",
    [D_GATE] = "mlp.gate_proj.weight", [D_UP] = "mlp.up_proj.weight",
    [D_DOWN] = "mlp.down_proj.weight", [D_O] = "self_attn.o_proj.weight",
    [D_Q] = "self_attn.q_proj.weight", [D_K] = "self_attn.k_proj.weight",
    [D_V] = "self_attn.v_proj.weight",
    [D_Q_NORM] = "self_attn.q_norm.weight",
    [D_K_NORM] = "self_attn.k_norm.weight",
    [D_QA] = "self_attn.q_a_proj.weight",
    [D_QA_NORM] = "self_attn.q_a_layernorm.weight",
    [D_QB] = "self_attn.q_b_proj.weight",
    [D_KVA] = "self_attn.kv_a_proj_with_mqa.weight",
    [D_KVA_NORM] = "self_attn.kv_a_layernorm.weight",
    [D_KVB] = "self_attn.kv_b_proj.weight",
};

/* Where the MLA drafter has other names. */
static const char *const names_mla[DSPARK_ROLES] = {
    [D_FUSE] = "context_proj.weight",
    [D_CONTEXT_NORM] = "context_norm.weight",
    [D_NORM] = "final_norm.weight",
};

bool dspark_has(const struct dspark_config *c, enum dspark_role role)
{
    if (role == D_EMBED)
        return c->kind == DSPARK_MLA; /* may have */
    if (role == D_TAP_NORM)
        return c->tap_norm;
    if (role >= D_QA)
        return c->kind == DSPARK_MLA;
    return role < D_Q || c->kind == DSPARK_GQA;
}

uint32_t dspark_count(const struct dspark_config *c, enum dspark_role role)
{
    return role == D_TAP_NORM ? c->taps : role < D_TAP_NORM ? 1 : c->layers;
}

bool dspark_is_vector(enum dspark_role role)
{
    switch (role) {
    case D_CONTEXT_NORM:
    case D_NORM:
    case D_CONFIDENCE_BIAS:
    case D_TAP_NORM:
    case D_INPUT_NORM:
    case D_POST_NORM:
    case D_Q_NORM:
    case D_K_NORM:
    case D_QA_NORM:
    case D_KVA_NORM:
        return true;
    default:
        return false;
    }
}

void dspark_shape(const struct dspark_config *c, enum dspark_role role,
                  uint32_t *rows, uint32_t *cols)
{
    bool mla = c->kind == DSPARK_MLA;
    uint32_t h = c->hidden, query = c->nope + c->rope;
    const uint32_t shape[DSPARK_ROLES][2] = {
        [D_FUSE] = { h, c->taps * h }, [D_CONTEXT_NORM] = { 1, h },
        [D_NORM] = { 1, h }, [D_W1] = { c->vocab, c->rank },
        [D_W2] = { c->vocab, c->rank }, [D_CONFIDENCE] = { 1, h + c->rank },
        [D_CONFIDENCE_BIAS] = { 1, 1 }, [D_EMBED] = { c->vocab, h },
        [D_TAP_NORM] = { 1, h }, [D_INPUT_NORM] = { 1, h },
        [D_POST_NORM] = { 1, h }, [D_GATE] = { c->inter, h },
        [D_UP] = { c->inter, h }, [D_DOWN] = { h, c->inter },
        [D_O] = { h, c->heads * (mla ? c->v_dim : c->head_dim) },
        [D_Q] = { c->heads * c->head_dim, h },
        [D_K] = { c->kv_heads * c->head_dim, h },
        [D_V] = { c->kv_heads * c->head_dim, h },
        [D_Q_NORM] = { 1, c->head_dim }, [D_K_NORM] = { 1, c->head_dim },
        [D_QA] = { c->q_rank, h }, [D_QA_NORM] = { 1, c->q_rank },
        [D_QB] = { c->heads * query, c->q_rank },
        [D_KVA] = { c->kv_rank + c->rope, h },
        [D_KVA_NORM] = { 1, c->kv_rank },
        [D_KVB] = { c->heads * (c->nope + c->v_dim), c->kv_rank },
    };
    *rows = shape[role][0];
    *cols = shape[role][1];
}

void dspark_name(char out[DSPARK_NAME_BYTES], const struct dspark_config *c,
                 enum dspark_role role, uint32_t index)
{
    const char *name = names[role];
    if (c->kind == DSPARK_MLA && names_mla[role])
        name = names_mla[role];
    if (role == D_TAP_NORM)
        snprintf(out, DSPARK_NAME_BYTES, "fc_norm.%" PRIu32 ".weight", index);
    else if (role < D_TAP_NORM)
        snprintf(out, DSPARK_NAME_BYTES, "%s", name);
    else
        snprintf(out, DSPARK_NAME_BYTES, "layers.%" PRIu32 ".%s", index, name);
}

/* The tensor of a name; false: the drafter has none of it. */
static bool known(const struct dspark_config *c, const char *name,
                  enum dspark_role *role, uint32_t *index)
{
    char want[DSPARK_NAME_BYTES];
    for (uint32_t r = 0; r < DSPARK_ROLES; r++) {
        *role = (enum dspark_role)r;
        if (!dspark_has(c, *role))
            continue;
        for (*index = 0; *index < dspark_count(c, *role); (*index)++) {
            dspark_name(want, c, *role, *index);
            if (!strcmp(want, name))
                return true;
        }
    }
    return false;
}

static int check_entry(const struct safetensors_entry *e, const char *path,
                       const struct dspark_config *c, enum dspark_role role,
                       struct error *error)
{
    uint32_t rows, cols;
    dspark_shape(c, role, &rows, &cols);
    if (e->dtype != DTYPE_BF16)
        return error_set(error, -EBADMSG, "%s: %s is %s, a drafter's tensors "
                         "are BF16", path, e->name,
                         tensor_dtype_name(e->dtype));
    bool good = dspark_is_vector(role)
                    ? e->dims.count == 1 && e->dims.size[0] == cols
                    : e->dims.count == 2 && e->dims.size[0] == rows &&
                          e->dims.size[1] == cols;
    if (good)
        return 0;
    return error_set(error, -EBADMSG, "%s: %s has another shape than the "
                     "config gives it, [%" PRIu32 ", %" PRIu32 "]", path,
                     e->name, rows, cols);
}

static int list(struct dspark_weights *w, const struct safetensors *file,
                const char *path, const struct dspark_config *c,
                struct error *error)
{
    for (uint32_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *e = &file->entry[i];
        enum dspark_role role;
        uint32_t index;
        if (!known(c, e->name, &role, &index))
            return error_set(error, -EBADMSG, "%s: has a tensor %.100s, which "
                             "%s drafters have not", path, e->name,
                             dspark_kind_name(c->kind));
        int err = check_entry(e, path, c, role, error);
        if (err)
            return err;
        w->at[index][role] = (struct dspark_tensor){ e->offset_bytes,
                                                     e->length_bytes };
    }
    for (uint32_t r = 0; r < DSPARK_ROLES; r++) {
        enum dspark_role role = (enum dspark_role)r;
        for (uint32_t i = 0; i < dspark_count(c, role); i++) {
            char name[DSPARK_NAME_BYTES];
            if (!dspark_has(c, role) || role == D_EMBED ||
                w->at[i][role].length_bytes)
                continue;
            dspark_name(name, c, role, i);
            return error_set(error, -EBADMSG, "%s: tensor %s is missing", path,
                             name);
        }
    }
    return 0;
}

int dspark_weights_open(struct dspark_weights *w, const char *path,
                        const struct dspark_config *c, struct error *error)
{
    struct safetensors file;
    memset(w, 0, sizeof *w);
    int err = safetensors_open(&file, path, HEADER_MAX, error);
    if (err)
        return err;
    w->file_bytes = file.file_bytes;
    err = list(w, &file, path, c, error);
    safetensors_close(&file);
    return err;
}

/* wanted.c - what of a shard is coded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/u3.h"
#include "model/pack/pack_internal.h"

enum {
    BLOCK_BYTES_MAX = 1 << 20,
    BLOCK_BYTES_MIN = 16 << 10,
    BLOCKS_AIM = 4096, /* in a small model */
};

bool pack_codes(enum tensor_role role, const struct config *c, int64_t layer)
{
    struct tensor_dims dims;
    if (tensor_dtype(role) != DTYPE_BF16 || role == T_FA || role == T_FB ||
        role == T_B || role == T_EMBED)
        return false;
    tensor_dims(role, c, layer, &dims);
    return dims.count == 2 && dims.size[0] > 1 && dims.size[1] <= U3_COLS_MAX;
}

uint64_t pack_block_bytes(const struct config *c)
{
    uint64_t trunk = 0, bytes = BLOCK_BYTES_MIN;
    for (int64_t l = TENSOR_MODEL_LEVEL; l < c->layers; l++)
        for (int r = 0; r < T_COUNT; r++) {
            uint32_t rows, cols;
            enum tensor_role role = (enum tensor_role)r;
            if (!tensor_in_layer(role, c, l) || !pack_codes(role, c, l))
                continue;
            tensor_shape(role, c, l, &rows, &cols);
            trunk += (uint64_t)rows * cols * 2;
        }
    while (bytes < BLOCK_BYTES_MAX && bytes * 2 * BLOCKS_AIM <= trunk)
        bytes *= 2;
    return bytes;
}

static int by_place(const void *a, const void *b)
{
    const struct pack_matrix *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void add_matrices(struct pack_shard *out, const struct config *c,
                         const struct ckpt *k, uint32_t file, int layer,
                         uint64_t block_bytes)
{
    for (int r = 0; r < T_COUNT; r++) {
        enum tensor_role role = (enum tensor_role)r;
        struct pack_matrix m = { .role = role };
        struct extent e;
        if (!tensor_in_layer(role, c, layer) || !pack_codes(role, c, layer) ||
            ckpt_tensor(k, layer, role, &e) || e.file != file)
            continue;
        tensor_shape(role, c, layer, &m.rows, &m.cols);
        m.at = e.offset_bytes;
        m.block_rows = u3_rows_within(m.cols, block_bytes);
        out->matrix[out->matrices++] = m;
    }
}

static int by_offset(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The scales of an expert, from the first byte of its first tensor in the
 * file; false when they are not all in this file. */
static bool look_at_expert(struct pack_shard *s, const struct config *c,
                           const struct ckpt *k, uint32_t file, uint32_t layer,
                           uint32_t expert, uint64_t *at)
{
    struct extent e[EXPERT_TENSORS];
    struct pack_shard now = { 0 };
    ckpt_expert(k, layer, expert, e);
    *at = UINT64_MAX;
    for (int t = 0; t < EXPERT_TENSORS; t++) {
        if (e[t].file != file)
            return false;
        *at = e[t].offset_bytes < *at ? e[t].offset_bytes : *at;
    }
    for (uint32_t p = 0; p < SIDECAR_PLANES; p++) {
        expert_shape(2 * p + 1, c, &now.plane[p].rows, &now.plane[p].cols);
        now.plane_at[p] = e[2 * p + 1].offset_bytes - *at;
    }
    if (!s->plane[0].rows) {
        memcpy(s->plane, now.plane, sizeof s->plane);
        memcpy(s->plane_at, now.plane_at, sizeof s->plane_at);
    }
    return !memcmp(s->plane_at, now.plane_at, sizeof s->plane_at);
}

/* Experts of this file that lie in equal steps and alike; else none, which only
 * means that their scales are read as they are. */
static int find_experts(struct pack_shard *s, const struct config *c,
                        const struct ckpt *k, uint32_t file)
{
    uint64_t *at = malloc((size_t)config_moe_layers(c) * c->experts *
                          sizeof *at + 1);
    uint32_t n = 0;
    bool alike = true;
    if (!at)
        return -ENOMEM;
    for (uint32_t l = c->first_dense; l < c->layers; l++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct extent first[EXPERT_TENSORS];
            ckpt_expert(k, l, e, first);
            if (first[0].file == file)
                alike &= look_at_expert(s, c, k, file, l, e, &at[n++]);
        }
    qsort(at, n, sizeof *at, by_offset);
    uint64_t stride = n > 1 ? at[1] - at[0] : expert_bytes(c);
    for (uint32_t i = 1; i < n; i++)
        alike &= at[i] - at[i - 1] == stride;
    alike &= stride >= expert_bytes(c);
    if (alike && n) {
        s->experts = n;
        s->experts_at = at[0];
        s->expert_stride = stride;
    }
    free(at);
    return 0;
}

int pack_shard_of(struct pack_shard *out, const struct config *c,
                  const struct ckpt *k, uint32_t file)
{
    uint64_t block_bytes = pack_block_bytes(c);
    memset(out, 0, sizeof *out);
    out->matrix = malloc(((size_t)c->layers + 1) * T_COUNT *
                         sizeof *out->matrix);
    if (!out->matrix)
        return -ENOMEM;
    for (int l = TENSOR_MODEL_LEVEL; l < (int)c->layers; l++)
        add_matrices(out, c, k, file, l, block_bytes);
    qsort(out->matrix, out->matrices, sizeof *out->matrix, by_place);
    int err = find_experts(out, c, k, file);
    if (err)
        pack_shard_free(out);
    return err;
}

void pack_shard_free(struct pack_shard *s)
{
    free(s->matrix);
    memset(s, 0, sizeof *s);
}

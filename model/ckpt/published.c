#include "model/ckpt/published.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISION_BLOCKS 27

static const struct vision {
    const char        *name;
    struct tensor_dims dims;
} projector[] = {
    { "mm_projector.proj.0.weight", { 2, { 4096, 4096 } } },
    { "mm_projector.proj.2.weight", { 2, { 7168, 4096 } } },
    { "mm_projector.post_norm.weight", { 1, { 7168 } } },
}, tower[] = {
    { "vision_tower.patch_embed.proj.weight", { 4, { 1024, 3, 14, 14 } } },
    { "vision_tower.patch_embed.pos_emb.weight", { 3, { 64, 64, 1024 } } },
    { "vision_tower.encoder.final_layernorm.weight", { 1, { 1024 } } },
}, tower_block[] = {
    { "norm0.weight", { 1, { 1024 } } },
    { "norm1.weight", { 1, { 1024 } } },
    { "wqkv.weight", { 2, { 4608, 1024 } } },
    { "wo.weight", { 2, { 1024, 1536 } } },
    { "mlp.fc0.weight", { 2, { 4096, 1024 } } },
    { "mlp.fc1.weight", { 2, { 1024, 4096 } } },
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

uint32_t published_shard_count(const struct config *c, bool vision)
{
    return c->layers + 1 + (vision ? 2 : 0);
}

static void add_trunk(struct published_shard *s, const struct config *c,
                      int64_t layer)
{
    for (int r = 0; r < T_COUNT; r++) {
        enum tensor_role role = (enum tensor_role)r;
        if (!tensor_in_layer(role, c, layer))
            continue;
        struct published_tensor *t = &s->tensor[s->count++];
        t->role = role;
        t->layer = layer;
        t->dtype = tensor_dtype(role);
        tensor_name(t->name, role, layer);
        tensor_dims(role, c, layer, &t->dims);
        /* The published A_log is longer than kda_heads, filled with zeros. */
        if (role == T_A_LOG && t->dims.size[0] < c->kda_dim)
            t->dims.size[0] = c->kda_dim;
    }
}

static void add_experts(struct published_shard *s, const struct config *c,
                        uint32_t layer)
{
    for (uint32_t e = 0; e < c->experts; e++)
        for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
            uint32_t rows, cols;
            struct published_tensor *t = &s->tensor[s->count++];
            t->role = T_COUNT;
            t->which = which;
            t->layer = layer;
            t->dtype = DTYPE_U8;
            expert_name(t->name, layer, e, which);
            expert_shape(which, c, &rows, &cols);
            t->dims = (struct tensor_dims){ 2, { rows, cols } };
        }
}

static void add_vision(struct published_shard *s, const struct vision *list,
                       size_t count, int block)
{
    for (size_t i = 0; i < count; i++) {
        struct published_tensor *t = &s->tensor[s->count++];
        t->role = T_COUNT;
        t->which = EXPERT_TENSORS;
        t->dtype = DTYPE_BF16;
        t->dims = list[i].dims;
        if (block < 0)
            snprintf(t->name, sizeof t->name, "%s", list[i].name);
        else
            snprintf(t->name, sizeof t->name,
                     "vision_tower.encoder.blocks.%d.%s", block, list[i].name);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct published_tensor *x = a, *y = b;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* `"name":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}` */
static size_t print_entry(char *out, size_t size,
                          const struct published_tensor *t)
{
    size_t n = (size_t)snprintf(out, size, "\"%s\":{\"dtype\":\"%s\","
                                           "\"shape\":[",
                                t->name, tensor_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->dims.count; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%llu", i ? "," : "",
                              (unsigned long long)t->dims.size[i]);
    n += (size_t)snprintf(out + n, size - n, "],\"data_offsets\":[%llu,%llu]}",
                          (unsigned long long)t->offset_bytes,
                          (unsigned long long)(t->offset_bytes +
                                               t->length_bytes));
    return n;
}

enum { ENTRY_BYTES = TENSOR_NAME_BYTES + 192 };

int published_shard_init(struct published_shard *s, const struct config *c,
                     uint32_t shard)
{
    *s = (struct published_shard){ 0 };
    size_t room = T_COUNT + (size_t)c->experts * EXPERT_TENSORS +
                  VISION_BLOCKS * COUNT(tower_block) + COUNT(tower);
    s->tensor = calloc(room, sizeof *s->tensor);
    if (!s->tensor)
        return -ENOMEM;
    if (shard < c->layers) {
        add_trunk(s, c, shard);
        if (!config_is_dense(c, shard))
            add_experts(s, c, shard);
    } else if (shard == c->layers) {
        add_trunk(s, c, TENSOR_MODEL_LEVEL);
    } else if (shard == c->layers + 1) {
        add_vision(s, projector, COUNT(projector), -1);
    } else {
        add_vision(s, tower, COUNT(tower), -1);
        for (int b = 0; b < VISION_BLOCKS; b++)
            add_vision(s, tower_block, COUNT(tower_block), b);
    }
    qsort(s->tensor, s->count, sizeof *s->tensor, by_place);
    size_t text = 1; /* the brace; then each entry and what follows it */
    for (uint32_t i = 0; i < s->count; i++) {
        struct published_tensor *t = &s->tensor[i];
        char entry[ENTRY_BYTES];
        t->offset_bytes = s->data_bytes;
        t->length_bytes = tensor_dtype_bytes(t->dtype);
        for (uint32_t d = 0; d < t->dims.count; d++)
            t->length_bytes *= t->dims.size[d];
        s->data_bytes += t->length_bytes;
        text += print_entry(entry, sizeof entry, t) + 1;
    }
    s->header_bytes = 8 + (text + 7) / 8 * 8;
    return 0;
}

void published_shard_free(struct published_shard *s)
{
    free(s->tensor);
    *s = (struct published_shard){ 0 };
}

char *published_shard_header(const struct published_shard *s)
{
    char *header = malloc(s->header_bytes + ENTRY_BYTES);
    if (!header)
        return NULL;
    uint64_t length = s->header_bytes - 8;
    for (int i = 0; i < 8; i++)
        header[i] = (char)(length >> 8 * i & 255);
    size_t n = 8;
    for (uint32_t i = 0; i < s->count; i++) {
        header[n++] = i ? ',' : '{';
        n += print_entry(header + n, ENTRY_BYTES, &s->tensor[i]);
    }
    header[n++] = '}';
    memset(header + n, ' ', s->header_bytes - n);
    return header;
}

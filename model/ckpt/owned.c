#include "model/ckpt/owned.h"

struct row_range owned_rows(const struct owned *o, enum tensor_role role,
                            const struct config *c, int64_t layer)
{
    uint32_t rows, cols;
    if (o)
        return cuts_rows(&o->cuts, o->part, role, c, layer);
    tensor_shape(role, c, layer, &rows, &cols);
    return (struct row_range){ 0, rows };
}

struct row_range owned_expert_rows(const struct owned *o, uint32_t which,
                                   const struct config *c)
{
    uint32_t rows, cols;
    if (o)
        return cuts_expert_rows(&o->cuts, o->part, which, c);
    expert_shape(which, c, &rows, &cols);
    return (struct row_range){ 0, rows };
}

static struct row_range heads_of(const struct owned *o, const struct config *c,
                                 enum tensor_role role, bool mla,
                                 uint32_t heads, uint32_t rows_of_head)
{
    for (uint32_t l = 0; o && l < c->layers; l++)
        if (config_is_mla(c, l) == mla) {
            struct row_range r = cuts_rows(&o->cuts, o->part, role, c, l);
            return (struct row_range){ r.begin / rows_of_head,
                                       r.end / rows_of_head };
        }
    return (struct row_range){ 0, heads };
}

struct row_range owned_kda_heads(const struct owned *o, const struct config *c)
{
    return heads_of(o, c, T_Q, false, c->kda_heads, c->kda_dim);
}

struct row_range owned_mla_heads(const struct owned *o, const struct config *c)
{
    return heads_of(o, c, T_KVB, true, c->heads, c->nope + c->v_dim);
}

void owned_expert(const struct owned *o, const struct config *c,
                  struct extent e[EXPERT_TENSORS])
{
    for (uint32_t i = 0; o && i < EXPERT_TENSORS; i++) {
        uint32_t rows, cols;
        expert_shape(i, c, &rows, &cols);
        struct row_range own = owned_expert_rows(o, i, c);
        uint64_t bytes = e[i].length_bytes / rows;
        e[i].offset_bytes += own.begin * bytes;
        e[i].length_bytes = (own.end - own.begin) * bytes;
    }
}

uint64_t owned_expert_bytes(const struct owned *o, const struct config *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < EXPERT_TENSORS; i++) {
        uint32_t rows, cols;
        struct row_range own = owned_expert_rows(o, i, c);
        expert_shape(i, c, &rows, &cols);
        bytes += (uint64_t)(own.end - own.begin) * cols;
    }
    return bytes;
}

bool owned_by_all(const struct cuts *cuts, const struct config *c)
{
    for (uint32_t p = 0; p < cuts->parts && config_moe_layers(c); p++) {
        struct row_range up = cuts_expert_rows(cuts, p, 0, c);
        struct row_range down = cuts_expert_rows(cuts, p, 2, c);
        if (up.begin == up.end && down.begin == down.end)
            return false;
    }
    return true;
}

#include "model/ckpt/layout.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/published.h"
#include "sched/block.h"

/* The layout of layers of one kind whose numbers have equally many digits:
 * their headers differ in those digits only. */
struct shape {
    bool          mla, dense;
    size_t        digits;
    struct extent tensor[T_COUNT]; /* by role; length 0: none */
    uint64_t      first_expert;    /* offset in the file */
    uint64_t      file_bytes;
};

enum { DIGITS_MAX = 10, SHAPES_MAX = 4 * DIGITS_MAX + 1 };

struct layout {
    uint32_t     layers, first_dense, experts;
    uint32_t     length[EXPERT_TENSORS]; /* of an expert's tensors */
    uint64_t     expert_bytes;
    uint32_t    *rank;     /* [experts] position in the file */
    uint8_t     *shape_of; /* [layers + 1] the last is the model level */
    uint32_t     shapes;
    struct shape shape[SHAPES_MAX];
};

static size_t digits(uint32_t n)
{
    return (size_t)snprintf(NULL, 0, "%u", n);
}

static int fill_shape(struct shape *s, const struct config *c, uint32_t file)
{
    struct published_shard shard;
    if (published_shard_init(&shard, c, file))
        return -ENOMEM;
    s->file_bytes = shard.header_bytes + shard.data_bytes;
    for (uint32_t i = 0; i < shard.count; i++) {
        const struct published_tensor *t = &shard.tensor[i];
        uint64_t at = shard.header_bytes + t->offset_bytes;
        if (t->role != T_COUNT)
            s->tensor[t->role] = (struct extent){ file, at, t->length_bytes };
        else if (!s->first_expert)
            s->first_expert = at;
    }
    published_shard_free(&shard);
    return 0;
}

static int find_shape(struct layout *l, const struct config *c, uint32_t file)
{
    struct shape want = { .digits = 0 };
    if (file < c->layers)
        want = (struct shape){ .mla = config_is_mla(c, file),
                               .dense = config_is_dense(c, file),
                               .digits = digits(file) };
    for (uint32_t i = 0; i < l->shapes; i++) {
        const struct shape *s = &l->shape[i];
        if (s->mla == want.mla && s->dense == want.dense &&
            s->digits == want.digits) {
            l->shape_of[file] = (uint8_t)i;
            return 0;
        }
    }
    assert(l->shapes < SHAPES_MAX);
    l->shape_of[file] = (uint8_t)l->shapes;
    l->shape[l->shapes] = want;
    return fill_shape(&l->shape[l->shapes++], c, file);
}

static int by_text(const void *a, const void *b)
{
    char x[16], y[16];
    snprintf(x, sizeof x, "%u", *(const uint32_t *)a);
    snprintf(y, sizeof y, "%u", *(const uint32_t *)b);
    return strcmp(x, y);
}

static int rank_experts(struct layout *l)
{
    uint32_t *order = calloc(l->experts + 1, sizeof *order);
    if (!order)
        return -ENOMEM;
    for (uint32_t e = 0; e < l->experts; e++)
        order[e] = e;
    qsort(order, l->experts, sizeof *order, by_text);
    for (uint32_t i = 0; i < l->experts; i++)
        l->rank[order[i]] = i;
    free(order);
    return 0;
}

int layout_open(struct layout **out, const struct config *c)
{
    *out = NULL;
    struct layout *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    l->layers = c->layers;
    l->first_dense = c->first_dense;
    l->experts = c->experts;
    l->expert_bytes = expert_bytes(c);
    for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
        uint32_t rows, cols;
        expert_shape(which, c, &rows, &cols);
        l->length[which] = rows * cols;
    }
    l->rank = calloc(c->experts + 1, sizeof *l->rank);
    l->shape_of = calloc(c->layers + 1, sizeof *l->shape_of);
    int err = l->rank && l->shape_of ? rank_experts(l) : -ENOMEM;
    for (uint32_t file = 0; file <= c->layers && !err; file++)
        err = find_shape(l, c, file);
    if (err) {
        layout_close(l);
        return err;
    }
    *out = l;
    return 0;
}

void layout_close(struct layout *l)
{
    if (!l)
        return;
    free(l->rank);
    free(l->shape_of);
    free(l);
}

int layout_tensor(const void *layout, int layer, enum tensor_role role,
                  struct extent *out)
{
    const struct layout *l = layout;
    assert(layer >= TENSOR_MODEL_LEVEL && layer < (int)l->layers);
    assert(role < T_COUNT);
    uint32_t file = layer < 0 ? l->layers : (uint32_t)layer;
    const struct extent *e = &l->shape[l->shape_of[file]].tensor[role];
    if (!e->length_bytes)
        return -ENOENT;
    *out = *e;
    out->file = file;
    return 0;
}

void layout_expert(const struct layout *l, uint32_t layer, uint32_t expert,
                   struct extent out[EXPERT_TENSORS])
{
    assert(layer >= l->first_dense && layer < l->layers);
    assert(expert < l->experts);
    uint64_t at = l->shape[l->shape_of[layer]].first_expert +
                  l->rank[expert] * l->expert_bytes;
    for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
        out[which] = (struct extent){ layer, at, l->length[which] };
        at += l->length[which];
    }
}

uint32_t layout_files(const struct layout *l)
{
    return l->layers + 1;
}

uint64_t layout_file_bytes(const struct layout *l, uint32_t file)
{
    assert(file <= l->layers);
    return l->shape[l->shape_of[file]].file_bytes;
}

uint64_t layout_expert_frame_bytes(const struct layout *l)
{
    uint64_t max = 0;
    for (uint32_t i = 0; i < l->shapes; i++)
        for (uint32_t e = 0; l->shape[i].first_expert && e < l->experts; e++) {
            struct segment s = {
                .offset_bytes = l->shape[i].first_expert + e * l->expert_bytes,
                .length_bytes = l->expert_bytes,
            };
            uint64_t bytes = block_place(&s, 0);
            max = bytes > max ? bytes : max;
        }
    return max;
}

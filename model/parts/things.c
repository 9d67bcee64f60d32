#include "model/parts/things.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/u3.h"
#include "model/pack/pack.h"

enum { EXPERT_SPOTS = 32, RAW_BLOCK = 1 << 20 };

struct lister {
    struct things *t;
    const struct spread_shard *s;
    uint32_t room;             /* of things */
    struct thing_source *all;  /* tensors of the trunk in the shard */
    uint32_t count;
    struct extent *piece;      /* every tensor of the model in it */
    uint32_t pieces;
};

static bool add_thing(struct lister *l, struct thing thing)
{
    struct things *t = l->t;
    if (t->count == l->room) {
        uint32_t room = l->room ? 2 * l->room : 256;
        void *more = realloc(t->thing, room * sizeof *t->thing);
        if (!more)
            return false;
        t->thing = more;
        l->room = room;
    }
    t->thing[t->count++] = thing;
    return true;
}

static bool find_tensors(struct lister *l)
{
    const struct config *c = l->s->c;
    size_t most = ((size_t)c->layers + 1) * T_COUNT;
    size_t experts = (size_t)config_moe_layers(c) * c->experts;
    l->all = calloc(most, sizeof *l->all);
    l->piece = calloc(most + experts * EXPERT_TENSORS, sizeof *l->piece);
    l->t->expert = calloc(experts + 1, sizeof *l->t->expert);
    if (!l->all || !l->piece || !l->t->expert)
        return false;
    for (int layer = TENSOR_MODEL_LEVEL; layer < (int)c->layers; layer++)
        for (int r = 0; r < T_COUNT; r++) {
            struct thing_source *x = &l->all[l->count];
            x->layer = layer;
            x->role = (enum tensor_role)r;
            if (tensor_in_layer(x->role, c, layer) &&
                !ckpt_tensor(l->s->k, layer, x->role, &x->extent) &&
                x->extent.file == l->s->file)
                l->piece[l->pieces++] = l->all[l->count++].extent;
        }
    return true;
}

static int find_experts(struct lister *l, struct error *error)
{
    const struct config *c = l->s->c;
    for (uint32_t layer = c->first_dense; layer < c->layers; layer++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct extent x[EXPERT_TENSORS];
            uint32_t here = 0;
            ckpt_expert(l->s->k, layer, e, x);
            for (int i = 0; i < EXPERT_TENSORS; i++)
                here += x[i].file == l->s->file;
            if (here && here < EXPERT_TENSORS)
                return error_set(error, -ENOTSUP, "%s: expert %" PRIu32 " of "
                                 "layer %" PRIu32 " lies in two shards, which "
                                 "spread does not support",
                                 ckpt_path(l->s->k, l->s->file), e, layer);
            for (uint32_t i = 0; i < here; i++)
                l->piece[l->pieces++] = x[i];
            if (here)
                l->t->expert[l->t->experts++] =
                    (layer - c->first_dense) * c->experts + e;
        }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->offset_bytes < y->offset_bytes ? -1 : 1;
}

/* What is in no tensor, in pieces. */
static bool find_rests(struct lister *l)
{
    struct things *t = l->t;
    uint64_t at = 0;
    uint32_t room = 0;
    qsort(l->piece, l->pieces, sizeof *l->piece, by_offset);
    for (uint32_t i = 0; i <= l->pieces; i++) {
        uint64_t end = i < l->pieces ? l->piece[i].offset_bytes : t->bytes;
        while (at < end) {
            uint64_t n = end - at < PART_REST_MAX ? end - at : PART_REST_MAX;
            if (t->rests == room) {
                room = room ? 2 * room : 64;
                void *more = realloc(t->rest, room * sizeof *t->rest);
                if (!more)
                    return false;
                t->rest = more;
            }
            t->rest[t->rests++] = (struct part_rest){
                .source_at = at, .ref.bytes = (uint32_t)n };
            at += n;
        }
        if (i < l->pieces)
            at = l->piece[i].offset_bytes + l->piece[i].length_bytes;
    }
    for (uint32_t i = 0; i < t->rests && l->s->path[0]; i++)
        if (!add_thing(l, (struct thing){ .kind = THING_REST, .index = i }))
            return false;
    return true;
}

/* Those of a layer are one thing. */
static bool list_smalls(struct lister *l)
{
    struct things *t = l->t;
    t->small = calloc(l->count + 1, sizeof *t->small);
    if (!t->small)
        return false;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct thing_source *x = &l->all[i];
        if (!cuts_small(x->role, l->s->c, x->layer))
            continue;
        bool goes_on = t->smalls && t->small[t->smalls - 1].layer == x->layer;
        t->small[t->smalls] = *x;
        if (goes_on)
            t->thing[t->count - 1].block++;
        else if (!add_thing(l, (struct thing){ .kind = THING_SMALLS,
                                               .index = t->smalls,
                                               .block = 1 }))
            return false;
        t->smalls++;
    }
    return true;
}

static bool add_matrix(struct lister *l, const struct thing_source *x,
                       uint32_t part)
{
    struct things *t = l->t;
    const struct config *c = l->s->c;
    struct row_range own = cuts_rows(&l->s->o->cuts, part, x->role, c,
                                     x->layer);
    uint32_t rows, cols, n = t->head[part].matrices;
    if (own.begin == own.end)
        return true;
    tensor_shape(x->role, c, x->layer, &rows, &cols);
    bool coded = !l->s->o->raw && pack_codes(x->role, c, x->layer);
    uint32_t each = RAW_BLOCK / (2 * cols);
    struct part_matrix *m = &t->matrix[part][n];
    t->source[part][n] = *x;
    *m = (struct part_matrix){
        .layer = x->layer, .role = x->role, .row = own.begin,
        .rows = own.end - own.begin, .cols = cols, .coded = coded,
        .block_rows = coded  ? u3_rows_within(cols, pack_block_bytes(c))
                      : each ? each
                             : 1,
        .first_block = t->head[part].blocks };
    m->block_count = (m->rows - 1) / m->block_rows + 1;
    t->head[part].matrices++;
    t->head[part].blocks += m->block_count;
    for (uint32_t b = 0; b < m->block_count; b++)
        if (!add_thing(l, (struct thing){ .kind = THING_BLOCK,
                                          .part = (uint8_t)part, .index = n,
                                          .block = b }))
            return false;
    return true;
}

static bool list_matrices(struct lister *l)
{
    for (uint32_t r = 0; r < l->s->o->cuts.parts; r++) {
        l->t->matrix[r] = calloc(l->count + 1, sizeof *l->t->matrix[r]);
        l->t->source[r] = calloc(l->count + 1, sizeof *l->t->source[r]);
        if (!l->t->matrix[r] || !l->t->source[r])
            return false;
    }
    for (uint32_t i = 0; i < l->count; i++)
        for (uint32_t r = 0; r < l->s->o->cuts.parts; r++)
            if (l->s->path[r] &&
                !cuts_small(l->all[i].role, l->s->c, l->all[i].layer) &&
                !add_matrix(l, &l->all[i], r))
                return false;
    return true;
}

static bool list_experts(struct lister *l)
{
    for (uint32_t i = 0; i < l->t->experts; i++)
        if (!add_thing(l, (struct thing){ .kind = THING_EXPERT, .index = i }))
            return false;
    return true;
}

/* In the middle of matrices and in scales of experts. */
static bool place_spots(struct lister *l)
{
    struct things *t = l->t;
    uint32_t experts = t->experts < EXPERT_SPOTS ? t->experts : EXPERT_SPOTS;
    t->spot = calloc(l->count + experts + 1, sizeof *t->spot);
    if (!t->spot)
        return false;
    for (uint32_t i = 0; i < l->count + experts && t->bytes >= SIDECAR_SPOT;
         i++) {
        struct extent e[EXPERT_TENSORS], *x = &l->all[i].extent;
        if (i >= l->count) {
            uint32_t n = t->expert[(uint64_t)(i - l->count) * t->experts /
                                   experts];
            ckpt_expert(l->s->k, l->s->c->first_dense + n / l->s->c->experts,
                        n % l->s->c->experts, e);
            x = &e[2 * (i % SIDECAR_PLANES) + 1];
        } else if (cuts_small(l->all[i].role, l->s->c, l->all[i].layer)) {
            continue;
        }
        uint64_t at = x->offset_bytes + x->length_bytes / 2;
        if (at > t->bytes - SIDECAR_SPOT)
            at = t->bytes - SIDECAR_SPOT;
        t->spot[t->spots++].source_at = at;
    }
    return true;
}

static void fill_heads(struct lister *l)
{
    struct things *t = l->t;
    const struct cuts *cuts = &l->s->o->cuts;
    for (uint32_t r = 0; r < cuts->parts; r++) {
        struct part_head *h = &t->head[r];
        h->model = l->s->model;
        h->part = r;
        h->parts = cuts->parts;
        h->shard = l->s->file;
        h->shards = ckpt_files(l->s->k);
        memcpy(h->weight, cuts->weight, cuts->parts * sizeof *h->weight);
        h->smalls = t->smalls;
        h->rests = r ? 0 : t->rests;
        h->spots = t->spots;
        h->experts = slice_shape(cuts, r, l->s->c).weights_bytes ? t->experts
                                                                 : 0;
    }
}

int things_list(struct things *t, const struct spread_shard *s,
                struct error *error)
{
    struct lister l = { .t = t, .s = s };
    memset(t, 0, sizeof *t);
    t->bytes = ckpt_file_size(s->k, s->file);
    bool good = find_tensors(&l);
    int code = good ? find_experts(&l, error) : 0;
    if (!code)
        good = good && find_rests(&l) && list_smalls(&l) &&
               list_matrices(&l) && list_experts(&l) && place_spots(&l);
    if (!code && !good)
        code = error_set(error, -ENOMEM, "%s: no memory",
                         ckpt_path(s->k, s->file));
    if (!code)
        fill_heads(&l);
    free(l.all);
    free(l.piece);
    if (code)
        things_free(t);
    return code;
}

void things_free(struct things *t)
{
    free(t->thing);
    free(t->rest);
    free(t->small);
    free(t->expert);
    free(t->spot);
    for (uint32_t r = 0; r < CUTS_PARTS_MAX; r++) {
        free(t->matrix[r]);
        free(t->source[r]);
    }
    memset(t, 0, sizeof *t);
}

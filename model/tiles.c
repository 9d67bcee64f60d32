#include "model/tiles.h"

#include <errno.h>
#include <stdlib.h>

#include "model/ckpt.h"

enum {
    TILE_BYTES_MAX = 8 << 20,
    TILE_BYTES_MIN = 16 << 10,
    TILES_AIM = 1024, /* tiles in the circle of a small model */
};

static const uint64_t trunk_bytes_max = 16ull << 40;

/* In the order of use inside a layer. */
static const enum tensor_role small_roles[] = {
    T_INPUT_NORM, T_POST_NORM, T_ATTN_RES_NORM, T_ATTN_RES_PROJ,
    T_MLP_RES_NORM, T_MLP_RES_PROJ, T_QCONV, T_KCONV, T_VCONV, T_A_LOG,
    T_DT_BIAS, T_O_NORM, T_FA, T_FB, T_B, T_QA_NORM, T_KVA_NORM,
    T_ROUTER_BIAS, T_LATENT_NORM, T_NORM, T_OUT_RES_NORM, T_OUT_RES_PROJ,
};
static const enum tensor_role large_roles[] = {
    T_Q, T_K, T_V, T_QA, T_QB, T_KVA, T_KVB, T_G, T_O,
    T_GATE_PROJ, T_UP_PROJ, T_DOWN_PROJ,
    T_ROUTER, T_LATENT_DOWN, T_SHARED_GATE, T_SHARED_UP, T_SHARED_DOWN,
    T_LATENT_UP, T_HEAD,
};

enum { SMALL = sizeof small_roles / sizeof *small_roles,
       LARGE = sizeof large_roles / sizeof *large_roles };

struct builder {
    struct tiles *t;
    const struct tiles_source *source;
    const struct config *c;
    uint64_t aim_bytes; /* a tile should have about so many */
    uint32_t tile_room, first_room, segment_room, piece_room;
};

bool tiles_small(enum tensor_role role)
{
    for (int i = 0; i < SMALL; i++)
        if (small_roles[i] == role)
            return true;
    return false;
}

static int grow(void **array, uint32_t *room, uint32_t count, size_t size)
{
    if (count < *room)
        return 0;
    uint32_t wanted = *room ? *room * 2 : 64;
    void *bigger = realloc(*array, wanted * size);
    if (!bigger)
        return -ENOMEM;
    *array = bigger;
    *room = wanted;
    return 0;
}

static int open_tile(struct builder *b)
{
    struct tiles *t = b->t;
    int err = grow((void **)&t->tile, &b->tile_room, t->count,
                   sizeof *t->tile);
    if (!err) /* one more than tiles: the end of the last */
        err = grow((void **)&t->first_piece, &b->first_room, t->count + 1,
                   sizeof *t->first_piece);
    if (err)
        return err;
    t->tile[t->count] =
        (struct stream_tile){ .first_segment = t->segment_count };
    t->first_piece[t->count] = t->piece_count;
    return 0;
}

static void close_tile(struct builder *b)
{
    struct tiles *t = b->t;
    struct stream_tile *tile = &t->tile[t->count];
    tile->segment_count = t->segment_count - tile->first_segment;
    t->payload_bytes += tile->payload_bytes;
    if (tile->frame_bytes > t->largest_frame_bytes)
        t->largest_frame_bytes = tile->frame_bytes;
    t->count++;
    t->first_piece[t->count] = t->piece_count;
}

/* Add an extent to the open tile; bytes that continue the last one extend its
 * segment. Sets *at to the place of its first byte. */
static int add_extent(struct builder *b, const struct extent *e, uint32_t *at)
{
    struct tiles *t = b->t;
    struct stream_tile *tile = &t->tile[t->count];
    tile->payload_bytes += e->length_bytes;
    if (t->segment_count > tile->first_segment) {
        struct segment *last = &t->segment[t->segment_count - 1];
        if (last->file == e->file &&
            last->offset_bytes + last->length_bytes == e->offset_bytes) {
            *at = last->at + (uint32_t)last->length_bytes;
            uint64_t base = last->at - last->offset_bytes % BLOCK_PAGE;
            last->length_bytes += e->length_bytes;
            tile->frame_bytes = block_place(last, base);
            return tile->frame_bytes <= UINT32_MAX ? 0 : -EOVERFLOW;
        }
    }
    int err = grow((void **)&t->segment, &b->segment_room, t->segment_count,
                   sizeof *t->segment);
    if (err)
        return err;
    struct segment *s = &t->segment[t->segment_count++];
    *s = (struct segment){ .file = e->file, .offset_bytes = e->offset_bytes,
                           .length_bytes = e->length_bytes };
    tile->frame_bytes = block_place(s, tile->frame_bytes);
    *at = s->at;
    return tile->frame_bytes <= UINT32_MAX ? 0 : -EOVERFLOW;
}

static int add_piece(struct builder *b, int layer, enum tensor_role role,
                     uint32_t row, uint32_t rows, uint64_t row_bytes,
                     const struct extent *e)
{
    struct tiles *t = b->t;
    uint32_t at;
    int err = add_extent(b, e, &at);
    if (!err)
        err = grow((void **)&t->piece, &b->piece_room, t->piece_count,
                   sizeof *t->piece);
    if (err)
        return err;
    t->piece[t->piece_count++] = (struct tile_piece){
        .layer = layer, .role = role, .row = row, .rows = rows, .at = at,
        .row_bytes = row_bytes };
    uint32_t i = (uint32_t)(layer + 1) * T_COUNT + role;
    if (!t->tile_count[i])
        t->first_tile[i] = t->count;
    t->tile_count[i] = t->count - t->first_tile[i] + 1;
    return 0;
}

bool tiles_in_place(uint32_t role)
{
    return role == T_FA || role == T_FB || role == T_B;
}

struct small_extent {
    struct extent extent;
    enum tensor_role role;
    int turn; /* before those with a greater one */
};

static int by_turn_and_offset(const void *a, const void *b)
{
    const struct small_extent *x = a, *y = b;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    if (x->extent.file != y->extent.file)
        return x->extent.file < y->extent.file ? -1 : 1;
    return x->extent.offset_bytes < y->extent.offset_bytes ? -1 : 1;
}

/* When the small tensors of a layer are in several files: vectors first, since
 * the matrices among them are used at once and need the vectors; f_b after f_a,
 * whose product it takes. */
static int turn_of(enum tensor_role role)
{
    return !tiles_in_place(role) ? 0 : role == T_FA ? 1 : 2;
}

/* The small tensors of a layer, in the order of the file so that neighbours
 * become one read: one tile where they are all in one file. */
static int add_small(struct builder *b, int layer)
{
    struct small_extent found[SMALL];
    bool spread = false;
    int n = 0;
    for (int i = 0; i < SMALL; i++) {
        if (!tensor_in_layer(small_roles[i], b->c, layer))
            continue;
        found[n].role = small_roles[i];
        int err = b->source->tensor(b->source->arg, layer, small_roles[i],
                                    &found[n].extent);
        if (err)
            return err;
        spread |= found[n].extent.file != found[0].extent.file;
        n++;
    }
    for (int i = 0; i < n; i++)
        found[i].turn = spread ? turn_of(found[i].role) : 0;
    qsort(found, (size_t)n, sizeof *found, by_turn_and_offset);
    for (int i = 0; i < n; i++) {
        uint32_t rows, cols;
        const struct extent *e = &found[i].extent;
        bool fresh = !i || found[i - 1].extent.file != e->file;
        if (fresh && i)
            close_tile(b);
        int err = fresh ? open_tile(b) : 0;
        tensor_shape(found[i].role, b->c, layer, &rows, &cols);
        if (!err)
            err = add_piece(b, layer, found[i].role, 0, rows,
                            e->length_bytes / (rows ? rows : 1), e);
        if (err)
            return err;
    }
    if (n)
        close_tile(b);
    return 0;
}

/* Rows that must stay together: kv_b_proj is cut at head boundaries. */
static uint32_t unit_rows(const struct builder *b, enum tensor_role role)
{
    return role == T_KVB ? b->c->nope + b->c->v_dim : 1;
}

static int add_large(struct builder *b, int layer, enum tensor_role role)
{
    struct extent whole;
    uint32_t rows, cols;
    int err = b->source->tensor(b->source->arg, layer, role, &whole);
    if (err)
        return err;
    tensor_shape(role, b->c, layer, &rows, &cols);
    uint64_t row_bytes = whole.length_bytes / rows;
    uint32_t unit = unit_rows(b, role);
    uint64_t tiles = (whole.length_bytes + b->aim_bytes - 1) / b->aim_bytes;
    uint64_t each = (rows / unit + tiles - 1) / tiles * unit;
    for (uint32_t row = 0; row < rows; row += (uint32_t)each) {
        uint32_t n = rows - row < each ? rows - row : (uint32_t)each;
        struct extent part = {
            .file = whole.file,
            .offset_bytes = whole.offset_bytes + row * row_bytes,
            .length_bytes = n * row_bytes,
        };
        err = open_tile(b);
        if (!err)
            err = add_piece(b, layer, role, row, n, row_bytes, &part);
        if (err)
            return err;
        close_tile(b);
    }
    return 0;
}

static int add_layer(struct builder *b, int layer)
{
    int err = add_small(b, layer);
    for (int i = 0; i < LARGE && !err; i++)
        if (tensor_in_layer(large_roles[i], b->c, layer))
            err = add_large(b, layer, large_roles[i]);
    return err;
}

static int trunk_bytes(const struct builder *b, uint64_t *bytes)
{
    *bytes = 0;
    for (int layer = -1; layer < (int)b->c->layers; layer++)
        for (int role = 0; role < T_COUNT; role++) {
            struct extent e;
            if (role == T_EMBED ||
                !tensor_in_layer((enum tensor_role)role, b->c, layer))
                continue;
            int err = b->source->tensor(b->source->arg, layer,
                                        (enum tensor_role)role, &e);
            if (err)
                return err;
            *bytes += e.length_bytes;
        }
    return 0;
}

int tiles_build(struct tiles **out, const struct tiles_source *source,
                const struct config *c, struct why *why)
{
    *out = NULL;
    struct builder b = { .source = source, .c = c };
    size_t places = (size_t)(c->layers + 1) * T_COUNT;
    b.t = calloc(1, sizeof *b.t);
    if (!b.t)
        return why_set(why, -ENOMEM, "no memory for the table of tiles");
    b.t->first_tile = calloc(places, sizeof *b.t->first_tile);
    b.t->tile_count = calloc(places, sizeof *b.t->tile_count);
    uint64_t bytes;
    int err = b.t->first_tile && b.t->tile_count ? trunk_bytes(&b, &bytes)
                                                 : -ENOMEM;
    if (!err && bytes > trunk_bytes_max)
        err = -EOVERFLOW;
    if (!err) {
        b.aim_bytes = bytes / TILES_AIM;
        if (b.aim_bytes > TILE_BYTES_MAX)
            b.aim_bytes = TILE_BYTES_MAX;
        if (b.aim_bytes < TILE_BYTES_MIN)
            b.aim_bytes = TILE_BYTES_MIN;
    }
    for (int layer = 0; layer < (int)c->layers && !err; layer++)
        err = add_layer(&b, layer);
    if (!err)
        err = add_layer(&b, TENSOR_MODEL_LEVEL);
    if (err) {
        tiles_free(b.t);
        if (err == -EOVERFLOW)
            return why_set(why, -ENOTSUP, "the config gives a trunk above 16 "
                           "TiB, or more than 4 GiB of one layer's small "
                           "tensors: not served");
        return why_set(why, err, "no memory for the table of tiles");
    }
    *out = b.t;
    return 0;
}

void tiles_free(struct tiles *t)
{
    if (!t)
        return;
    free(t->tile);
    free(t->segment);
    free(t->first_piece);
    free(t->piece);
    free(t->first_tile);
    free(t->tile_count);
    free(t);
}

const struct tile_piece *tiles_piece(const struct tiles *t, uint32_t tile,
                                     int layer, enum tensor_role role)
{
    for (uint32_t p = t->first_piece[tile]; p < t->first_piece[tile + 1]; p++)
        if (t->piece[p].layer == layer && t->piece[p].role == (uint32_t)role)
            return &t->piece[p];
    return NULL;
}

#include "model/k3/tiles.h"

#include <errno.h>
#include <stdlib.h>

#include "model/ckpt/ckpt.h"
#include "model/pack/box.h"

enum {
    TILE_BYTES_MAX = 8 << 20,
    TILE_BYTES_MIN = 16 << 10,
    TILES_WANTED = 1024, /* of a model whose trunk is small */
};

static const uint64_t trunk_bytes_max = 16ull << 40;

struct builder {
    struct tiles *t;
    const struct tiles_source *source;
    const struct config *c;
    uint64_t wanted_bytes; /* approximate size of a tile */
    uint32_t tile_room, first_room, segment_room, piece_room;
};

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

/* Add an extent to the open tile. Sets *at to the byte of the frame where its
 * first byte lands. */
static int add_extent(struct builder *b, const struct extent *e, uint32_t *at)
{
    struct tiles *t = b->t;
    struct stream_tile *tile = &t->tile[t->count];
    int err = grow((void **)&t->segment, &b->segment_room, t->segment_count,
                   sizeof *t->segment);
    if (err)
        return err;
    uint32_t first = tile->first_segment, count = t->segment_count - first;
    err = block_add(t->segment + first, &count, &tile->frame_bytes, e->file,
                    e->offset_bytes, e->length_bytes, at);
    t->segment_count = first + count;
    tile->payload_bytes += e->length_bytes;
    return err;
}

static int add_piece(struct builder *b, uint32_t step, enum tensor_role role,
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
        .tile = t->count, .step = step, .layer = t->steps.step[step].layer,
        .role = role, .row = row, .rows = rows, .at = at,
        .row_bytes = row_bytes };
    t->decoded_bytes += rows * row_bytes;
    return 0;
}

/* A tensor of the tile of vectors. */
struct vector {
    struct extent extent;
    enum tensor_role role;
    uint32_t step;
    uint32_t turn; /* sort key: ascending, then by file and offset */
};

static int by_turn_and_offset(const void *a, const void *b)
{
    const struct vector *x = a, *y = b;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    if (x->extent.file != y->extent.file)
        return x->extent.file < y->extent.file ? -1 : 1;
    return x->extent.offset_bytes < y->extent.offset_bytes ? -1 : 1;
}

/* The vectors of a layer, in the order of the file so that neighbours become
 * one read: one tile where they are all in one file, else in the order of their
 * steps. */
static int add_vectors(struct builder *b, uint32_t n, const uint8_t *role,
                       const uint32_t *step)
{
    struct vector found[T_COUNT];
    bool spread = false;
    int32_t layer = n ? b->t->steps.step[step[0]].layer : 0;
    for (uint32_t i = 0; i < n; i++) {
        found[i].role = (enum tensor_role)role[i];
        found[i].step = step[i];
        int err = b->source->tensor(b->source->arg, layer, found[i].role,
                                    &found[i].extent);
        if (err)
            return err;
        spread |= found[i].extent.file != found[0].extent.file;
    }
    for (uint32_t i = 0; i < n; i++)
        found[i].turn = spread ? found[i].step : 0;
    qsort(found, n, sizeof *found, by_turn_and_offset);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rows, cols;
        const struct extent *e = &found[i].extent;
        bool fresh = !i || found[i - 1].extent.file != e->file;
        if (fresh && i)
            close_tile(b);
        int err = fresh ? open_tile(b) : 0;
        tensor_shape(found[i].role, b->c, layer, &rows, &cols);
        if (!err)
            err = add_piece(b, found[i].step, found[i].role, 0, rows,
                            e->length_bytes / (rows ? rows : 1), e);
        if (err)
            return err;
    }
    if (n)
        close_tile(b);
    return 0;
}

/* The least number of rows that is a whole number of blocks and of units. */
static uint64_t whole_rows(uint32_t block_rows, uint32_t unit)
{
    uint64_t a = block_rows, b = unit;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (uint64_t)block_rows / a * unit;
}

/* The tiles of a slice, and how many of them were made. */
struct turn {
    struct tiles_slice *slice;
    uint64_t each;  /* rows of a tile */
    uint32_t tiles, made;
};

/* Bytes that a slice is read as. */
static uint64_t stored_bytes(const struct tiles_slice *x)
{
    if (!x->coded.blocks)
        return x->at.length_bytes;
    const struct box_ref *last = &x->coded.block[x->coded.blocks - 1];
    return last->at + last->bytes - x->coded.block[0].at;
}

/* Tiles of whole units and, coded, of whole blocks, as near to wanted_bytes as
 * these allow. */
static struct turn turn_of(const struct builder *b, const struct step *s,
                           struct tiles_slice *x)
{
    uint64_t unit = x->coded.blocks ? whole_rows(x->coded.block_rows, s->unit)
                                    : s->unit;
    uint64_t tiles = (stored_bytes(x) + b->wanted_bytes - 1) / b->wanted_bytes;
    uint64_t units = (x->rows + unit - 1) / unit;
    struct turn t = { .slice = x,
                      .each = (units + tiles - 1) / tiles * unit };
    t.tiles = (uint32_t)((x->rows + t.each - 1) / t.each);
    return t;
}

/* Rows [row, row + n) of a slice, counted from its first. */
static struct extent extent_of(const struct tiles_slice *x, uint64_t row,
                               uint64_t n, uint64_t row_bytes)
{
    if (!x->coded.blocks)
        return (struct extent){
            .file = x->at.file,
            .offset_bytes = x->at.offset_bytes + row * row_bytes,
            .length_bytes = n * row_bytes };
    const struct box_ref *first = &x->coded.block[row / x->coded.block_rows];
    const struct box_ref *last =
        &x->coded.block[(row + n - 1) / x->coded.block_rows];
    return (struct extent){
        .file = x->coded.file, .offset_bytes = first->at,
        .length_bytes = last->at + last->bytes - first->at };
}

static int add_tile(struct builder *b, uint32_t step, struct turn *t,
                    uint64_t row_bytes)
{
    const struct tiles_slice *x = t->slice;
    enum tensor_role role = (enum tensor_role)b->t->steps.step[step].role;
    uint64_t row = t->made++ * t->each;
    uint64_t n = x->rows - row < t->each ? x->rows - row : t->each;
    struct extent part = extent_of(x, row, n, row_bytes);
    int err = open_tile(b);
    if (!err)
        err = add_piece(b, step, role, x->row + (uint32_t)row, (uint32_t)n,
                        row_bytes, &part);
    if (err)
        return err;
    struct tile_piece *piece = &b->t->piece[b->t->piece_count - 1];
    if (x->coded.blocks) {
        uint32_t first = (uint32_t)(row / x->coded.block_rows);
        piece->block = &x->coded.block[first];
        piece->block_rows = x->coded.block_rows;
        piece->blocks =
            (uint32_t)((row + n - 1) / x->coded.block_rows + 1) - first;
        piece->first_block = b->t->blocks;
        b->t->blocks += piece->blocks;
    }
    close_tile(b);
    return 0;
}

/* The files of a matrix: one, unless the source divides it. */
static int find_slices(const struct builder *b, const struct step *s,
                       struct tiles_slice slice[TILES_SLICES_MAX],
                       uint32_t *count)
{
    enum tensor_role role = (enum tensor_role)s->role;
    const struct tiles_source *from = b->source;
    uint32_t rows, cols;
    tensor_shape(role, b->c, s->layer, &rows, &cols);
    if (from->slices) {
        *count = from->slices(from->arg, s->layer, role, slice);
        return 0;
    }
    *count = 1;
    slice[0] = (struct tiles_slice){ .rows = rows };
    int err = from->tensor(from->arg, s->layer, role, &slice[0].at);
    if (err)
        return err;
    if (from->owned) { /* these rows, as they are in the shard */
        struct extent *at = &slice[0].at;
        uint64_t row_bytes = at->length_bytes / rows;
        slice[0].row = s->own.begin;
        slice[0].rows = s->own.end - s->own.begin;
        at->offset_bytes += slice[0].row * row_bytes;
        at->length_bytes = slice[0].rows * row_bytes;
        *count = slice[0].rows ? 1 : 0;
        return 0;
    }
    if (!from->coded || !from->coded(from->coded_arg, &slice[0].at, rows, cols,
                                     &slice[0].coded))
        slice[0].coded.blocks = 0;
    return 0;
}

/* The tiles of a matrix: of several slices, always one of that which is
 * furthest behind, so that all drives have read as much of it. */
static int add_matrix(struct builder *b, uint32_t step)
{
    const struct step *s = &b->t->steps.step[step];
    struct tiles_slice slice[TILES_SLICES_MAX];
    struct turn turn[TILES_SLICES_MAX];
    uint32_t rows, cols, slices, left = 0;
    tensor_shape((enum tensor_role)s->role, b->c, s->layer, &rows, &cols);
    uint64_t row_bytes = (uint64_t)cols *
                         tensor_dtype_bytes(tensor_dtype(s->role));
    int err = find_slices(b, s, slice, &slices);
    for (uint32_t i = 0; i < slices && !err; i++) {
        turn[i] = turn_of(b, s, &slice[i]);
        left += turn[i].tiles;
    }
    for (; left && !err; left--) {
        struct turn *next = turn;
        for (uint32_t i = 1; i < slices; i++)
            if ((2 * turn[i].made + 1) * (uint64_t)next->tiles <
                (2 * next->made + 1) * (uint64_t)turn[i].tiles)
                next = &turn[i];
        err = add_tile(b, step, next, row_bytes);
    }
    return err;
}

static int add_steps(struct builder *b)
{
    uint8_t role[T_COUNT];
    uint32_t step[T_COUNT];
    int err = 0;
    for (uint32_t i = 0; i < b->t->steps.count && !err; i++) {
        uint32_t n = steps_weights(&b->t->steps, i, role, step);
        if (b->t->steps.step[i].op == STEP_VECTORS)
            err = add_vectors(b, n, role, step);
        else if (n)
            err = add_matrix(b, i);
    }
    return err;
}

static int trunk_bytes(const struct builder *b, uint64_t *bytes)
{
    uint8_t role[T_COUNT];
    uint32_t step[T_COUNT];
    *bytes = 0;
    for (uint32_t i = 0; i < b->t->steps.count; i++) {
        uint32_t n = steps_weights(&b->t->steps, i, role, step);
        for (uint32_t j = 0; j < n; j++) {
            struct extent e;
            if (b->source->slices &&
                b->t->steps.step[i].op != STEP_VECTORS) {
                const struct row_range own = b->t->steps.step[i].own;
                uint32_t rows, cols;
                tensor_shape((enum tensor_role)role[j], b->c,
                             b->t->steps.step[i].layer, &rows, &cols);
                *bytes += 2ull * (own.end - own.begin) * cols;
                continue;
            }
            int err = b->source->tensor(b->source->arg,
                                        b->t->steps.step[i].layer,
                                        (enum tensor_role)role[j], &e);
            if (err)
                return err;
            const struct step *s = &b->t->steps.step[i];
            if (s->op == STEP_VECTORS)
                *bytes += e.length_bytes;
            else
                *bytes += e.length_bytes / s->width *
                          (s->own.end - s->own.begin);
        }
    }
    return 0;
}

/* Pieces in the order of the steps, and when each tile was used for the last
 * time. */
static int list_uses(struct tiles *t)
{
    t->use = calloc(t->piece_count + 1, sizeof *t->use);
    t->first_use = calloc(t->steps.count + 2, sizeof *t->first_use);
    t->last_use = calloc(t->count + 1, sizeof *t->last_use);
    if (!t->use || !t->first_use || !t->last_use)
        return -ENOMEM;
    for (uint32_t p = 0; p < t->piece_count; p++)
        t->first_use[t->piece[p].step + 1]++;
    for (uint32_t i = 0; i < t->steps.count; i++)
        t->first_use[i + 1] += t->first_use[i];
    for (uint32_t p = 0; p < t->piece_count; p++)
        t->use[t->first_use[t->piece[p].step]++] = p;
    for (uint32_t i = t->steps.count; i > 0; i--)
        t->first_use[i] = t->first_use[i - 1]; /* each moved to its end */
    t->first_use[0] = 0;
    for (uint32_t u = 0; u < t->piece_count; u++)
        t->last_use[tiles_use(t, u)->tile] = u;
    return 0;
}

int tiles_build(struct tiles **out, const struct tiles_source *source,
                const struct config *c, struct error *error)
{
    *out = NULL;
    struct builder b = { .source = source, .c = c };
    b.t = calloc(1, sizeof *b.t);
    if (!b.t)
        return error_set(error, -ENOMEM, "no memory for the table of tiles");
    uint64_t bytes;
    int err = steps_build(&b.t->steps, c, source->owned);
    if (!err)
        err = trunk_bytes(&b, &bytes);
    if (!err && bytes > trunk_bytes_max)
        err = -EOVERFLOW;
    if (!err) {
        b.wanted_bytes = bytes / TILES_WANTED;
        if (b.wanted_bytes > TILE_BYTES_MAX)
            b.wanted_bytes = TILE_BYTES_MAX;
        if (b.wanted_bytes < TILE_BYTES_MIN)
            b.wanted_bytes = TILE_BYTES_MIN;
        err = add_steps(&b);
    }
    if (!err)
        err = list_uses(b.t);
    if (err) {
        tiles_free(b.t);
        if (err == -EOVERFLOW)
            return error_set(error, -ENOTSUP,
                             "the config gives a trunk above 16 "
                             "TiB, or more than 4 GiB of one layer's "
                             "vectors: not supported");
        return error_set(error, err, "no memory for the table of tiles");
    }
    *out = b.t;
    return 0;
}

void tiles_free(struct tiles *t)
{
    if (!t)
        return;
    steps_free(&t->steps);
    free(t->tile);
    free(t->segment);
    free(t->first_piece);
    free(t->piece);
    free(t->use);
    free(t->first_use);
    free(t->last_use);
    free(t);
}

bool tiles_hold_vectors(const struct tiles *t, uint32_t tile)
{
    const struct step *s = &t->steps.step[tiles_first_piece(t, tile)->step];
    return s->op == STEP_VECTORS || s->flags & STEP_WITH_VECTORS;
}

uint64_t tiles_decoded_bytes(const struct tiles *t, uint32_t tile)
{
    uint64_t sum = 0;
    for (uint32_t p = t->first_piece[tile]; p < t->first_piece[tile + 1]; p++)
        sum += t->piece[p].rows * t->piece[p].row_bytes;
    return sum;
}

/* Where the frame as it is read begins in the one for decoding. A block may be
 * decoded when the next one lies behind what it becomes. */
static uint64_t read_at(const struct tile_piece *p)
{
    uint64_t at = 0;
    for (uint32_t b = 0; b + 1 < p->blocks; b++) {
        uint64_t end = (b + 1ull) * p->block_rows * p->row_bytes;
        uint64_t next = p->at + (p->block[b + 1].at - p->block[0].at);
        if (end > next && end - next > at)
            at = end - next;
    }
    return block_pages(at);
}

uint64_t tiles_decoded_frame(const struct tiles *t, uint32_t tile)
{
    const struct tile_piece *p = tiles_first_piece(t, tile);
    uint64_t bytes = block_pages(p->rows * p->row_bytes);
    uint64_t end = read_at(p) + t->tile[tile].frame_bytes;
    return bytes > end ? bytes : end;
}

void tiles_read_for_decoding(struct tiles *t, uint32_t tile)
{
    struct stream_tile *to = &t->tile[tile];
    struct tile_piece *p = &t->piece[t->first_piece[tile]];
    uint64_t bytes = tiles_decoded_frame(t, tile), at = read_at(p);
    for (uint32_t i = 0; i < to->segment_count; i++)
        t->segment[to->first_segment + i].at += (uint32_t)at;
    p->at += (uint32_t)at;
    to->frame_bytes = bytes;
}

void tiles_set_decoded(struct tiles *t, uint32_t tile)
{
    struct tile_piece *p = &t->piece[t->first_piece[tile]];
    p->block = NULL;
    p->blocks = 0;
    p->at = 0;
}

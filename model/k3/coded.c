#include "model/k3/coded.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "model/k3/k3_internal.h"
#include "model/pack/object.h"
#include "model/pack/source.h"

enum { EXPAND_ROWS = 512, DECODE_GRAIN = 4, COPY_GRAIN = 64 << 10 };

/* ---- where ---- */

/* Rows of coded weights are not cut: who owns some of the rows reads the
 * shards. */
const struct sidecars *coded_trunk(const struct k3_options *o)
{
    return o->owned || o->packed_skip & SIDECAR_TRUNK ? NULL : o->sidecars;
}

const struct sidecars *coded_scales(const struct k3_options *o)
{
    return o->owned || o->packed_skip & SIDECAR_SCALES ? NULL : o->sidecars;
}

bool coded_elsewhere(const struct sidecars *set, const struct ckpt *ckpt)
{
    struct stat a, b;
    for (uint32_t f = 0; set && f < set->files; f++)
        if (set->of[f] && !stat(set->of[f]->path, &a) &&
            !stat(ckpt_path(ckpt, f), &b) && a.st_dev != b.st_dev)
            return true;
    return false;
}

uint32_t coded_files(const struct sidecars *set)
{
    return set ? set->used : 0;
}

const char *coded_path(const struct sidecars *set, uint32_t file)
{
    for (uint32_t f = 0; set && f < set->files; f++)
        if (set->of[f] && set->number[f] == file)
            return set->of[f]->path;
    return "a file of coded weights";
}

bool coded_find(const struct sidecars *set, const struct extent *e,
                uint32_t rows, uint32_t cols, struct tiles_coded *out)
{
    const struct sidecar *s = set && e->file < set->files ? set->of[e->file]
                                                          : NULL;
    const struct sidecar_tensor *t =
        s ? sidecar_find(s, e->offset_bytes, rows, cols) : NULL;
    if (!t)
        return false;
    *out = (struct tiles_coded){ .file = set->number[e->file],
                                 .block = s->block + t->first_block,
                                 .block_rows = t->block_rows,
                                 .blocks = t->block_count };
    return true;
}

static const struct sidecar_expert *find_expert(const struct sidecars *set,
                                                const struct extent *e)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < EXPERT_TENSORS; i++)
        first = e[i].offset_bytes < first ? e[i].offset_bytes : first;
    return set && e[0].file < set->files && set->of[e[0].file]
               ? sidecar_find_expert(set->of[e[0].file], first)
               : NULL;
}

/* The nibbles as segments of their own, whose pages no other has; false when
 * that cannot be. */
static bool place_nibbles(struct load *load, const struct extent *e,
                          uint64_t *end)
{
    uint64_t from[3], to[3];
    load->segment_count = 0;
    for (int i = 0; i < 3; i++) {
        const struct extent *x = &e[2 * i];
        load->segment[i] = (struct segment){
            .file = x->file, .at = load->part_at[2 * i],
            .offset_bytes = x->offset_bytes, .length_bytes = x->length_bytes };
        from[i] = load->part_at[2 * i] / BLOCK_PAGE;
        to[i] = block_pages(load->part_at[2 * i] + x->length_bytes) /
                BLOCK_PAGE;
        for (int j = 0; j < i; j++)
            if (from[i] < to[j] && from[j] < to[i])
                return false;
        *end = to[i] * BLOCK_PAGE > *end ? to[i] * BLOCK_PAGE : *end;
    }
    load->segment_count = 3;
    return true;
}

uint64_t coded_place_expert(const struct sidecars *set,
                            const struct extent *e, struct load *load)
{
    uint64_t frame_bytes = 0, end = 0;
    const struct sidecar_expert *x = find_expert(set, e);
    load->segment_count = 0;
    for (int i = 0; i < EXPERT_TENSORS; i++) {
        load->part_at[i] = 0;
        if (!e[i].length_bytes) /* no row of it is ours */
            continue;
        int err = block_add(load->segment, &load->segment_count, &frame_bytes,
                            e[i].file, e[i].offset_bytes, e[i].length_bytes,
                            &load->part_at[i]);
        assert(!err); /* k3_shape_of refuses experts of 2 GiB */
    }
    load->part_at[EXPERT_TENSORS] = 0;
    if (!x)
        return frame_bytes;
    struct load raw = { .segment_count = load->segment_count };
    memcpy(raw.segment, load->segment, sizeof raw.segment);
    if (!place_nibbles(load, e, &end)) {
        load->segment_count = raw.segment_count;
        memcpy(load->segment, raw.segment, sizeof raw.segment);
        return frame_bytes;
    }
    load->part_at[EXPERT_TENSORS] = (uint32_t)end;
    load->segment[load->segment_count++] = (struct segment){
        .file = set->number[e[0].file], .at = (uint32_t)end,
        .offset_bytes = x->ref.at, .length_bytes = x->ref.bytes };
    end = block_pages(end + x->ref.bytes);
    return end > frame_bytes ? end : frame_bytes;
}

static uint64_t largest_object(const struct sidecars *set)
{
    uint64_t max = 0;
    for (uint32_t f = 0; set && f < set->files; f++)
        for (uint32_t i = 0; set->of[f] && i < set->of[f]->head->experts; i++)
            if (set->of[f]->expert[i].ref.bytes > max)
                max = set->of[f]->expert[i].ref.bytes;
    return max;
}

uint64_t coded_memory_bytes(const struct sidecars *set, uint64_t experts)
{
    uint64_t bytes = largest_object(set) + experts;
    for (uint32_t f = 0; set && f < set->files; f++)
        if (set->of[f])
            bytes += set->of[f]->box.head.tables_bytes + BOX_PAGE +
                     set->of[f]->head->blocks;
    return set && set->used ? block_pages(bytes) : 0;
}

/* ---- checks ---- */

struct coded {
    bool        *piece;  /* [tiles->piece_count]: all of its blocks were */
    atomic_bool *block;  /* [tiles->blocks]: was checked */
    bool        *expert; /* [moe layers][experts]: was checked */
    uint8_t     *object; /* a copy of the one that is expanded */
    uint64_t     retries; /* of the reader, when it was last asked */
};

int coded_open(struct coded **out, struct k3 *k, struct error *error)
{
    uint64_t experts = (uint64_t)config_moe_layers(&k->c) * k->c.experts;
    *out = NULL;
    if (!weights_coded(&k->weights))
        return 0;
    struct coded *c = calloc(1, sizeof *c);
    if (c) {
        c->piece = calloc(k->flow.tiles->piece_count, sizeof *c->piece);
        c->block = calloc(k->flow.tiles->blocks + 1, sizeof *c->block);
        c->expert = calloc(experts + 1, sizeof *c->expert);
        c->object = malloc(largest_object(&k->sidecars) + 1);
    }
    if (!c || !c->piece || !c->block || !c->expert || !c->object) {
        coded_close(c);
        return error_set(error, -ENOMEM, "no memory for the checks of coded "
                         "weights");
    }
    *out = c;
    return 0;
}

void coded_close(struct coded *c)
{
    if (!c)
        return;
    free(c->piece);
    free(c->block);
    free(c->expert);
    free(c->object);
    free(c);
}

/* A read that was repeated may have brought other bytes: all that comes from
 * now on is checked again. */
static void look_for_retries(struct k3 *k)
{
    struct coded *c = k->coded;
    uint64_t retries = reader_retries(k->reader);
    if (retries == c->retries)
        return;
    c->retries = retries;
    memset(c->piece, 0, k->flow.tiles->piece_count * sizeof *c->piece);
    for (uint32_t i = 0; i < k->flow.tiles->blocks; i++)
        atomic_store_explicit(&c->block[i], false, memory_order_relaxed);
    memset(c->expert, 0,
           (size_t)config_moe_layers(&k->c) * k->c.experts);
}

/* Read a range of a file again, past the kernel's memory of it. */
int coded_read_again(struct k3 *k, const char *path, uint64_t at,
                     uint32_t bytes, uint8_t *to)
{
    struct source source;
    const uint8_t *from;
    int err = source_open(&source, path, k->error);
    if (err)
        return err;
    uint8_t *pages = source_pages(bytes);
    err = pages ? source_read_drive(&source, pages, at, bytes, &from, k->error)
                : error_set(k->error, -ENOMEM, "%s: no memory", path);
    if (!err)
        memcpy(to, from, bytes);
    free(pages);
    source_close(&source);
    return err;
}

struct checking {
    struct k3 *k;
    const struct tile_piece *piece;
    const uint8_t *frame;
    _Atomic uint32_t bad; /* 1 + the block that is not right */
};

static const uint8_t *block_at(const struct tile_piece *p,
                               const uint8_t *frame, uint32_t b)
{
    return frame + p->at + (p->block[b].at - p->block[0].at);
}

static uint32_t rows_of(const struct tile_piece *p, uint32_t b)
{
    uint32_t from = b * p->block_rows;
    return p->rows - from < p->block_rows ? p->rows - from : p->block_rows;
}

/* The same bytes as before need no look at their structure again. */
static const char *check_block(const struct k3 *k, const struct tile_piece *p,
                               const uint8_t *frame, uint32_t b, bool known)
{
    uint32_t rows = rows_of(p, b), cols = (uint32_t)(p->row_bytes / 2);
    const uint8_t *block = block_at(p, frame, b);
    if (k->o.check_reads == K3_CHECK_OFF)
        return u3_check(block, p->block[b].bytes, rows, cols);
    if (known && crc32c(0, block, p->block[b].bytes) == p->block[b].crc)
        return NULL;
    return object_check_block(block, &p->block[b], rows, cols);
}

static void check_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct checking *j = arg;
    struct coded *c = j->k->coded;
    for (size_t b = begin; b < end; b++) {
        atomic_bool *known = &c->block[j->piece->first_block + b];
        bool before = atomic_load_explicit(known, memory_order_relaxed);
        if (before && j->k->o.check_reads != K3_CHECK_ALWAYS)
            continue;
        if (check_block(j->k, j->piece, j->frame, (uint32_t)b, before))
            atomic_store(&j->bad, (uint32_t)b + 1);
        else
            atomic_store_explicit(known, true, memory_order_relaxed);
    }
}

static int mend_block(struct k3 *k, const struct tile_piece *p,
                      const uint8_t *frame, uint32_t b)
{
    char name[TENSOR_NAME_BYTES];
    const struct tiles *t = k->flow.tiles;
    const char *path = weights_path(
        &k->weights, t->segment[t->tile[p->tile].first_segment].file);
    tensor_name(name, (enum tensor_role)p->role, p->layer);
    k->mended++;
    int err = coded_read_again(k, path, p->block[b].at, p->block[b].bytes,
                               (uint8_t *)block_at(p, frame, b));
    if (err)
        return err;
    const char *wrong = check_block(k, p, frame, b, false);
    if (wrong)
        return error_set(k->error, -EBADMSG, "%s: the block at byte %" PRIu64
                         " (rows from %" PRIu32 " of %s) is damaged: %s; "
                         "sluice verify finds all, sluice %s makes them anew",
                         path, p->block[b].at, p->row + b * p->block_rows, name,
                         wrong, k->parts ? "spread" : "pack");
    return 0;
}

int coded_check(struct k3 *k, const struct tile_piece *p, const uint8_t *frame)
{
    struct checking j = { .k = k, .piece = p, .frame = frame };
    bool *known = &k->coded->piece[p - k->flow.tiles->piece];
    look_for_retries(k);
    if (*known && k->o.check_reads != K3_CHECK_ALWAYS)
        return 0;
    for (;;) {
        atomic_store(&j.bad, 0);
        team_for(k->team, p->blocks, 1, check_some, &j);
        uint32_t bad = atomic_load(&j.bad);
        if (!bad) {
            *known = true;
            return 0;
        }
        int err = mend_block(k, p, frame, bad - 1);
        if (err)
            return err;
    }
}

/* ---- resident tiles that are kept decoded ---- */

struct decoding {
    struct k3 *k;
    uint8_t *copy; /* of a block */
    /* The block at work. */
    struct u3 u;
    const uint8_t *from;
    uint8_t *to;
    uint64_t row_bytes;
    int err;
};

static void copy_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct decoding *j = arg;
    memcpy(j->copy + begin, j->from + begin, end - begin);
}

static void decode_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct decoding *j = arg;
    u3_rows(&j->k->kern, j->to + begin * j->row_bytes, &j->u, (uint32_t)begin,
            (uint32_t)end);
}

static int decode_tile(struct decoding *j, uint32_t tile)
{
    struct k3 *k = j->k;
    struct tiles *t = k->flow.tiles;
    const struct tile_piece *p = tiles_first_piece(t, tile);
    uint8_t *frame = t->tile[tile].home;
    int err = coded_check(k, p, frame);
    if (err)
        return err;
    j->row_bytes = p->row_bytes;
    for (uint32_t b = 0; b < p->blocks; b++) {
        j->from = block_at(p, frame, b);
        j->to = frame + (uint64_t)b * p->block_rows * p->row_bytes;
        team_for(k->team, p->block[b].bytes, COPY_GRAIN, copy_some, j);
        u3_open(&j->u, j->copy);
        team_for(k->team, rows_of(p, b), DECODE_GRAIN, decode_some, j);
    }
    tiles_set_decoded(t, tile);
    return 0;
}

static void decode_tiles(void *arg)
{
    struct decoding *j = arg;
    for (uint32_t i = 0; i < j->k->flow.tiles->count && !j->err; i++)
        if (j->k->flow.decoded[i])
            j->err = decode_tile(j, i);
}

int coded_decode_resident(struct k3 *k)
{
    const struct tiles *t = k->flow.tiles;
    struct decoding j = { .k = k };
    uint32_t max = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct tile_piece *p = tiles_first_piece(t, i);
        for (uint32_t b = 0; k->flow.decoded[i] && b < p->blocks; b++)
            max = p->block[b].bytes > max ? p->block[b].bytes : max;
    }
    if (!max)
        return 0;
    j.copy = aligned_alloc(U3_ALIGN, max); /* a multiple of it */
    if (!j.copy)
        return error_set(k->error, -ENOMEM, "no memory to decode the trunk");
    team_run(k->team, decode_tiles, &j);
    free(j.copy);
    return j.err;
}

/* ---- scales ---- */

struct expanding {
    const uint8_t *object;
    const struct sidecar_expert *e;
    const struct plane_shape *shape;
    uint8_t *plane[SIDECAR_PLANES];
    size_t chunks[SIDECAR_PLANES]; /* of EXPAND_ROWS rows, up to this plane */
};

static void expand_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct expanding *j = arg;
    for (size_t i = begin; i < end; i++) {
        unsigned p = 0;
        const uint8_t *part = j->object;
        while (i >= j->chunks[p]) {
            part += j->shape[p].rows *
                    s5_row_bytes(j->e->mode[p], j->shape[p].cols);
            p++;
        }
        size_t row = (i - (p ? j->chunks[p - 1] : 0)) * EXPAND_ROWS;
        size_t rows = j->shape[p].rows - row, cols = j->shape[p].cols;
        struct s5 way = sidecar_plane(j->e, p);
        way.patches = 0;
        rows = rows < EXPAND_ROWS ? rows : EXPAND_ROWS;
        s5_expand(j->plane[p] + row * cols, &way,
                  part + row * s5_row_bytes(way.mode, cols), NULL, rows, cols);
    }
}

/* Expand the object in parts, then its patches. */
static void expand(struct k3 *k, struct expanding *j)
{
    size_t all = 0;
    const uint8_t *patch = j->object;
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        all += (j->shape[p].rows + EXPAND_ROWS - 1) / EXPAND_ROWS;
        j->chunks[p] = all;
        patch += j->shape[p].rows *
                 s5_row_bytes(j->e->mode[p], j->shape[p].cols);
    }
    team_for(k->team, all, 1, expand_some, j);
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        s5_patch(j->plane[p], patch, j->e->patches[p]);
        patch += 4 * (size_t)j->e->patches[p];
    }
}

static const char *check_scales(const struct k3 *k, const uint8_t *object,
                                const struct sidecar_expert *e,
                                const struct plane_shape *shape)
{
    return object_check_scales(object, e, shape,
                               k->o.check_reads != K3_CHECK_OFF);
}

int coded_landed(void *arg, uint32_t moe, uint32_t expert,
                 const struct load *load)
{
    struct k3 *k = arg;
    struct coded *c = k->coded;
    uint32_t layer = moe + k->c.first_dense;
    struct extent at[EXPERT_TENSORS];
    bool *known = &c->expert[(size_t)moe * k->c.experts + expert];
    if (k->parts) {
        look_for_retries(k);
        return slices_landed(k, layer, expert, load, known);
    }
    if (!load->part_at[EXPERT_TENSORS])
        return 0;
    look_for_retries(k);
    ckpt_expert(k->ckpt, layer, expert, at);
    const struct sidecar *s = k->sidecars.of[at[0].file];
    const struct sidecar_expert *e = find_expert(&k->sidecars, at);
    struct expanding j = { .object = c->object, .e = e,
                           .shape = s->head->plane };
    memcpy(c->object, load->frame + load->part_at[EXPERT_TENSORS],
           e->ref.bytes);
    const char *wrong = NULL;
    if (!*known || k->o.check_reads == K3_CHECK_ALWAYS)
        wrong = check_scales(k, c->object, e, j.shape);
    if (wrong) {
        k->mended++;
        int err = coded_read_again(k, s->path, e->ref.at, e->ref.bytes,
                                   c->object);
        if (err)
            return err;
        wrong = check_scales(k, c->object, e, j.shape);
    }
    if (wrong)
        return error_set(k->error, -EBADMSG, "%s: the scales at byte %" PRIu64
                         " (expert %" PRIu32 " of layer %" PRIu32
                         ") are damaged: %s; sluice verify finds all, sluice "
                         "pack makes them anew", s->path, e->ref.at, expert,
                         layer, wrong);
    *known = true;
    for (int p = 0; p < SIDECAR_PLANES; p++)
        j.plane[p] = load->frame + load->part_at[2 * p + 1];
    expand(k, &j);
    return 0;
}

/* ---- rows ---- */

const uint8_t *coded_rows(const struct k3 *k, const struct tile_piece *p,
                          const uint8_t *frame, uint32_t begin, uint32_t end,
                          uint8_t *scratch)
{
    if (!p->block)
        return frame + p->at + begin * p->row_bytes;
    for (uint32_t row = begin; row < end;) {
        uint32_t b = row / p->block_rows, in = row % p->block_rows;
        uint32_t n = rows_of(p, b) - in;
        struct u3 u;
        n = n < end - row ? n : end - row;
        u3_open(&u, block_at(p, frame, b));
        u3_rows(&k->kern, scratch + (row - begin) * p->row_bytes, &u, in,
                in + n);
        row += n;
    }
    return scratch;
}

#include "model/parts/part.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/u3.h"
#include "model/ckpt/shards.h"
#include "model/parts/slice.h"

_Static_assert(sizeof(struct part_head) == 184, "as on the drive");
_Static_assert(sizeof(struct part_matrix) == 64, "as on the drive");
_Static_assert(sizeof(struct part_small) == 24, "as on the drive");
_Static_assert(sizeof(struct part_expert) == 56, "as on the drive");
_Static_assert(sizeof(struct part_rest) == 24, "as on the drive");

#define TABLES_BYTES_MAX (UINT64_C(1) << 30)

struct cuts part_cuts(const struct part_head *h)
{
    struct cuts cuts = { .parts = h->parts };
    memcpy(cuts.weight, h->weight, sizeof cuts.weight);
    return cuts;
}

uint32_t part_block_rows(const struct part_matrix *m, uint32_t b)
{
    uint32_t first = b * m->block_rows;
    return m->rows - first < m->block_rows ? m->rows - first : m->block_rows;
}

struct part_tables part_tables(const struct part_head *h)
{
    struct part_tables t = { 0 };
    t.rest = t.matrix + (uint64_t)h->matrices * sizeof(struct part_matrix);
    t.small = t.rest + (uint64_t)h->rests * sizeof(struct part_rest);
    t.block = t.small + (uint64_t)h->smalls * sizeof(struct part_small);
    t.spot = t.block + (uint64_t)h->blocks * sizeof(struct box_ref);
    t.expert = t.spot + (uint64_t)h->spots * sizeof(struct sidecar_spot);
    t.bytes = t.expert + (uint64_t)h->experts * sizeof(struct part_expert);
    return t;
}

/* ---- tables that make sense ---- */

static int wrong(const struct part *p, const char *what, uint32_t index,
                 struct error *error)
{
    return error_set(error, -EBADMSG, "%s: %s %" PRIu32 " of its tables makes "
                     "no sense", p->path, what, index);
}

/* Is it a tensor of the config, and after the one before? */
static bool is_next(int32_t layer, uint32_t role, int64_t *last,
                    const struct config *c)
{
    int64_t number = ((int64_t)layer + 1) * T_COUNT + role;
    bool next = layer >= TENSOR_MODEL_LEVEL && layer < (int32_t)c->layers &&
                role < T_COUNT && number > *last &&
                tensor_in_layer((enum tensor_role)role, c, layer);
    *last = number;
    return next;
}

static bool blocks_fit(const struct part *p, const struct part_matrix *m)
{
    uint64_t at = m->at;
    for (uint32_t b = 0; b < m->block_count; b++) {
        const struct box_ref *ref = &p->block[m->first_block + b];
        uint32_t rows = part_block_rows(m, b);
        uint64_t raw = 2ull * rows * m->cols;
        if (!box_ref_inside(&p->box, ref, m->coded ? U3_ALIGN : 1) ||
            ref->at != at)
            return false;
        if (m->coded ? ref->bytes < U3_HEADER || ref->bytes % U3_ALIGN ||
                           ref->bytes > u3_bytes_max(rows, m->cols)
                     : ref->bytes != raw)
            return false;
        at += ref->bytes;
    }
    return at == m->at + m->bytes;
}

static int check_matrices(const struct part *p, const struct config *c,
                          struct error *error)
{
    struct cuts cuts = part_cuts(p->head);
    int64_t last = -1;
    uint32_t block = 0;
    for (uint32_t i = 0; i < p->head->matrices; i++) {
        const struct part_matrix *m = &p->matrix[i];
        enum tensor_role role = (enum tensor_role)m->role;
        uint32_t rows, cols;
        if (!is_next(m->layer, m->role, &last, c) ||
            cuts_small(role, c, m->layer))
            return wrong(p, "matrix", i, error);
        struct row_range own = cuts_rows(&cuts, p->head->part, role, c,
                                         m->layer);
        tensor_shape(role, c, m->layer, &rows, &cols);
        if (m->row != own.begin || m->rows != own.end - own.begin ||
            !m->rows || m->cols != cols || m->coded > 1 ||
            (m->coded && cols > U3_COLS_MAX) || !m->block_rows ||
            m->block_rows > (m->coded ? U3_ROWS_MAX : UINT32_MAX) ||
            m->at % BOX_PAGE || m->first_block != block ||
            m->block_count != (m->rows - 1) / m->block_rows + 1 ||
            m->block_count > p->head->blocks - block || !blocks_fit(p, m))
            return wrong(p, "matrix", i, error);
        block += m->block_count;
    }
    return block == p->head->blocks ? 0 : wrong(p, "block", block, error);
}

static int check_smalls(const struct part *p, const struct config *c,
                        struct error *error)
{
    int64_t last = -1;
    for (uint32_t i = 0; i < p->head->smalls; i++) {
        const struct part_small *s = &p->small[i];
        enum tensor_role role = (enum tensor_role)s->role;
        uint32_t rows, cols;
        if (!is_next(s->layer, s->role, &last, c) ||
            !cuts_small(role, c, s->layer) ||
            !box_ref_inside(&p->box, &s->ref, 1))
            return wrong(p, "small tensor", i, error);
        tensor_shape(role, c, s->layer, &rows, &cols);
        uint64_t width = tensor_dtype_bytes(tensor_dtype(role));
        uint64_t bytes = (uint64_t)rows * cols * width;
        if (role == T_A_LOG ? s->ref.bytes < bytes ||
                                  s->ref.bytes > A_LOG_MAX * width
                            : s->ref.bytes != bytes)
            return wrong(p, "small tensor", i, error);
    }
    return 0;
}

static int check_experts(const struct part *p, const struct config *c,
                         struct error *error)
{
    struct cuts cuts = part_cuts(p->head);
    struct slice_shape s = slice_shape(&cuts, p->head->part, c);
    uint64_t all = (uint64_t)config_moe_layers(c) * c->experts;
    for (uint32_t i = 0; i < p->head->experts; i++) {
        const struct part_expert *e = &p->expert[i];
        if (!slice_modes_fit(e, &s) ||
            !box_ref_inside(&p->box, &e->scales.ref, 1) ||
            e->scales.ref.at < (uint64_t)BOX_PAGE + s.weights_bytes ||
            (e->scales.ref.at - s.weights_bytes) % BOX_PAGE ||
            e->scales.ref.bytes != sidecar_object_bytes(&e->scales, s.plane) ||
            e->number >= all || (i && e->number <= p->expert[i - 1].number) ||
            !s.weights_bytes)
            return wrong(p, "expert", i, error);
    }
    return 0;
}

static int check_rests(const struct part *p, struct error *error)
{
    const struct part_head *h = p->head;
    uint64_t end = 0;
    for (uint32_t i = 0; i < h->rests; i++) {
        const struct part_rest *r = &p->rest[i];
        if (!box_ref_inside(&p->box, &r->ref, 1) || !r->ref.bytes ||
            r->ref.bytes > PART_REST_MAX || r->source_at < end ||
            r->source_at > h->source_bytes ||
            r->ref.bytes > h->source_bytes - r->source_at)
            return wrong(p, "range", i, error);
        end = r->source_at + r->ref.bytes;
    }
    for (uint32_t i = 0; i < h->spots; i++)
        if (p->spot[i].source_at > h->source_bytes ||
            SIDECAR_SPOT > h->source_bytes - p->spot[i].source_at)
            return wrong(p, "spot", i, error);
    return 0;
}

static int check_head(const struct part *p, struct error *error)
{
    const struct part_head *h = p->head;
    bool fits = h->parts >= 1 && h->parts <= CUTS_PARTS_MAX &&
                h->part < h->parts && h->shard < h->shards &&
                h->shards <= SHARDS_MAX;
    for (uint32_t i = 0; i < CUTS_PARTS_MAX && fits; i++)
        fits = i < h->parts ? h->weight[i] >= 1 &&
                                  h->weight[i] <= CUTS_WEIGHT_MAX
                            : !h->weight[i];
    if (fits && part_tables(h).bytes == p->box.head.tables_bytes)
        return 0;
    return error_set(error, -EBADMSG, "%s: its head makes no sense", p->path);
}

static void find_tables(struct part *p)
{
    struct part_tables t = part_tables(p->head);
    const uint8_t *at = p->box.tables;
    p->matrix = (const void *)(at + t.matrix);
    p->rest = (const void *)(at + t.rest);
    p->small = (const void *)(at + t.small);
    p->block = (const void *)(at + t.block);
    p->spot = (const void *)(at + t.spot);
    p->expert = (const void *)(at + t.expert);
}

int part_open(struct part **out, const char *path, const struct config *c,
              struct error *error)
{
    *out = NULL;
    struct part *p = calloc(1, sizeof *p);
    if (p)
        p->path = strdup(path);
    if (!p || !p->path) {
        part_close(p);
        return error_set(error, -ENOMEM, "%s: no memory", path);
    }
    int code = box_open(&p->box, path, PART_MAGIC, PART_VERSION,
                        TABLES_BYTES_MAX, error);
    p->head = (const void *)(p->box.page + BOX_OWN);
    if (!code)
        code = check_head(p, error);
    if (!code) {
        find_tables(p);
        code = check_matrices(p, c, error);
    }
    if (!code)
        code = check_smalls(p, c, error);
    if (!code)
        code = check_experts(p, c, error);
    if (!code)
        code = check_rests(p, error);
    if (code) {
        part_close(p);
        return code;
    }
    *out = p;
    return 0;
}

void part_close(struct part *p)
{
    if (!p)
        return;
    box_close(&p->box);
    free(p->path);
    free(p);
}

char *part_path(const char *dir, const char *shard)
{
    static const char end[] = ".safetensors";
    const char *name = strrchr(shard, '/') ? strrchr(shard, '/') + 1 : shard;
    size_t length = strlen(name), room = strlen(dir) + length + 8;
    if (length > strlen(end) &&
        !strcmp(name + length - strlen(end), end))
        length -= strlen(end);
    char *path = malloc(room);
    if (path)
        snprintf(path, room, "%s/%.*s.part", dir, (int)length, name);
    return path;
}

int part_bind(const struct part *p, const char *shard, struct error *error)
{
    struct sidecar_head head = {
        .source_bytes = p->head->source_bytes,
        .source_mtime_ns = p->head->source_mtime_ns,
        .spots = p->head->spots };
    struct sidecar like = { .path = p->path, .head = &head, .spot = p->spot };
    bool moved;
    memcpy(head.source_header_sha256, p->head->source_header_sha256,
           sizeof head.source_header_sha256);
    return sidecar_bind(&like, shard, &moved, error);
}

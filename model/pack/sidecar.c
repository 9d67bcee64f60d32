#include "model/pack/sidecar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/u3.h"

_Static_assert(sizeof(struct sidecar_head) == 136, "as on the drive");
_Static_assert(sizeof(struct sidecar_tensor) == 64, "as on the drive");
_Static_assert(sizeof(struct sidecar_expert) == 48, "as on the drive");
_Static_assert(sizeof(struct sidecar_spot) == 16, "as on the drive");

#define TABLES_BYTES_MAX (UINT64_C(1) << 30)

uint32_t sidecar_block_rows(const struct sidecar_tensor *t, uint32_t b)
{
    uint32_t first = b * t->block_rows;
    return t->rows - first < t->block_rows ? t->rows - first : t->block_rows;
}

struct s5 sidecar_plane(const struct sidecar_expert *e, unsigned p)
{
    struct s5 s = { .mode = e->mode[p], .patches = e->patches[p] };
    memcpy(s.palette, e->palette[p], sizeof s.palette);
    return s;
}

uint64_t sidecar_object_bytes(const struct sidecar_expert *e,
                              const struct plane_shape *plane)
{
    uint64_t bytes = 0;
    for (unsigned p = 0; p < SIDECAR_PLANES; p++)
        bytes += (uint64_t)plane[p].rows *
                     s5_row_bytes(e->mode[p], plane[p].cols) +
                 4 * (uint64_t)e->patches[p];
    return bytes;
}

/* ---- tables that make sense ---- */

static int wrong(const struct sidecar *s, const char *what, uint32_t index,
                 struct error *error)
{
    return error_set(error, -EBADMSG, "%s: %s %" PRIu32 " of its tables makes "
                     "no sense", s->path, what, index);
}

/* One tensor after another in the shard, and its blocks in this file. */
static bool tensor_fits(const struct sidecar *s, uint32_t i, uint64_t source,
                        uint32_t block)
{
    const struct sidecar_tensor *t = &s->tensor[i];
    uint64_t at = t->at;
    if (t->source_at < source || !t->rows || !t->cols ||
        t->cols > U3_COLS_MAX || !t->block_rows ||
        t->block_rows > U3_ROWS_MAX ||
        t->source_bytes != (uint64_t)t->rows * t->cols * 2 ||
        t->source_at > s->head->source_bytes ||
        t->source_bytes > s->head->source_bytes - t->source_at ||
        t->at % BOX_PAGE || t->first_block != block ||
        t->block_count != (t->rows - 1) / t->block_rows + 1 ||
        t->block_count > s->head->blocks - block)
        return false;
    for (uint32_t b = 0; b < t->block_count; b++) {
        const struct box_ref *ref = &s->block[block + b];
        uint32_t rows = sidecar_block_rows(t, b);
        if (!box_ref_inside(&s->box, ref, U3_ALIGN) || ref->at != at ||
            ref->bytes < U3_HEADER || ref->bytes % U3_ALIGN ||
            ref->bytes > u3_bytes_max(rows, t->cols))
            return false;
        at += ref->bytes;
    }
    return at == t->at + t->bytes;
}

static int check_tensors(const struct sidecar *s, struct error *error)
{
    uint64_t source = 0;
    uint32_t block = 0;
    for (uint32_t i = 0; i < s->head->tensors; i++) {
        if (!tensor_fits(s, i, source, block))
            return wrong(s, "tensor", i, error);
        source = s->tensor[i].source_at + s->tensor[i].source_bytes;
        block += s->tensor[i].block_count;
    }
    return block == s->head->blocks ? 0 : wrong(s, "block", block, error);
}

static bool shapes_fit(const struct sidecar_head *h)
{
    uint64_t end;
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        uint64_t scales = (uint64_t)h->plane[p].rows * h->plane[p].cols;
        if (!scales || scales > S5_PLANE_MAX ||
            h->plane_at[p] > h->expert_stride ||
            scales > h->expert_stride - h->plane_at[p])
            return false;
    }
    return !__builtin_mul_overflow(h->experts, h->expert_stride, &end) &&
           h->experts_at <= h->source_bytes &&
           end <= h->source_bytes - h->experts_at;
}

static int check_experts(const struct sidecar *s, struct error *error)
{
    const struct sidecar_head *h = s->head;
    if (h->experts && !shapes_fit(h))
        return error_set(error, -EBADMSG, "%s: the shape of its experts makes "
                         "no sense", s->path);
    for (uint32_t i = 0; i < h->experts; i++) {
        const struct sidecar_expert *e = &s->expert[i];
        for (unsigned p = 0; p < SIDECAR_PLANES; p++)
            if (!s5_row_bytes(e->mode[p], h->plane[p].cols))
                return wrong(s, "expert", i, error);
        if (!box_ref_inside(&s->box, &e->ref, BOX_PAGE) ||
            e->ref.bytes != sidecar_object_bytes(e, h->plane))
            return wrong(s, "expert", i, error);
    }
    return 0;
}

/* The tables lie one after the other. */
static int find_tables(struct sidecar *s, struct error *error)
{
    const struct sidecar_head *h = s->head;
    uint64_t tensors = (uint64_t)h->tensors * sizeof *s->tensor;
    uint64_t blocks = (uint64_t)h->blocks * sizeof *s->block;
    uint64_t experts = (uint64_t)h->experts * sizeof *s->expert;
    uint64_t spots = (uint64_t)h->spots * sizeof *s->spot;
    if (tensors + blocks + experts + spots != s->box.head.tables_bytes)
        return error_set(error, -EBADMSG, "%s: tables of another length than "
                         "its head says", s->path);
    const uint8_t *at = s->box.tables;
    s->tensor = (const void *)at;
    s->block = (const void *)(at + tensors);
    s->expert = (const void *)(at + tensors + blocks);
    s->spot = (const void *)(at + tensors + blocks + experts);
    return 0;
}

static int check_spots(const struct sidecar *s, struct error *error)
{
    for (uint32_t i = 0; i < s->head->spots; i++)
        if (s->spot[i].source_at > s->head->source_bytes ||
            SIDECAR_SPOT > s->head->source_bytes - s->spot[i].source_at)
            return wrong(s, "spot", i, error);
    return 0;
}

int sidecar_open(struct sidecar **out, const char *path, struct error *error)
{
    *out = NULL;
    struct sidecar *s = calloc(1, sizeof *s);
    if (s)
        s->path = strdup(path);
    if (!s || !s->path) {
        sidecar_close(s);
        return error_set(error, -ENOMEM, "%s: no memory", path);
    }
    int code = box_open(&s->box, path, SIDECAR_MAGIC, SIDECAR_VERSION,
                        TABLES_BYTES_MAX, error);
    s->head = (const void *)(s->box.page + BOX_OWN);
    if (!code)
        code = find_tables(s, error);
    if (!code)
        code = check_tensors(s, error);
    if (!code)
        code = check_experts(s, error);
    if (!code)
        code = check_spots(s, error);
    if (code) {
        sidecar_close(s);
        return code;
    }
    *out = s;
    return 0;
}

void sidecar_close(struct sidecar *s)
{
    if (!s)
        return;
    box_close(&s->box);
    free(s->path);
    free(s);
}

/* ---- what is asked ---- */

const struct sidecar_tensor *sidecar_find(const struct sidecar *s,
                                          uint64_t source_at, uint32_t rows,
                                          uint32_t cols)
{
    uint32_t low = 0, high = s->head->tensors;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->tensor[middle].source_at < source_at)
            low = middle + 1;
        else
            high = middle;
    }
    const struct sidecar_tensor *t = &s->tensor[low];
    return low < s->head->tensors && t->source_at == source_at &&
                   t->rows == rows && t->cols == cols
               ? t
               : NULL;
}

const struct sidecar_expert *sidecar_find_expert(const struct sidecar *s,
                                                 uint64_t source_at)
{
    const struct sidecar_head *h = s->head;
    if (!h->experts || source_at < h->experts_at)
        return NULL;
    uint64_t from = source_at - h->experts_at;
    uint64_t rank = from / h->expert_stride;
    return from % h->expert_stride == 0 && rank < h->experts ? &s->expert[rank]
                                                              : NULL;
}

char *sidecar_path(const char *dir, const char *shard)
{
    static const char suffix[] = ".safetensors";
    const char *slash = strrchr(shard, '/'), *name = slash ? slash + 1 : shard;
    size_t length = strlen(name), cut = sizeof suffix - 1;
    char *path;
    if (length > cut && !strcmp(name + length - cut, suffix))
        length -= cut;
    return asprintf(&path, "%s/%.*s.pack", dir, (int)length, name) < 0 ? NULL
                                                                     : path;
}

char *sidecar_folder(const char *model)
{
    size_t length = strlen(model);
    char *path;
    while (length > 1 && model[length - 1] == '/')
        length--;
    return asprintf(&path, "%.*s.packed", (int)length, model) < 0 ? NULL : path;
}

#include "model/pack/object.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "compute/u3_encode.h"

struct mill {
    const struct kern *kern;
    struct u3_scratch  scratch;
    uint8_t           *back; /* what was decoded */
    size_t             room;
};

int mill_open(struct mill **out, const struct kern *kern)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return -ENOMEM;
    (*out)->kern = kern;
    return 0;
}

void mill_close(struct mill *m)
{
    if (!m)
        return;
    free(m->back);
    free(m);
}

static int make_room(struct mill *m, size_t bytes)
{
    if (bytes <= m->room)
        return 0;
    uint8_t *back = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!back)
        return -ENOMEM;
    free(m->back);
    m->back = back;
    m->room = bytes;
    return 0;
}

int mill_block(struct mill *m, struct made *out, void *block, const void *src,
               uint32_t rows, uint32_t cols)
{
    size_t raw = (size_t)rows * cols * 2;
    int err = make_room(m, raw);
    if (err)
        return err;
    out->bytes = u3_encode(m->kern, block, src, rows, cols, &m->scratch);
    out->patches = u3_get32((const uint8_t *)block + 20);
    out->crc = crc32c(0, block, out->bytes);
    out->source_crc = crc32c(0, src, raw);
    if (u3_check(block, out->bytes, rows, cols))
        return -EIO;
    struct u3 u;
    u3_open(&u, block);
    u3_rows(m->kern, m->back, &u, 0, rows);
    return memcmp(m->back, src, raw) ? -EIO : 0;
}

int mill_scales(struct mill *m, struct sidecar_expert *e, void *object,
                const uint8_t *const plane[SIDECAR_PLANES],
                const struct plane_shape shape[SIDECAR_PLANES])
{
    uint8_t *part = object, *patch;
    struct s5 way[SIDECAR_PLANES];
    size_t largest = 0;
    memset(e, 0, sizeof *e);
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        size_t raw = (size_t)shape[p].rows * shape[p].cols;
        s5_choose(&way[p], plane[p], shape[p].rows, shape[p].cols);
        e->mode[p] = way[p].mode;
        memcpy(e->palette[p], way[p].palette, sizeof way[p].palette);
        e->patches[p] = (uint16_t)way[p].patches;
        e->source_crc = crc32c(e->source_crc, plane[p], raw);
        largest = raw > largest ? raw : largest;
    }
    int err = make_room(m, largest);
    if (err)
        return err;
    patch = part;
    for (unsigned p = 0; p < SIDECAR_PLANES; p++)
        patch += shape[p].rows * s5_row_bytes(way[p].mode, shape[p].cols);
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        size_t rows = shape[p].rows, cols = shape[p].cols;
        s5_code(part, patch, &way[p], plane[p], rows, cols);
        if (s5_check(&way[p], part, patch, rows, cols))
            return -EIO;
        s5_expand(m->back, &way[p], part, patch, rows, cols);
        if (memcmp(m->back, plane[p], rows * cols))
            return -EIO;
        part += rows * s5_row_bytes(way[p].mode, cols);
        patch += 4 * (size_t)way[p].patches;
    }
    e->ref.bytes = (uint32_t)(patch - (uint8_t *)object);
    e->ref.crc = crc32c(0, object, e->ref.bytes);
    return 0;
}

const char *object_check_block(const void *block, const struct box_ref *ref,
                               uint32_t rows, uint32_t cols)
{
    if (crc32c(0, block, ref->bytes) != ref->crc)
        return "its checksum does not match";
    return u3_check(block, ref->bytes, rows, cols);
}

static const uint8_t *patches_of(const uint8_t *object,
                                 const struct sidecar_expert *e,
                                 const struct plane_shape *shape)
{
    for (unsigned p = 0; p < SIDECAR_PLANES; p++)
        object += shape[p].rows * s5_row_bytes(e->mode[p], shape[p].cols);
    return object;
}

const char *object_check_scales(const void *object,
                                const struct sidecar_expert *e,
                                const struct plane_shape *shape, bool sum)
{
    const uint8_t *part = object, *patch = patches_of(object, e, shape);
    if (sum && crc32c(0, object, e->ref.bytes) != e->ref.crc)
        return "its checksum does not match";
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        struct s5 way = sidecar_plane(e, p);
        size_t rows = shape[p].rows, cols = shape[p].cols;
        const char *wrong = s5_check(&way, part, patch, rows, cols);
        if (wrong)
            return wrong;
        part += rows * s5_row_bytes(way.mode, cols);
        patch += 4 * (size_t)way.patches;
    }
    return NULL;
}

void object_expand(uint8_t *const plane[SIDECAR_PLANES], const void *object,
                   const struct sidecar_expert *e,
                   const struct plane_shape *shape)
{
    const uint8_t *part = object, *patch = patches_of(object, e, shape);
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        struct s5 way = sidecar_plane(e, p);
        size_t rows = shape[p].rows, cols = shape[p].cols;
        s5_expand(plane[p], &way, part, patch, rows, cols);
        part += rows * s5_row_bytes(way.mode, cols);
        patch += 4 * (size_t)way.patches;
    }
}

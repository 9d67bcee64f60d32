#include "model/parts/slice.h"

#include <string.h>

#include "compute/crc32c.h"
#include "compute/s5.h"

struct slice_shape slice_shape(const struct cuts *cuts, uint32_t part,
                               const struct config *c)
{
    static const uint8_t order[SIDECAR_PLANES] = { 0, 2, 1 };
    struct slice_shape s = { 0 };
    for (uint32_t m = 0; m < SIDECAR_PLANES; m++) {
        uint32_t rows, cols;
        s.row[m] = cuts_expert_rows(cuts, part, 2 * m, c);
        expert_shape(2 * m, c, &rows, &s.row_bytes[m]);
        expert_shape(2 * m + 1, c, &rows, &cols);
        s.plane[m] = (struct plane_shape){ s.row[m].end - s.row[m].begin,
                                           cols };
    }
    for (uint32_t i = 0; i < SIDECAR_PLANES; i++) {
        uint32_t m = order[i];
        s.weights_at[m] = s.weights_bytes;
        s.weights_bytes += s.plane[m].rows * s.row_bytes[m];
    }
    return s;
}

struct box_ref slice_ref(const struct part_expert *e,
                         const struct slice_shape *s)
{
    return (struct box_ref){ .at = e->scales.ref.at - s->weights_bytes,
                             .bytes = e->scales.ref.bytes + s->weights_bytes };
}

static uint64_t plane_bytes(const struct slice_shape *s, unsigned p)
{
    return (uint64_t)s->plane[p].rows * s->plane[p].cols;
}

uint64_t slice_object_max(const struct slice_shape *s)
{
    return plane_bytes(s, 0) + plane_bytes(s, 1) + plane_bytes(s, 2);
}

/* The codes want rows. */
static bool has_all(const struct slice_shape *s)
{
    return s->plane[0].rows && s->plane[1].rows && s->plane[2].rows;
}

bool slice_modes_fit(const struct part_expert *e, const struct slice_shape *s)
{
    for (unsigned p = 0; p < SIDECAR_PLANES; p++)
        if (!s5_row_bytes(e->scales.mode[p], s->plane[p].cols) ||
            (!has_all(s) && (e->scales.mode[p] != 8 || e->scales.patches[p])))
            return false;
    return true;
}

static void copy_planes(struct part_expert *e, uint8_t *object,
                        const uint8_t *const plane[SIDECAR_PLANES],
                        const struct slice_shape *s)
{
    struct sidecar_expert *x = &e->scales;
    memset(x, 0, sizeof *x);
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        uint64_t bytes = plane_bytes(s, p);
        if (bytes)
            memcpy(object + x->ref.bytes, plane[p], bytes);
        x->ref.bytes += (uint32_t)bytes;
        x->mode[p] = 8;
    }
    x->ref.crc = x->source_crc = crc32c(0, object, x->ref.bytes);
}

int slice_code(struct mill *m, struct part_expert *e, void *object,
               const uint8_t *const plane[SIDECAR_PLANES],
               const struct slice_shape *s, bool plain)
{
    if (!plain && has_all(s))
        return mill_scales(m, &e->scales, object, plane, s->plane);
    copy_planes(e, object, plane, s);
    return 0;
}

const char *slice_check(const void *object, const struct part_expert *e,
                        const struct slice_shape *s, bool sum)
{
    if (has_all(s))
        return object_check_scales(object, &e->scales, s->plane, sum);
    return sum && crc32c(0, object, e->scales.ref.bytes) != e->scales.ref.crc
               ? "its checksum does not match"
               : NULL;
}

void slice_expand(uint8_t *const plane[SIDECAR_PLANES], const void *object,
                  const struct part_expert *e, const struct slice_shape *s)
{
    const uint8_t *from = object;
    if (has_all(s)) {
        object_expand(plane, object, &e->scales, s->plane);
        return;
    }
    for (unsigned p = 0; p < SIDECAR_PLANES; p++) {
        if (plane_bytes(s, p))
            memcpy(plane[p], from, plane_bytes(s, p));
        from += plane_bytes(s, p);
    }
}

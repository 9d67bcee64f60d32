/* slice.h - a part's rows of an expert: MXFP4 weights, then coded scales.
 *
 * Threads  plain functions; a mill belongs to one thread.
 * Errors   as pack/object.h.
 */
#ifndef MODEL_PARTS_SLICE_H
#define MODEL_PARTS_SLICE_H

#include "model/pack/object.h"
#include "model/parts/part.h"

/* Of every expert; by matrix: w1, w2, w3. */
struct slice_shape {
    struct row_range   row[SIDECAR_PLANES];
    struct plane_shape plane[SIDECAR_PLANES]; /* of their scales */
    uint32_t row_bytes[SIDECAR_PLANES];       /* of the weights */
    uint32_t weights_at[SIDECAR_PLANES];      /* from the slice's first byte */
    uint32_t weights_bytes;                   /* 0: no rows of any */
};

struct slice_shape slice_shape(const struct cuts *cuts, uint32_t part,
                               const struct config *c);
/* The whole slice: weights and object. */
struct box_ref slice_ref(const struct part_expert *e,
                         const struct slice_shape *s);
/* The most bytes of an object. */
uint64_t slice_object_max(const struct slice_shape *s);
/* Do the modes of the planes exist? Planes without rows go with mode 8 only. */
bool slice_modes_fit(const struct part_expert *e, const struct slice_shape *s);

/* Code three planes into `object`, slice_object_max bytes; fills e->scales but
 * for its place. `plain`: as they are. */
int slice_code(struct mill *m, struct part_expert *e, void *object,
               const uint8_t *const plane[SIDECAR_PLANES],
               const struct slice_shape *s, bool plain);
/* NULL, or what is wrong in a few words. `sum`: compare the checksum too. */
const char *slice_check(const void *object, const struct part_expert *e,
                        const struct slice_shape *s, bool sum);
/* Expand a checked object into its planes. */
void slice_expand(uint8_t *const plane[SIDECAR_PLANES], const void *object,
                  const struct part_expert *e, const struct slice_shape *s);

#endif

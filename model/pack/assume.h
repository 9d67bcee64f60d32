/* assume.h - blocks and objects of weights that are all zero, at an assumed
 * size: what a sparse checkpoint's sidecars are made of. All but 64 bytes of a
 * block and all of an object are zero, so the file is holes.
 *
 * Threads  one a struct assumed. Errors: -ENOMEM.
 */
#ifndef MODEL_PACK_ASSUME_H
#define MODEL_PACK_ASSUME_H

#include "model/pack/object.h"

enum { ASSUMED_SHAPES = 64 };

/* What was made before: a checksum over zeros is made once a shape. */
struct assumed {
    struct {
        uint32_t rows, cols;
        struct made made;
    } shape[ASSUMED_SHAPES];
    uint32_t shapes;
    struct sidecar_expert expert;
};

/* A block of zeros, raw * ratio bytes or as few as it takes. *out and its
 * header, U3_HEADER bytes; the rest is zero. */
int assume_block(struct assumed *a, struct made *out, uint8_t *header,
                 uint32_t rows, uint32_t cols, double ratio);
/* The scales of an expert, all zero; e but for its place. */
int assume_scales(struct assumed *a, struct sidecar_expert *e,
                  const struct plane_shape shape[SIDECAR_PLANES]);

#endif

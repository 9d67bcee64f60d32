/* object.h - coded things in memory: made and proved, or checked and opened.
 *
 * The unit of writing is a block of a matrix or the scales of an expert. What
 * is made here is decoded again and compared before it counts as made.
 *
 *     mill_open -> { mill_block | mill_scales } -> mill_close
 *
 * Threads  A mill belongs to one thread. The checks are plain functions.
 * Errors   -ENOMEM; -EIO: what was made does not decode to what it was made
 *          from, so the memory or the processor of this machine is at fault.
 * Cost     mill_block: about .5 core-seconds a GB of bf16.
 */
#ifndef MODEL_PACK_OBJECT_H
#define MODEL_PACK_OBJECT_H

#include <stdint.h>

#include "compute/kern.h"
#include "model/pack/sidecar.h"

struct mill;

int  mill_open(struct mill **out, const struct kern *kern);
void mill_close(struct mill *m);

/* What became of one thing. */
struct made {
    uint32_t bytes, crc; /* of the coded form */
    uint32_t source_crc; /* of what it was made from */
    uint32_t patches;
};

/* Code rows, bf16 [rows][cols], into `block`, u3_bytes_max(rows, cols) bytes at
 * a multiple of 64. */
int mill_block(struct mill *m, struct made *out, void *block, const void *src,
               uint32_t rows, uint32_t cols);

/* Code three planes into `object`, room for their raw bytes; fills e but for
 * its place. source_crc is of the planes one after the other. */
int mill_scales(struct mill *m, struct sidecar_expert *e, void *object,
                const uint8_t *const plane[SIDECAR_PLANES],
                const struct plane_shape shape[SIDECAR_PLANES]);

/* NULL, or what is wrong in a few words; after NULL the block can be decoded
 * (u3.h) and the object expanded. `crc`, `bytes`: what the tables say. */
const char *object_check_block(const void *block, const struct box_ref *ref,
                               uint32_t rows, uint32_t cols);
/* `sum`: compare the checksum too. */
const char *object_check_scales(const void *object,
                                const struct sidecar_expert *e,
                                const struct plane_shape *shape, bool sum);
/* Expand a checked object into its planes. */
void object_expand(uint8_t *const plane[SIDECAR_PLANES], const void *object,
                   const struct sidecar_expert *e,
                   const struct plane_shape *shape);

#endif

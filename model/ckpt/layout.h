/* layout.h - where the tensors of a published checkpoint lie, computed from the
 * config without the files.
 *
 * Each layer is a file; then comes one with the tensors outside the layers.
 * published.h has the order in a file, and so the size of its header: every
 * offset and file size is exact.
 *
 *     config_load -> layout_open -> { layout_tensor ... } -> layout_close
 *
 * Bytes    Files are numbered as in ckpt.h. The vision files, which follow, are
 *          left out.
 * Threads  read-only after open.
 * Errors   -ENOMEM.
 * Cost     a few milliseconds for K3: layers of one kind, whose numbers have
 *          equally many digits, share a layout.
 */
#ifndef MODEL_CKPT_LAYOUT_H
#define MODEL_CKPT_LAYOUT_H

#include <stdint.h>

#include "model/ckpt/ckpt.h"

struct layout;

int  layout_open(struct layout **out, const struct config *c);
void layout_close(struct layout *l);

/* Like ckpt_tensor; `layout` is a struct layout *. */
int layout_tensor(const void *layout, int layer, enum tensor_role role,
                  struct extent *out);
/* Like ckpt_expert. */
void layout_expert(const struct layout *l, uint32_t layer, uint32_t expert,
                   struct extent out[EXPERT_TENSORS]);

uint32_t layout_files(const struct layout *l); /* layers + 1 */
uint64_t layout_file_bytes(const struct layout *l, uint32_t file);
/* Bytes of memory that an expert needs at most, read in whole pages. */
uint64_t layout_expert_frame_bytes(const struct layout *l);

#endif

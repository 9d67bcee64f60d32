/* layout.h - where the tensors of a published checkpoint lie, from the config
 * alone: one layer a file, then the model level; F32, BF16, U8, each by name;
 * experts in the string order of their numbers. The headers are known to the
 * byte, so every offset and the size of every file are.
 *
 *     config_load -> layout_open -> { layout_tensor ... } -> layout_close
 *
 * Bytes    Files are numbered like those of ckpt.h; vision parts, which follow,
 *          are not among them.
 * Threads  read-only after open.
 * Errors   -ENOMEM.
 * Cost     layers whose names are of one length have one layout: a few
 *          milliseconds for K3.
 */
#ifndef MODEL_LAYOUT_H
#define MODEL_LAYOUT_H

#include <stdint.h>

#include "model/ckpt.h"

struct layout;

int  layout_open(struct layout **out, const struct config *c);
void layout_close(struct layout *l);

/* Like ckpt_tensor; `layout` is a struct layout *. */
int layout_tensor(const void *layout, int layer, enum tensor_role role,
                  struct extent *out);
/* Like ckpt_expert. */
void layout_expert(const struct layout *l, uint32_t layer, uint32_t expert,
                   struct extent out[EXPERT_TENSORS]);

uint32_t layout_files(const struct layout *l); /* layers and one */
uint64_t layout_file_bytes(const struct layout *l, uint32_t file);
/* The most bytes of memory, in pages, that an expert's run of bytes touches. */
uint64_t layout_expert_frame_bytes(const struct layout *l);

#endif

/* ckpt.h - where the tensors of a published checkpoint lie: name to extent.
 *
 * ckpt_open() lists the shards of a folder, reads every safetensors header as
 * something an enemy may have written, and checks that each tensor of the
 * config is there exactly once with its dtype and shape. Nothing but headers is
 * read. After that every question has an answer: there is no missing tensor at
 * use.
 *
 *     config_load -> ckpt_open -> { ckpt_tensor, ckpt_expert } -> ckpt_close
 *
 * Files    model-NNNNN-of-NNNNNN.safetensors, all of them; where none is named
 *          so, every *.safetensors. A file number is an index into their names
 *          in ascending order. Files may be symbolic links. Tensors of
 *          vision_tower. and mm_projector. are ignored; any other unknown name
 *          is refused.
 * Bytes    Extents say where the payload is, to the byte; nothing in a file is
 *          aligned. The six tensors of an expert are usually one run, but that
 *          is for the caller to see.
 * Threads  open parses headers with a few of its own; read-only after that.
 * Errors   -ENOENT for missing shards or tensors; -ENODATA for a truncated
 *          shard; -EBADMSG for anything else that is not what the format or
 *          the config says; errnos of the kernel; -ENOMEM. The sentence names
 *          the file and the tensor.
 * Cost     a read of the headers; 48 bytes of memory an expert. The 96 headers
 *          of K3 (76 MB) take about a second.
 */
#ifndef MODEL_CKPT_H
#define MODEL_CKPT_H

#include <stdint.h>

#include "model/config.h"
#include "model/tensors.h"
#include "model/why.h"

struct extent {
    uint32_t file;
    uint64_t offset_bytes; /* from the start of the file */
    uint64_t length_bytes;
};

struct ckpt;

/* The config is only used during the call. */
int ckpt_open(struct ckpt **out, const char *dir, const struct config *c,
              struct why *why);
void ckpt_close(struct ckpt *k);

uint32_t ckpt_files(const struct ckpt *k);
/* The path to open; owned by the checkpoint. */
const char *ckpt_path(const struct ckpt *k, uint32_t file);
uint64_t ckpt_file_size(const struct ckpt *k, uint32_t file);

/* Where a tensor of the trunk or of the model level (layer
 * TENSOR_MODEL_LEVEL) is. -ENOENT, and *out untouched, when this layer has none
 * of that role. T_A_LOG has the length in the file: kda_heads values or
 * more. */
int ckpt_tensor(const struct ckpt *k, int layer, enum tensor_role role,
                struct extent *out);
/* Where the six tensors of an expert are: w1 packed, w1 scale, w2 packed, w2
 * scale, w3 packed, w3 scale. The layer must be a MoE layer. */
void ckpt_expert(const struct ckpt *k, uint32_t layer, uint32_t expert,
                 struct extent out[EXPERT_TENSORS]);

#endif

/* ckpt.h - where the tensors of a checkpoint lie: name to extent.
 *
 * ckpt_open lists the shards of a folder and reads every safetensors header, as
 * untrusted input. Each tensor of the config must be there exactly once, with
 * its dtype and shape. Only headers are read. After ckpt_open no tensor can be
 * missing.
 *
 *     config_load -> ckpt_open -> { ckpt_tensor, ckpt_expert } -> ckpt_close
 *
 * Files    model-NNNNN-of-NNNNNN.safetensors, the whole set; if there is none,
 *          every *.safetensors. Files are numbered in the order of their names
 *          and may be symbolic links. Tensors that begin with vision_tower. or
 *          mm_projector. are ignored; other unknown names are refused.
 * Bytes    Extents are exact to the byte; nothing in a file is aligned. The six
 *          tensors of an expert usually follow each other, but the caller has
 *          to check that. 48 bytes of memory an expert.
 * Threads  open uses up to four; read-only after that.
 * Errors   -ENOENT: a shard or tensor is missing; -ENODATA: a shard is
 *          truncated; -EBADMSG: anything else against the format or the config;
 *          errnos of the files; -ENOMEM. The sentence names the file and the
 *          tensor.
 * Cost     reading the headers: about a second for the 96 of K3 (76 MB).
 */
#ifndef MODEL_CKPT_CKPT_H
#define MODEL_CKPT_CKPT_H

#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/ckpt/error.h"
#include "model/ckpt/tensors.h"

/* A range of bytes in a file. */
struct extent {
    uint32_t file;         /* number, 0 .. ckpt_files - 1 */
    uint64_t offset_bytes; /* from the start of the file */
    uint64_t length_bytes;
};

struct ckpt;

/* Open the checkpoint in folder `dir`. The config is used during the call
 * only. */
int ckpt_open(struct ckpt **out, const char *dir, const struct config *c,
              struct error *error);
void ckpt_close(struct ckpt *k);

uint32_t ckpt_files(const struct ckpt *k);
/* The path of a file, which lives until ckpt_close. */
const char *ckpt_path(const struct ckpt *k, uint32_t file);
/* In bytes. */
uint64_t ckpt_file_size(const struct ckpt *k, uint32_t file);

/* Has a file changed since it was opened: its length, its times, or which file
 * has its name? 0, or -ESTALE with a sentence. */
int ckpt_changed(const struct ckpt *k, struct error *error);

/* Where a tensor of the trunk is; layer TENSOR_MODEL_LEVEL for those outside
 * the layers. -ENOENT, with *out unchanged, if the layer has none of that role.
 * T_A_LOG has its length in the file, which may be more than kda_heads. */
int ckpt_tensor(const struct ckpt *k, int layer, enum tensor_role role,
                struct extent *out);
/* Where the six tensors of an expert are, in the order of expert_suffix. The
 * layer must be a MoE layer. */
void ckpt_expert(const struct ckpt *k, uint32_t layer, uint32_t expert,
                 struct extent out[EXPERT_TENSORS]);

#endif

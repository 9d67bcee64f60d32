/* shards.h - the weight files of a folder, in order of their names.
 *
 * Those named model-NNNNN-of-NNNNNN.safetensors, which must be a whole set; if
 * there is none, every *.safetensors.
 *
 *     shards_list -> { path } -> shards_free
 *
 * Threads  one caller.
 * Errors   -ENOENT: a shard of the set is missing, or there are none; -EBADMSG:
 *          parts of two sets; errnos of the folder; -ENOMEM.
 */
#ifndef MODEL_CKPT_SHARDS_H
#define MODEL_CKPT_SHARDS_H

#include <stdint.h>

#include "model/ckpt/error.h"

enum { SHARDS_MAX = 65535 };

struct shards {
    uint32_t count;
    char   **path; /* [count], ascending by name */
};

/* On failure *out is empty. */
int shards_list(struct shards *out, const char *dir, struct error *error);
void shards_free(struct shards *s);
/* Read the two numbers of model-NNNNN-of-NNNNNN.safetensors. Returns 0, or -1
 * if the name does not have that form. */
int shards_parse(const char *name, uint32_t *index, uint32_t *of);

#endif

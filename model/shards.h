/* shards.h - the weight files of a folder, in order of their names.
 *
 *     shards_list -> { path } -> shards_free
 *
 * Errors   -ENOENT when a shard of an "-of-N" set or every shard is missing;
 *          -EBADMSG for two sets in one folder; errnos of the folder; -ENOMEM.
 */
#ifndef MODEL_SHARDS_H
#define MODEL_SHARDS_H

#include <stdint.h>

#include "model/why.h"

enum { SHARDS_MAX = 65535 };

struct shards {
    uint32_t count;
    char   **path; /* [count], ascending by name */
};

/* On failure *out is empty. */
int shards_list(struct shards *out, const char *dir, struct why *why);
void shards_free(struct shards *s);
/* Read the two numbers of model-NNNNN-of-NNNNNN.safetensors. Returns 0, or -1
 * when the name is not of that form. */
int shards_parse(const char *name, uint32_t *index, uint32_t *of);

#endif

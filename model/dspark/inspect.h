/* inspect.h - a folder with a drafter, without a model: for doctor and verify.
 *
 * Threads  any. Errors: those of config.h and weights.h.
 */
#ifndef MODEL_DSPARK_INSPECT_H
#define MODEL_DSPARK_INSPECT_H

#include "model/dspark/config.h"

/* Whether the folder's config.json names a drafter's architecture. */
bool dspark_is_drafter(const char *dir);

struct dspark_about {
    struct dspark_config config;
    uint32_t model_layers; /* of the model that it is for */
    uint32_t tensors;
    uint64_t file_bytes, used_bytes; /* used: without a copied embedding */
};

/* Check config and header against each other. */
int dspark_inspect(struct dspark_about *out, const char *dir,
                   struct error *error);
/* Read all values: the first tensor with one that is not finite is an error,
 * -EBADMSG. */
int dspark_verify(const char *dir, struct error *error);

#endif

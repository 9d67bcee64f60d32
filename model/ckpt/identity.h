/* identity.h - which model this is: a name that two checkpoints share only if
 * they give the same logits.
 *
 * SHA-256 over the config's numbers; for every shard in order its size and its
 * header (names, dtypes, shapes, places); and 512 bytes out of the middle of
 * every tensor of the trunk and of two experts a layer. A fine-tune has the
 * headers of its base: the samples tell them apart. The folder, the names of
 * the files and their times do not matter.
 *
 * Not a check of the weights: `verify` reads them all.
 *
 * Threads  any. Errors: errnos of the file, -ENODATA, -ENOMEM, with a sentence.
 * Cost     the headers (76 MB for K3) and 3,000 small reads for K3.
 */
#ifndef MODEL_CKPT_IDENTITY_H
#define MODEL_CKPT_IDENTITY_H

#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/ckpt/error.h"

struct ckpt;

enum { IDENTITY_BYTES = 32, IDENTITY_TEXT_BYTES = 2 * IDENTITY_BYTES + 1 };

struct identity {
    uint8_t byte[IDENTITY_BYTES];
};

int identity_of(struct identity *out, const struct ckpt *k,
                const struct config *c, struct error *error);
/* Lowercase hexadecimal. */
void identity_text(char out[IDENTITY_TEXT_BYTES], const struct identity *id);

#endif

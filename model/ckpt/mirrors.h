/* mirrors.h - more copies of a checkpoint's shards, whole folders or parts.
 *
 *     ckpt_open -> mirrors_find -> { path, of, copy } -> mirrors_free
 *
 * A copy has the shard's name, size and header; its tensors are not compared
 * (sluice verify does that). What cannot be read is left out with a note, since
 * the shard itself is there; what is another file is refused.
 *
 * Threads  one caller.
 * Errors   -EBADMSG: a file of that name is no copy; -ENOMEM.
 * Cost     both headers are read.
 */
#ifndef MODEL_CKPT_MIRRORS_H
#define MODEL_CKPT_MIRRORS_H

#include "model/ckpt/ckpt.h"

struct mirrors {
    uint32_t count;
    char   **path;  /* [count] */
    uint32_t *of;   /* [count] the shard, as ckpt numbers them */
    uint32_t *copy; /* [count] 1 + the number of the folder */
};

/* Called for each thing that is left out, with a sentence. */
typedef void mirrors_note_fn(void *arg, const char *text);

/* On failure *out is empty. */
int mirrors_find(struct mirrors *out, const struct ckpt *ckpt,
                 const char *const *folder, uint32_t folders,
                 mirrors_note_fn *note, void *arg, struct error *error);
void mirrors_free(struct mirrors *m);

#endif

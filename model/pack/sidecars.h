/* sidecars.h - which sidecars of a model are used: one for each of its shards,
 * or none.
 *
 *     sidecars_open -> { of[file] } -> sidecars_close
 *
 * Errors   A sidecar that is missing, damaged or of another shard means that
 *          its shard is read as it is; the note says so. With "require" the
 *          first one is an error, -ENOENT or what sidecar.h gives; a folder
 *          that is named and has none that can be used is -ENOENT.
 * Threads  Read-only after open.
 */
#ifndef MODEL_PACK_SIDECARS_H
#define MODEL_PACK_SIDECARS_H

#include "model/ckpt/ckpt.h"
#include "model/pack/sidecar.h"

struct sidecars {
    uint32_t files;
    struct sidecar **of; /* [files] of the checkpoint; NULL: as it is */
    uint32_t *number;    /* [files]: of a sidecar, as if it came behind the
                          * shards: files, files + 1, ... */
    uint32_t used, absent, refused; /* absent, refused: had something to code */
    uint32_t moved;                 /* used; the shard's time differs */
    char    *dir;
};

/* One sentence about a sidecar that is not used, or about several. */
typedef void sidecars_note_fn(void *arg, const char *text);

/* packed: "auto" (NULL is the same), "off", "require" or a folder. `note` may
 * be NULL. On failure *out is empty. */
int  sidecars_open(struct sidecars *out, const char *packed, const char *model,
                   const struct config *c, const struct ckpt *k,
                   sidecars_note_fn *note, void *arg, struct error *error);
void sidecars_close(struct sidecars *s);

#endif

/* state_file.h - a sequence's state as a file.
 *
 *     header, 4096 bytes | a CRC-32C for each MiB of payload | payload
 *
 * The payload is the ids that have gone into the state, the KDA states, the
 * histories of the convolutions and, of every MLA layer, the latents of the
 * positions so far: nothing for the rest of the context, so a file can be
 * loaded into a session with any context that holds its positions. All numbers
 * are little-endian as the CPU has them; the header says so.
 *
 *     state_save -> { state_peek -> state_load }
 *
 * Bytes    of K3: 465 MB and 55,296 bytes a position.
 * Threads  one caller a state; nothing else may use the state meanwhile.
 * Errors   with a sentence that names the file: -EBADMSG for damaged or foreign
 *          bytes, another version or another byte order; -ESTALE for another
 *          model or other options; -ENOSPC and other errnos of the file;
 *          -ENOMEM. A failed save leaves the file that was there. A failed load
 *          leaves an empty sequence.
 * Cost     one pass over the bytes: the drive's time, and the checksum.
 */
#ifndef MODEL_STATE_STATE_FILE_H
#define MODEL_STATE_STATE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/error.h"
#include "model/ckpt/identity.h"
#include "model/state/state.h"

/* What a state depends on: that of another owner gives other logits. */
struct state_owner {
    struct identity model;
    float           mla_latent_eps;
};

enum { STATE_HOW_BYTES = 16 };

/* What the caller knows of the ids; nothing here is checked against another. */
struct state_after {
    uint32_t next;   /* the id after them; UINT32_MAX: not known */
    uint32_t prompt; /* how many of them are a prompt; the rest was made */
    uint8_t  how[STATE_HOW_BYTES]; /* it was made */
};

struct state_info {
    uint32_t  positions; /* rows that have gone into the state */
    uint32_t *ids;       /* [positions] theirs; free() it */
    uint64_t  file_bytes;
    struct state_after after;
};

/* Write the state of `block` (shape) with the ids of its positions and `after`,
 * which may be NULL. The file appears whole, after its bytes are on the drive
 * when `sync`. */
int state_save(const char *path, const uint8_t *block,
               const struct state_shape *shape, const uint32_t *ids,
               const struct state_after *after,
               const struct state_owner *owner, bool sync, struct error *error);
/* What is at this path may be replaced: nothing, an empty file, or a state,
 * damaged or not. 0, or -EEXIST: state_save would refuse. */
int state_replaces(const char *path, struct error *error);
/* Read and check header and ids, without the state. -ENOENT: no file. */
int state_peek(struct state_info *out, const char *path,
               const struct state_shape *shape,
               const struct state_owner *owner, struct error *error);
/* Read the state into `block`, checked. -EFBIG: more positions than the
 * context has. */
int state_load(uint8_t *block, const char *path,
               const struct state_shape *shape,
               const struct state_owner *owner, struct error *error);
/* Bytes of the file of a sequence with `positions` positions. */
uint64_t state_file_bytes(const struct state_shape *shape, uint32_t positions);

#endif

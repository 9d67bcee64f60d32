/* state_share.h - the state of a sequence whose KDA heads several processes
 * have: how it becomes the bytes of one file, and back.
 *
 * The bytes come in spans, in the order of the file: the KDA states, the
 * histories, the latent caches.
 *
 *     begin -> next until *out has no bytes -> end
 *
 * Errors   of those who share: a negative errno.
 */
#ifndef MODEL_STATE_STATE_SHARE_H
#define MODEL_STATE_STATE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct state_span {
    uint8_t *at;
    uint64_t bytes;
};

struct state_share {
    uint64_t kda_bytes, conv_bytes; /* of a layer, with all heads */
    int (*begin)(void *arg, uint8_t *block, bool load, uint32_t positions);
    /* A save is given spans with the bytes; a load fills each span before it
     * asks for the next. */
    int (*next)(void *arg, struct state_span *out);
    /* `err`: how it went so far, for the others. Returns it, or an error of
     * theirs. */
    int (*end)(void *arg, int err);
    void *arg;
};

#endif

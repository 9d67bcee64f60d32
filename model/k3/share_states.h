/* share_states.h - saving and loading states whose heads several processes
 * have (state/state_share.h).
 *
 * On rank 0 state/state_file.c moves the bytes; all ranks walk the same spans.
 * What another rank has is gathered before rank 0 writes it, and told to it
 * when rank 0 has read it: KDA states layer by layer and rank by rank,
 * histories row by row, the latent caches, which all ranks have, only in loads.
 *
 * Memory   the buffer of gathers.
 * Threads  the engine's caller.
 * Errors   those of the peers (shared.h).
 */
#ifndef MODEL_K3_SHARE_STATES_H
#define MODEL_K3_SHARE_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "model/state/state_share.h"

enum state_part { STATE_KDA, STATE_CONV, STATE_LATENT, STATE_PARTS };

/* Where a walk over the spans is. */
struct state_walk {
    uint8_t *block;
    bool     load;
    uint32_t positions;
    enum state_part part;
    uint32_t layer; /* among its kind */
    uint32_t run;   /* KDA: a rank's heads; CONV: a row; LATENT: 0 */
    uint64_t done;  /* bytes of the run */
    /* The span that the last call gave, of this run, from byte `from`. */
    struct state_span span;
    uint64_t from;
    int err;
};

struct k3;

/* Make the engine's states shared ones, if other processes have heads. */
void k3_share_states(struct k3 *k);
/* Other ranks: do their part of what rank 0 saves or loads. */
void k3_share_obey(struct k3 *k, uint32_t sequence, bool load,
                   uint32_t positions);

#endif

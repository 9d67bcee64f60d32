/* proposal.h - what a trained drafter proposed for a sequence, and how often it
 * was right.
 *
 * A proposal is compared with every id that follows, also where no draft row
 * was run: so it is known what the drafter is worth at the price of a sweep.
 * Counts decay: by position, of the sequence and of all sequences, and by how
 * sure the drafter said it was.
 *
 *     record_init, proposal_init -> { proposal_set, proposal_chances,
 *     proposal_learn }
 *
 * Threads  one caller a struct. Bytes: nothing beside the caller's structs.
 */
#ifndef MODEL_DECODE_PROPOSAL_H
#define MODEL_DECODE_PROPOSAL_H

#include <stdint.h>

#include "model/dspark/dspark.h"

enum { PROPOSAL_BINS = 6 }; /* of confidences */

/* Of all sequences. */
struct proposal_record {
    float tried[DSPARK_BLOCK], right[DSPARK_BLOCK];
    float bin_tried[PROPOSAL_BINS], bin_right[PROPOSAL_BINS];
};

/* One sequence's. */
struct proposal {
    uint32_t ids[DSPARK_BLOCK];
    float    confidence[DSPARK_BLOCK];
    uint32_t count;   /* 0: none */
    uint32_t at;      /* ids of the text when it was made */
    uint32_t checked; /* of its ids, that were compared */
    float    tried[DSPARK_BLOCK], right[DSPARK_BLOCK];
    double   each[DSPARK_BLOCK]; /* proposal_chances */
};

void proposal_record_init(struct proposal_record *r);
void proposal_init(struct proposal *p);
/* A proposal for a text of `at` ids; it replaces the one before. */
void proposal_set(struct proposal *p, const struct dspark_ask *ask,
                  uint32_t count, uint32_t at);
/* Fill each[]: the chance that id i is right, given that those before it are.
 * `made`: of this proposal; else of the next one, as far as one can tell. */
void proposal_chances(struct proposal *p, const struct proposal_record *r,
                      bool made);
/* ids[count] is the text by now. */
void proposal_learn(struct proposal *p, struct proposal_record *r,
                    const uint32_t *ids, uint32_t count);

#endif

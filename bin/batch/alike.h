/* alike.h - what the prompts of requests that come later have in common, so
 * that the state of a common beginning is kept for them.
 *
 * Threads  one.
 * Cost     the ids of the list, compared with those of one prompt.
 */
#ifndef BIN_BATCH_ALIKE_H
#define BIN_BATCH_ALIKE_H

#include "bin/batch/job.h"

enum {
    ALIKE_AHEAD = 16,       /* requests that are looked at */
    ALIKE_IDS = 256 << 10,  /* ids of all their prompts, about */
    ALIKE_HELD_MAX = 4,     /* states in memory */
};

/* How many first ids of `j` it pays to keep for those of a list, by `after`: a
 * length that saves most rows. 0: none. */
uint32_t alike_common(const struct batch_job *j, const struct batch_job *list);
/* How many such beginnings a list has in use at one time, up to ALIKE_HELD_MAX.
 */
uint32_t alike_held(const struct batch_job *list);
/* How many requests a list has, or ALIKE_AHEAD if their ids are as many as may
 * be looked at. */
uint32_t alike_count(const struct batch_job *list);

#endif

/* memory.h - how much memory this process may take, and whether a plan fits.
 *
 * Threads  any.
 * Errors   what cannot be read has no limit.
 * Cost     a few files of /proc and /sys.
 */
#ifndef MODEL_MEMORY_H
#define MODEL_MEMORY_H

#include <stdint.h>

#include "model/ckpt/error.h"

/* The budget of a session that was given none, never 0: what the machine and
 * the groups that the process is in have free, less a reserve (io/host.h). */
uint64_t memory_default(void);
/* The most bytes of this process that were resident so far. */
uint64_t memory_peak_rss(void);
/* Are these bytes free, with what the kernel charges a group beside them? 0 or
 * -ENOMEM. Asked before they are taken: a process that takes more than there is
 * gets killed, without a sentence. */
int memory_fits(uint64_t bytes, struct error *error);

#endif

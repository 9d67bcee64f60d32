/* machine.h - what this machine does in a second, for a forecast: a fraction of
 * a second of kernels and of reads.
 */
#ifndef MODEL_MACHINE_H
#define MODEL_MACHINE_H

#include "model/forecast.h"
#include "model/why.h"

/* Time the products of one row and of many over at most `memory_bytes` of
 * weights, which are given back. Fills the four of compute and `threads`.
 * kern_init comes first. -ENOMEM, or what team_open returns. */
int machine_kernels(struct forecast_machine *m, uint32_t threads,
                    uint64_t memory_bytes, struct why *why);
/* Time random reads from the shards of a folder: fills drive_bytes. 0 when they
 * are too small to tell. */
int machine_drives(struct forecast_machine *m, const char *dir,
                   const char *method, struct why *why);

#endif

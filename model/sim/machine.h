/* machine.h - what this machine does in a second, for a forecast: a fraction of
 * a second of kernels and of reads.
 */
#ifndef MODEL_SIM_MACHINE_H
#define MODEL_SIM_MACHINE_H

#include "model/ckpt/error.h"
#include "model/parts/parts.h"
#include "model/sim/forecast.h"

/* Time the products of one row and of many over at most `memory_bytes` of
 * weights, which are given back. Fills the four of compute and `threads`.
 * `coded`: those of the trunk from coded blocks, decoding included; the rates
 * are of what the bytes stand for. -ENOMEM, or what team_open returns. */
int machine_kernels(struct forecast_machine *m, uint32_t threads,
                    uint64_t memory_bytes, bool coded, struct error *error);
/* Time random reads from the shards of a folder, or from parts unless they are
 * NULL: fills the drives, of which there are none when the files are too small
 * to tell. */
int machine_drives(struct forecast_machine *m, const char *dir,
                   const struct parts *parts, const char *method,
                   struct error *error);
/* The drives of what a reader has measured, or of the simulated ones if there
 * are any. Returns how many; 0: some were not measured. */
uint32_t machine_of_reader(struct paced_drive *drive,
                           const struct reader_facts *f);
/* What the drives could give together, at best. */
double machine_bytes_per_s(const struct forecast_machine *m);

#endif

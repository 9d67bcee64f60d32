/* report_detail.h - the parts of a report that `sluice profile` draws and from
 * which replay takes the time of compute:
 *
 *   layers   {prefill, decode}: an array, one object a layer, then one for what
 *            is outside the layers
 *   kernels  {prefill, decode}: seconds of compute by kernel
 *   latency  {demand, trunk, prefetch}: reads, bytes, and two histograms,
 *            queue_us and device_us, as [[first microsecond of a bucket,
 *            reads], ...]
 *            queue_p50_p99_p999_us and the same of device: the microseconds
 *            below which these shares of the reads are, to a quarter of an
 *            octave upwards
 *   drives an array: rates and bytes a second, budget_bytes (in flight), bytes
 *            read, busy_s
 *
 * Threads  the session's caller. Errors: none.
 *
 * In reports of older versions `prefetch` is `guess`, prefetch_hits guess_hits.
 */
#ifndef BIN_REPORT_REPORT_DETAIL_H
#define BIN_REPORT_REPORT_DETAIL_H

#include <jansson.h>

#include "model/k3/k3.h"

/* Add them to `report`. No pass may follow. */
void report_detail(json_t *report, struct k3 *k);

/* The microseconds that `share` (0 to 1) of a histogram's reads do not exceed:
 * the end of a bucket. 0: there are no reads. */
double report_percentile(const json_t *histogram, double share);

#endif

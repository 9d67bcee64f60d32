/* report_detail.h - the parts of a report that `sluice profile` draws and that
 * replay takes the cost of compute from:
 *
 *   layers   {prefill, decode}: an array, one object a layer, the last for what
 *            is outside the layers
 *   kernels  {prefill, decode}: seconds of compute by kernel
 *   latency  {demand, trunk, guess}: reads, bytes, and two histograms as
 *            [[from microseconds, reads], ...], each up to the next
 *   drives   an array: rates, latency, bytes in flight that saturate, bytes
 *            read, seconds busy
 */
#ifndef BIN_REPORT_DETAIL_H
#define BIN_REPORT_DETAIL_H

#include <jansson.h>

#include "model/k3.h"

void report_detail(json_t *report, struct k3 *k);

#endif

/* machines.h - what each of several processes has done, in the report and as a
 * table for people.
 *
 * machines   an object a rank, of the passes: host, read_bytes (of it
 *            trunk_bytes, expert_bytes), resident_read_bytes (at open),
 *            device_bytes_per_s; pass_s; wait_drives_s, for reads;
 *            wait_ranks_s,
 *            until the slowest rank was there; network_s, in gathers;
 *            gathers, sent_bytes and received_bytes; budget_bytes,
 *            planned_bytes
 *
 * Threads  the session's caller. Errors: none.
 */
#ifndef BIN_REPORT_MACHINES_H
#define BIN_REPORT_MACHINES_H

#include <jansson.h>

#include "model/k3/k3.h"

/* Adds `machines`, if there are several. */
void machines_report(json_t *report, const struct k3 *k);
/* The table, on stderr, if the report has it. */
void machines_say(const json_t *report);

#endif

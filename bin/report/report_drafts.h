/* report_drafts.h - drafts of a run, for its report: by source, by their place
 * behind the known id, and what a drafter has taken.
 *
 *     "drafts": {"rows": N, "accepted": N,
 *                "forced_ids": no other could have come: no row was sampled,
 *                "form": those that a form has, as "text",
 *                "text": {"rows": [..], "accepted": [..]},
 *                "drafter": the same, and with a drafter:
 *                {"kind", "drafts", "sweeps": over its weights,
 *                 "read_bytes", "seconds", "resident", "draft_bytes",
 *                 "memory_bytes", "failed"}}
 */
#ifndef BIN_REPORT_REPORT_DRAFTS_H
#define BIN_REPORT_REPORT_DRAFTS_H

#include <jansson.h>

#include "model/knobs.h"

/* Put the object into the report. */
void report_drafts(json_t *report, const struct sluice *s);
/* With a drafter, a line on stderr. */
void report_drafts_say(const struct sluice *s);

#endif

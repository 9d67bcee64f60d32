/* report.h - the numbers of a session, as JSON (design.md 7) and for people.
 *
 * Bytes are payload, once each:
 *   prefill, decode   read_bytes, which is the sum of
 *       trunk_bytes           of the layers, streamed
 *       embed_bytes           rows of the embedding
 *       expert_demand_bytes   experts that a router asked for
 *       expert_guess_bytes    experts guessed and then asked for
 *       wasted_bytes          read and not used: guesses that no router asked
 *                             for, and after the last pass what was read ahead
 *                             of an end id or came too late to be judged
 *   io   resident_read_bytes, read at open; it and the read_bytes of both
 *        phases are payload_bytes. device_bytes has the rest of the pages, and
 *        repeats.
 */
#ifndef BIN_REPORT_H
#define BIN_REPORT_H

#include <jansson.h>
#include <stdint.h>

#include "model/k3.h"

struct report_input {
    struct k3      *k;
    const uint32_t *prompt, *generated;
    uint64_t        prompt_count, generated_count;
    uint64_t        decode_tokens; /* ids that decode passes gave */
    double          wall_seconds;
};

/* The plan object of a report and of `plan --json`. */
json_t *report_plan(const struct plan *p);
/* The whole report; the caller may add names and decrefs it. No pass may
 * follow. */
json_t *report_make(const struct report_input *in);
/* Add what became of draft rows. */
void report_drafts(json_t *report, uint64_t drafted, uint64_t accepted);
/* Write JSON to a file. NULL: nowhere. 0 or a negative errno. */
int  report_write(const char *path, const json_t *report, struct why *why);
/* Lines on stderr: tokens and time, bytes, where time went, memory. */
void report_say(const json_t *report);

#endif

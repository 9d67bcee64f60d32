/* report.h - the numbers of a session, as JSON and for people.
 *
 *     report_make -> { the caller adds names } -> report_write, report_say
 *
 * prefill, decode   of the prompt and of the new tokens. Bytes are payload,
 *                   each counted once; read_bytes is the sum of
 *       trunk_bytes           of the layers, streamed
 *       embed_bytes           rows of the embedding
 *       expert_demand_bytes   experts read when a router chose them
 *       expert_prefetch_bytes experts prefetched and then chosen
 *       wasted_bytes          read and not used: prefetches that no router
 *                             chose; after the last pass, trunk read ahead and
 *                             prefetches that no router ran for
 *                   decoded_bytes is what those that were used stand for, were
 *                   none coded
 *                   wait_trunk_s, wait_expert_s and wait_embed_s (rows of the
 *                   embedding) are the time without compute; idle_s, summed
 *                   over the drives, is the time in which a drive had no read,
 *                   and in all_idle_s none had one
 * experts           of all passes. requests: what rows chose; a hit needs no
 *                   read: the expert is in the cache, or another row of the
 *                   pass chose it; a load needs one, prefetched or not.
 *                   requests = hits + loads, here, in pages and in replay.
 *                   prefetched experts, prefetch_hits (loads that were complete
 *                   in time), late (loads that were on their way)
 * io                resident_read_bytes was read at open. payload_bytes is it
 *                   and read_bytes of both phases; device_bytes also has the
 *                   rest of the pages, and repeats.
 *
 * coded             coded weights: files; trunk_used and scales_used, false
 *                   also where they lie on a drive so slow that the shards are
 *                   read faster; of the trunk, and of an expert on average, the
 *                   bytes that are read or resident (stored) and what they
 *                   stand for (decoded); mended were read once more because
 *                   their checksum did not match. All other bytes of a report
 *                   are stored ones. resident: tiles of coded weights in
 *                   memory, kept coded or decoded, by what works with them:
 *                   products, or kernels that want rows (router, MLA).
 *                   decode_time, if it was measured: the time of a product with
 *                   coded weights over that with raw ones, for one row, for
 *                   many, and where rows are decoded first
 *
 * machines          of several processes, see machines.h; other numbers
 *                   are rank 0's
 *
 * setup             what it was made with, see setup.h
 * open_s            from the folder to a session: headers, plan, resident
 *                   weights. probe_s: of it, measuring the drives. wall_seconds
 *                   begins after it
 *
 * Names end in their unit: _bytes, _s (seconds), _us, _share (0 to 1).
 *
 * Old names, written too with the same value: expert_guess_bytes for
 * expert_prefetch_bytes, guessed for prefetched, guess_hits for prefetch_hits.
 *
 * Errors   report_write returns the errno of the file.
 * Threads  the session's caller.
 */
#ifndef BIN_REPORT_REPORT_H
#define BIN_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/k3/k3.h"

struct report_input {
    struct k3      *k;
    const uint32_t *prompt, *generated; /* ids, [prompt_count] and so on */
    uint64_t        prompt_count, generated_count;
    uint64_t        decode_tokens; /* ids that decode passes produced */
    double          wall_seconds;
    double          open_seconds; /* from the folder to a session */
    json_t         *setup;        /* setup.h; taken, or NULL */
};

/* Add the old names to an object that has the new ones. */
void report_set_old_names(json_t *o);
bool report_is_old_name(const char *name);
/* The plan object of a report and of `plan --json`. */
json_t *report_plan(const struct plan *p);
/* The whole report, which the caller decrefs. No pass may follow. */
json_t *report_make(const struct report_input *in);
/* Write JSON to a file, unless `path` is NULL. 0 or a negative errno. */
int report_write(const char *path, const json_t *report, struct error *error);
/* Print to stderr: tokens and time, bytes, where the time went, memory. */
void report_say(const json_t *report);

#endif

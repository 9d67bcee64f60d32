/* compare.h - two groups of reports side by side: what differs in set-up, what
 * in result, and whether that is more than noise.
 *
 *     compare_add (each report, to A or B) -> compare_print | compare_json
 *     -> compare_free
 *
 * Errors   -EBADMSG and a sentence: not a report. -EINVAL: more than
 *          STATS_RUNS_MAX reports in a group. -ENOMEM.
 * Threads  one caller.
 */
#ifndef BIN_REPORT_COMPARE_H
#define BIN_REPORT_COMPARE_H

#include <jansson.h>
#include <stdio.h>

#include "bin/report/stats.h"
#include "model/ckpt/error.h"

struct compare {
    json_t *report[2][STATS_RUNS_MAX]; /* groups A and B */
    size_t  n[2];
};

/* Read the report in `path` into group 0 (A) or 1 (B). */
int compare_add(struct compare *c, int group, const char *path,
                struct error *error);
/* Both groups have at least one report. */
void compare_print(FILE *out, const struct compare *c);
/* The same as an object; the caller decrefs it. */
json_t *compare_json(const struct compare *c);
void compare_free(struct compare *c);

#endif

/* time_charts.h - the part of a profile that is drawn over time: what each
 * drive read and what compute did, in the whole run and in one pass.
 *
 * Errors   those of times_fill; -ENOMEM. Threads: one caller.
 */
#ifndef BIN_HTML_TIME_CHARTS_H
#define BIN_HTML_TIME_CHARTS_H

#include <jansson.h>
#include <stdio.h>

#include "bin/report/profile_time.h"

/* `decode`: close up, show a decode pass, else one of the prompt. */
int time_charts(FILE *f, bool decode, const json_t *report, struct times *t,
                struct error *error);

#endif

/* profile_page.h - a report, and a timeline if there is one, as a page.
 *
 * Errors   -EBADMSG: the report or timeline is not one; -ENOMEM. Write errors
 *          are for the caller: ferror(f). Threads: one caller.
 */
#ifndef BIN_HTML_PROFILE_PAGE_H
#define BIN_HTML_PROFILE_PAGE_H

#include <jansson.h>
#include <stdio.h>

#include "bin/report/profile_time.h"

/* Write the page. `about` names what was run. Without `t` (NULL) there are no
 * charts over time; without the path `trace`, more memory is not simulated. */
int profile_page(FILE *f, const char *about, const json_t *report,
                 struct times *t, const char *trace, struct error *error);

#endif

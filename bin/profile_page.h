/* profile_page.h - a report, and a timeline if there is one, as a page. */
#ifndef BIN_PROFILE_PAGE_H
#define BIN_PROFILE_PAGE_H

#include <jansson.h>
#include <stdio.h>

#include "bin/profile_time.h"

/* `t` may be NULL: no part over time; `trace` too: less is said of memory.
 * `about` names what was run. 0, or a sentence: a report that lacks what is
 * drawn, a timeline that cannot be read. */
int profile_page(FILE *f, const char *about, const json_t *report,
                 struct times *t, const char *trace, struct why *why);

#endif

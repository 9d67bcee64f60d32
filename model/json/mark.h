/* mark.h - how a text begins when it is not plain UTF-8.
 */
#ifndef MODEL_JSON_MARK_H
#define MODEL_JSON_MARK_H

#include <stddef.h>

enum { TEXT_MARK_BYTES = 4 }; /* at the beginning, to know */

/* What this is and what to do, when it is no UTF-8: UTF-16, UTF-32, gzip, zstd,
 * xz, zip. NULL: it may be UTF-8; *skip is then the length of its mark, 0 or 3.
 */
const char *text_mark(const char *text, size_t bytes, size_t *skip);

#endif

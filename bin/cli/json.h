/* json.h - results as JSON. Paths and the sentences of the system are bytes, of
 * which JSON has no notion: a byte that is no part of a UTF-8 character becomes
 * \xNN, in the text.
 *
 * Threads  any. Errors: NULL and 1, as below.
 */
#ifndef BIN_CLI_JSON_H
#define BIN_CLI_JSON_H

#include <jansson.h>

/* These bytes as text, up to `room` bytes with the end. */
void json_plain(char *out, size_t room, const char *text);
/* A string of these bytes; null for NULL. NULL: no memory. */
json_t *json_bytes(const char *text);
/* Print to stdout, with a line end, and drop it. 0, or 1 after a sentence: no
 * part of a result is a result. */
int json_print(json_t *root, size_t flags);

#endif

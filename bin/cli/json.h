/* json.h - results as JSON. Paths and the sentences of the system are bytes, of
 * which JSON has no notion: a byte that is no part of a UTF-8 character becomes
 * \xNN, in the text.
 *
 * Threads  any. Errors: NULL and 1, as below.
 */
#ifndef BIN_CLI_JSON_H
#define BIN_CLI_JSON_H

#include <jansson.h>
#include <stdint.h>

/* These bytes as text, up to `room` bytes with the end. */
void json_plain(char *out, size_t room, const char *text);
/* A string of these bytes; null for NULL. NULL: no memory. */
json_t *json_bytes(const char *text);
/* Print to stdout, with a line end, and drop it. 0, or 1 after a sentence: no
 * part of a result is a result. */
int json_print(json_t *root, size_t flags);

/* Fields of an object. */
static inline void set_int(json_t *o, const char *name, uint64_t value)
{
    json_object_set_new(o, name, json_integer((json_int_t)value));
}

static inline void set_real(json_t *o, const char *name, double value)
{
    json_object_set_new(o, name, json_real(value));
}

static inline void set_seconds(json_t *o, const char *name, int64_t ns)
{
    set_real(o, name, (double)ns / 1e9);
}

#endif

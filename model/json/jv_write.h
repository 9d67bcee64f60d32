/* jv_write.h - values to JSON text, as Python's json.dumps spells it with
 * ensure_ascii=False: prompts are made of these very bytes.
 *
 * Whole numbers keep their digits (-0 is 0), reals are the shortest that read
 * back, NaN and Infinity are words. Of equal keys the last value stands, at the
 * place of the first.
 *
 * Threads  any number.
 * Errors   the buffer's.
 */
#ifndef MODEL_JSON_JV_WRITE_H
#define MODEL_JSON_JV_WRITE_H

#include "model/json/buffer.h"
#include "model/json/jv.h"

enum jv_style {
    JV_COMPACT, /* "," and ":", keys sorted by their bytes at every depth */
    JV_SPACED,  /* ", " and ": ", keys in their order */
};

void jv_write(struct buffer *out, const struct jv *v, enum jv_style style);

/* The keys that count of an object, as JV_COMPACT orders them: an array for
 * free(), `*count` long. NULL: no memory, or an empty object. */
const struct jv **jv_sorted(const struct jv *object, uint32_t *count);

/* The text of a string without quotes, escaped; with `quotes`, all of it. */
void jv_write_escaped(struct buffer *out, const char *text, size_t bytes);
void jv_write_string(struct buffer *out, const char *text, size_t bytes);

/* As jv_write_string, with U+0085, U+2028 and U+2029 escaped, at which some
 * programs end a line. */
void jv_write_line_string(struct buffer *out, const char *text, size_t bytes);

/* Append text with U+FFFD for each byte sequence that is no UTF-8, as a WHATWG
 * decoder does. */
void jv_clean(struct buffer *out, const char *text, size_t bytes);

#endif

/* convert.h - requests of other APIs as requests of OpenAI's chat API, which
 * model/chat reads. Fields that mean the same go through as they are spelt, so
 * that what the reader learns is served here, too; a field that is not known is
 * refused.
 *
 * Threads  any number.
 * Errors   -1 with *e.
 */
#ifndef BIN_SERVE_API_CONVERT_H
#define BIN_SERVE_API_CONVERT_H

#include "bin/serve/api/api_error.h"
#include "model/json/jv.h"

/* POST /v1/messages. `counts`: of /v1/messages/count_tokens, which has no
 * max_tokens. */
int convert_messages(struct buffer *out, const struct jv *body, bool counts,
                     struct api_error *e);
/* POST /v1/responses. `before`: the items of the conversation so far, a list;
 * NULL: none. */
int convert_responses(struct buffer *out, const struct jv *body,
                      const struct jv *before, struct api_error *e);
/* What such a request adds to a conversation: items, the inside of a list. */
void convert_turns(struct buffer *out, const struct jv *body);
/* What its answer repeats of it: the inside of an object, a comma behind each
 * member. */
void convert_echo(struct buffer *out, const struct jv *body);

/* A refusal of the chat request that was made, in the words of the client's:
 * its field is called otherwise there, and messages have other numbers. */
void convert_back(struct api_error *e, enum api api);

/* ---- for the two ---- */

/* A field that is copied; NULL `as`: under its own name. `as` "": it says
 * nothing, and is not; "*": the converter writes it. */
struct convert_field {
    const char *name, *as;
};
/* Copy the fields of a table, ended by a name that is NULL, each with a comma
 * before it. */
int  convert_fields(struct buffer *out, const struct jv *body,
                    const struct convert_field *table, struct api_error *e);
int  convert_refuse(struct api_error *e, const char *field,
                    const char *sentence);
/* A value as it was written. */
void convert_raw(struct buffer *out, const struct jv *v);
void convert_string(struct buffer *out, const struct jv *v);

#endif

/* grammar.h - what a reply may be: JSON of a schema, or a text of a pattern.
 *
 *     grammar_schema | grammar_json | grammar_pattern | grammar_calls
 *     -> { match.h } -> grammar_free
 *
 * Schemas are JSON Schema, draft 2020-12, read so: every key of an object once,
 * in any order; at most GRAMMAR_BLANKS blanks between two tokens; numbers of at
 * most 200 characters; at most GRAMMAR_DEPTH values inside of each other;
 * formats by the table of format.h. Served:
 *
 *   any type   type, enum, const, anyOf, oneOf (branches that exclude each
 *              other), allOf, $ref into the document (also recursive), nullable
 *   object     properties, required, additionalProperties, minProperties,
 *              maxProperties
 *   array      items, prefixItems, minItems, maxItems
 *   string     minLength, maxLength, pattern, format
 *   number     minimum, maximum, exclusiveMinimum, exclusiveMaximum
 *
 * Annotations are ignored; every other keyword is refused by name.
 *
 * Threads  read-only once made.
 * Errors   -EINVAL: a schema or pattern that is none; -ENOTSUP: not supported;
 *          -ENOENT: it allows nothing; -E2BIG: too large; -ENOMEM. Always a
 *          sentence, which names the keyword and where it stands.
 */
#ifndef MODEL_GRAMMAR_GRAMMAR_H
#define MODEL_GRAMMAR_GRAMMAR_H

#include "model/ckpt/error.h"
#include "model/json/jv.h"

enum { GRAMMAR_BLANKS = 32, GRAMMAR_DEPTH = 128 };

/* What stands for the control ids of a chat reply in the bytes of a match: no
 * text has these bytes. */
enum { GRAMMAR_OPEN = 0xf8, GRAMMAR_CLOSE, GRAMMAR_SEP, GRAMMAR_CONTROL_END };

struct grammar;

/* The schema need not stay. */
int grammar_schema(struct grammar **out, const struct jv *schema,
                   struct error *error);
/* Any JSON object. */
int grammar_json(struct grammar **out, struct error *error);
/* Texts that the whole pattern (dfa.h) accepts. */
int grammar_pattern(struct grammar **out, const char *pattern, size_t bytes,
                    struct error *error);

struct grammar_tool {
    const char *name; /* letters, digits, _ and -; [bytes] */
    size_t bytes;
    const struct jv *parameters; /* a schema; NULL: there are none */
};

/* What follows <|open|>tools<|sep|>: calls of these tools, one at least, and
 * the close of the channel. A call is
 *     <|open|>call tool="NAME" index="N"<|sep|> ARGUMENT...
 *     <|close|>call<|sep|>
 * with N from 1, and an argument
 *     <|open|>argument key="KEY" type="TYPE"<|sep|> VALUE
 *     <|close|>argument<|sep|>
 * where VALUE is the text of a string as it is, or the JSON of anything else,
 * and & and " of a KEY are &amp; and &quot;. Together the arguments of a call
 * are an object that the tool's schema allows. */
int grammar_calls(struct grammar **out, const struct grammar_tool *tool,
                  uint32_t tools, struct error *error);
void grammar_free(struct grammar *g);

#endif

/* jv.h - JSON text to values that keep their spelling.
 *
 * A chat prompt is made of the literals that a client sent: 1e2 is not 100.0,
 * an integer of thirty digits is itself, equal keys both stay and an argument's
 * value goes into the prompt with its own blanks. So a value here knows the
 * text it was read from, and a number is only text until somebody asks for its
 * value. Objects keep their order and their repeated keys.
 *
 *     jv_parse -> { jv_get, jv_first, jv_next, jv_integer ... } -> jv_free
 *
 * The values of a document are one array in the order of the text: an object is
 * followed by key, value, key, value ...; `skip` leads from a value to the one
 * behind it.
 *
 * Bytes    a copy of the text, as much again for strings, 32 a value.
 * Threads  a document is read-only after jv_parse.
 * Errors   -EBADMSG with what is wrong and where, -ENOMEM.
 * Source   RFC 8259. An escaped half of a surrogate pair is U+FFFD, as
 *          JavaScript's and Python's encoders write it.
 */
#ifndef MODEL_JSON_JV_H
#define MODEL_JSON_JV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JV_DEPTH_MAX = 1000 }; /* arrays and objects inside of each other */

enum jv_type {
    JV_NULL,
    JV_FALSE,
    JV_TRUE,
    JV_NUMBER,
    JV_STRING,
    JV_ARRAY,
    JV_OBJECT
};

struct jv {
    enum jv_type type;
    uint32_t skip;     /* values from this one to the one behind it */
    const char *text;  /* a string's, decoded: may hold NUL, and ends by one */
    uint32_t bytes;    /* of that text; of an array or an object: its count */
    uint32_t raw_bytes;
    const char *raw;   /* the literal as it was written; no NUL behind it */
};

struct jv_doc {
    struct jv *root;
    uint32_t   count; /* values */
    char      *text, *strings;
    size_t     end;   /* bytes of the text that were read */
};

enum jv_dialect {
    JV_STRICT = 0,
    JV_NAN = 1,    /* NaN, Infinity and -Infinity are numbers too */
    JV_PREFIX = 2, /* what follows the value is not looked at */
};

struct jv_wrong {
    const char *what; /* a constant */
    size_t      at;   /* bytes from the beginning */
};

/* `wrong` may be NULL. The text need not stay. */
int  jv_parse(struct jv_doc *d, const char *text, size_t bytes,
              unsigned dialect, struct jv_wrong *wrong);
void jv_free(struct jv_doc *d);

/* The member of an object, the last of equal ones; NULL when there is none, it
 * is null, or `v` is NULL or no object. */
const struct jv *jv_get(const struct jv *v, const char *key);

/* As jv_get; NULL also when the member is empty (jv_is_empty). */
const struct jv *jv_given(const struct jv *v, const char *key);

/* Elements of an array; keys of an object, whose values are at key + 1. NULL at
 * the end, and for every other type. */
const struct jv *jv_first(const struct jv *v);
const struct jv *jv_next(const struct jv *parent, const struct jv *v);

/* Does a string say exactly this. False for NULL and other types. */
bool jv_is(const struct jv *v, const char *text);
bool jv_is_type(const struct jv *v, enum jv_type type); /* false for NULL */
bool jv_is_bool(const struct jv *v);
/* NULL, null, "", [] and {}: nothing was said. */
bool jv_is_empty(const struct jv *v);

/* The value of a number that is a whole one, however it is spelt: 3, 3.0,
 * 30e-1. False for others and for those that an int64_t cannot hold. */
bool jv_integer(const struct jv *v, int64_t *out);
/* The nearest double; infinite when it is too large. False: no number. */
bool jv_real(const struct jv *v, double *out);

#endif

/* keywords.c - the keywords of single types, literals, and refusals. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/compile.h"
#include "model/grammar/format.h"

enum { EXPONENT_MAX = 100, PLACE_BYTES = 160 };

/* ---- refusals ---- */

int compiler_refuse(struct compiler *c, int err, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(c->error, err, "%s", text);
}

/* Where in the document a value is, as a JSON pointer. */
static void place_of(const struct compiler *c, const struct jv *target,
                     char out[PLACE_BYTES])
{
    const struct jv *v = c->root;
    size_t n = 1;
    strcpy(out, "#");
    while (v != target && (v->type == JV_OBJECT || v->type == JV_ARRAY)) {
        const struct jv *found = NULL;
        uint32_t i = 0;
        for (const struct jv *k = jv_first(v); k; k = jv_next(v, k), i++) {
            const struct jv *value = v->type == JV_OBJECT ? k + 1 : k;
            if (target < value || target >= value + value->skip)
                continue;
            if (v->type == JV_OBJECT)
                n += (size_t)snprintf(out + n, PLACE_BYTES - n, "/%.40s",
                                      k->text);
            else
                n += (size_t)snprintf(out + n, PLACE_BYTES - n, "/%u", i);
            found = value;
        }
        if (!found || n >= PLACE_BYTES)
            return;
        v = found;
    }
}

int compiler_wrong(struct compiler *c, const struct jv *at, const char *word,
                   const char *what)
{
    char place[PLACE_BYTES];
    place_of(c, at, place);
    return compiler_refuse(c, -EINVAL, "schema: %s at %s %s", word, place,
                           what);
}

int compiler_apart(struct compiler *c, int32_t a, int32_t b,
                   const struct jv *at)
{
    struct apart *bigger = realloc(c->apart, (c->aparts + 1) * sizeof *bigger);
    if (!bigger)
        return -ENOMEM;
    c->apart = bigger;
    int32_t both = compiler_both(c, a, b);
    if (both == NODE_NONE)
        return 0;
    if (both < 0)
        return both;
    c->apart[c->aparts++] = (struct apart){ both, at };
    return 0;
}

static const char *const supported[] = {
    "type",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "nullable",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    /* say nothing about a value */
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "$anchor",
    "$vocabulary",
    "strict",
    "name",
};

int compiler_keywords(struct compiler *c, const struct jv *schema)
{
    for (const struct jv *k = jv_first(schema); k; k = jv_next(schema, k)) {
        bool known = false;
        char place[PLACE_BYTES];
        for (size_t i = 0; i < sizeof supported / sizeof *supported; i++)
            known |= jv_is(k, supported[i]);
        known |= jv_is(k, "uniqueItems") && jv_is_type(k + 1, JV_FALSE);
        if (known)
            continue;
        place_of(c, schema, place);
        return compiler_refuse(c, -ENOTSUP,
                               "schema: %.60s at %s is not "
                               "supported",
                               k->text, place);
    }
    return 0;
}

/* ---- keywords of single types ---- */

/* A whole number >= 0, or what `absent` says. */
static int count_of(struct compiler *c, const struct jv *schema,
                    const char *word, uint32_t absent, uint32_t *out)
{
    const struct jv *v = jv_get(schema, word);
    int64_t n;
    *out = absent;
    if (!v)
        return 0;
    if (!jv_integer(v, &n) || n < 0)
        return compiler_wrong(c, schema, word,
                              "must be a whole number, 0 or "
                              "more");
    *out = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return 0;
}

static int limits_of(struct compiler *c, struct shape *s,
                     const struct jv *schema, const char *min, const char *max)
{
    int err = count_of(c, schema, min, 0, &s->min);
    return err ? err : count_of(c, schema, max, UINT32_MAX, &s->max);
}

static int bound_of(struct compiler *c, const struct jv *schema,
                    const char *word, struct decimal *out, bool *has)
{
    const struct jv *v = jv_get(schema, word);
    *has = v != NULL;
    if (!v)
        return 0;
    if (v->type != JV_NUMBER || !decimal_read(out, v->raw, v->raw_bytes) ||
        out->n > NUMBER_BOUND_DIGITS || out->exp > EXPONENT_MAX ||
        out->exp < -EXPONENT_MAX)
        return compiler_wrong(c, schema, word,
                              "must be a number of at most "
                              "40 digits");
    return 0;
}

static int number_shape(struct compiler *c, struct shape *s,
                        const struct jv *schema)
{
    static const char *const word[2][2] = {
        { "minimum", "exclusiveMinimum" },
        { "maximum", "exclusiveMaximum" },
    };
    for (int high = 0; high < 2; high++)
        for (int open = 0; open < 2; open++) {
            struct number_range r = { 0 };
            bool has;
            int err = bound_of(c, schema, word[high][open],
                               high ? &r.high : &r.low, &has);
            if (err)
                return err;
            *(high ? &r.has_high : &r.has_low) = has;
            *(high ? &r.high_open : &r.low_open) = open;
            if (has)
                number_range_meet(&s->range, &r);
        }
    return 0;
}

static int meet_pattern(struct compiler *c, struct shape *s,
                        const char *pattern, size_t bytes,
                        const struct jv *schema, const char *word)
{
    struct dfa *d, *both;
    struct error error = { 0 };
    int err = dfa_pattern(&d, pattern, bytes, false, &error);
    if (err)
        return error.code ? compiler_wrong(c, schema, word, error.text) : err;
    if (!s->dfa) {
        s->dfa = d;
        return 0;
    }
    err = dfa_both(&both, s->dfa, d);
    dfa_free(d);
    if (err)
        return err;
    dfa_free(s->dfa);
    s->dfa = both;
    return 0;
}

static int string_shape(struct compiler *c, struct shape *s,
                        const struct jv *schema)
{
    const struct jv *pattern = jv_get(schema, "pattern");
    const struct jv *format = jv_get(schema, "format");
    int err = limits_of(c, s, schema, "minLength", "maxLength");
    if (!err && pattern && pattern->type != JV_STRING)
        return compiler_wrong(c, schema, "pattern", "must be a string");
    if (!err && pattern)
        err = meet_pattern(c, s, pattern->text, pattern->bytes, schema,
                           "pattern");
    if (!err && format) {
        const char *known =
            format->type == JV_STRING ? format_pattern(format->text) : NULL;
        if (!known)
            return compiler_wrong(c, schema, "format",
                                  "is not one that is "
                                  "supported");
        err = meet_pattern(c, s, known, strlen(known), schema, "format");
    }
    return err;
}

/* The node of any value: the schema `true`. */
static int32_t anything(struct compiler *c)
{
    static const struct jv any = { .type = JV_TRUE, .skip = 1 };
    return compiler_node(c, &any, false);
}

/* `word`'s schema: absent or true is anything, false is nothing. */
static int32_t rest_of(struct compiler *c, const struct jv *schema,
                       const char *word)
{
    const struct jv *v = jv_get(schema, word);
    if (!v)
        return anything(c);
    return v->type == JV_FALSE ? NODE_NONE : compiler_node(c, v, false);
}

static int array_shape(struct compiler *c, struct shape *s,
                       const struct jv *schema)
{
    const struct jv *list = jv_get(schema, "prefixItems");
    int err = limits_of(c, s, schema, "minItems", "maxItems");
    if (!err && list && list->type != JV_ARRAY)
        err = compiler_wrong(c, schema, "prefixItems", "must be a list");
    if (!err && jv_is_type(jv_get(schema, "items"), JV_ARRAY))
        err = compiler_wrong(c, schema, "items",
                             "must be a schema (say "
                             "prefixItems)");
    if (err)
        return err;
    if (list && list->bytes) {
        s->prefix = calloc(list->bytes, sizeof *s->prefix);
        if (!s->prefix)
            return -ENOMEM;
        for (const struct jv *v = jv_first(list); v; v = jv_next(list, v)) {
            int32_t n =
                v->type == JV_FALSE ? NODE_NONE : compiler_node(c, v, false);
            if (n < NODE_NONE)
                return n;
            s->prefix[s->prefixes++] = n;
        }
    }
    s->rest = rest_of(c, schema, "items");
    return s->rest < NODE_NONE ? s->rest : 0;
}

static int by_name(const void *a, const void *b)
{
    const struct property *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->name, y->name, n);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static struct property *named(const struct shape *s, const struct jv *name)
{
    for (uint32_t i = 0; i < s->properties; i++)
        if (s->property[i].bytes == name->bytes &&
            !memcmp(s->property[i].name, name->text, name->bytes))
            return &s->property[i];
    return NULL;
}

static int add_named(struct shape *s, const struct jv *name, int32_t node,
                     bool required)
{
    struct property *p = named(s, name);
    if (p) {
        p->required |= required;
        p->node = required ? p->node : node;
        return 0;
    }
    if (s->properties == PROPERTIES_MAX)
        return -E2BIG;
    if (!s->property)
        s->property = calloc(PROPERTIES_MAX, sizeof *s->property);
    char *copy = malloc(name->bytes + 1);
    if (!s->property || !copy) {
        free(copy);
        return -ENOMEM;
    }
    memcpy(copy, name->text, name->bytes);
    copy[name->bytes] = '\0';
    s->property[s->properties++] =
        (struct property){ copy, name->bytes, node, required };
    return 0;
}

static int object_shape(struct compiler *c, struct shape *s,
                        const struct jv *schema)
{
    const struct jv *all = jv_get(schema, "properties");
    const struct jv *required = jv_get(schema, "required");
    int err = limits_of(c, s, schema, "minProperties", "maxProperties");
    if (!err && all && all->type != JV_OBJECT)
        err = compiler_wrong(c, schema, "properties", "must be an object");
    if (!err && required && required->type != JV_ARRAY)
        err = compiler_wrong(c, schema, "required", "must be a list");
    if (!err) {
        s->rest = rest_of(c, schema, "additionalProperties");
        err = s->rest < NODE_NONE ? s->rest : 0;
    }
    for (const struct jv *k = jv_first(all); k && !err; k = jv_next(all, k)) {
        int32_t n =
            k[1].type == JV_FALSE ? NODE_NONE : compiler_node(c, k + 1, false);
        err = n < NODE_NONE ? n : add_named(s, k, n, false);
    }
    for (const struct jv *v = jv_first(required); v && !err;
         v = jv_next(required, v))
        err = v->type == JV_STRING ? add_named(s, v, s->rest, true)
                                   : compiler_wrong(c, schema, "required",
                                                    "must be a list of names");
    if (s->properties)
        qsort(s->property, s->properties, sizeof *s->property, by_name);
    return err;
}

/* ---- types ---- */

static const char *const type_name[] = { "null",  "boolean", "number", "string",
                                         "array", "object",  "integer" };
enum { TYPES = sizeof type_name / sizeof *type_name, INTEGER = 6, NUMBER = 2 };

static int types_of(struct compiler *c, const struct jv *schema,
                    bool type[TYPES])
{
    const struct jv *v = jv_get(schema, "type");
    const struct jv *one = !v || v->type == JV_STRING ? v : jv_first(v);
    memset(type, !v, TYPES * sizeof *type);
    if (v && !one)
        return compiler_wrong(c, schema, "type",
                              "must be a type or a list of "
                              "types");
    while (one) {
        bool known = false;
        for (int i = 0; i < TYPES; i++)
            if (jv_is(one, type_name[i]))
                known = type[i] = true;
        if (!known)
            return compiler_wrong(c, schema, "type", "is not a type");
        one = one == v ? NULL : jv_next(v, one);
    }
    return 0;
}

static int typed_shape(struct compiler *c, struct node *list,
                       const struct jv *schema, enum shape_type type,
                       bool integer)
{
    struct shape s = { .type = type,
                       .rest = NODE_NONE,
                       .max = UINT32_MAX,
                       .range.integer = integer };
    int err = 0;
    if (type == SHAPE_NUMBER)
        err = number_shape(c, &s, schema);
    else if (type == SHAPE_STRING)
        err = string_shape(c, &s, schema);
    else if (type == SHAPE_ARRAY)
        err = array_shape(c, &s, schema);
    else if (type == SHAPE_OBJECT)
        err = object_shape(c, &s, schema);
    if (err) {
        shape_free(&s);
        return err;
    }
    return node_add(list, &s);
}

int typed_shapes(struct compiler *c, struct node *list, const struct jv *schema)
{
    bool type[TYPES];
    int err = types_of(c, schema, type);
    static const enum shape_type shape[] = { SHAPE_NULL,   SHAPE_TRUE,
                                             SHAPE_NUMBER, SHAPE_STRING,
                                             SHAPE_ARRAY,  SHAPE_OBJECT };
    for (int i = 0; i < INTEGER && !err; i++) {
        bool integer = i == NUMBER && !type[NUMBER];
        if (!type[i] && !(integer && type[INTEGER]))
            continue;
        err = typed_shape(c, list, schema, shape[i], integer);
        if (!err && shape[i] == SHAPE_TRUE)
            err = typed_shape(c, list, schema, SHAPE_FALSE, false);
    }
    return err;
}

/* ---- literals ---- */

int literal_strings(struct node *list, const struct jv *values)
{
    const char **text = calloc(values->bytes + 1, sizeof *text);
    size_t *bytes = calloc(values->bytes + 1, sizeof *bytes), n = 0;
    struct shape s = { .type = SHAPE_STRING,
                       .rest = NODE_NONE,
                       .max = UINT32_MAX };
    int err = text && bytes ? 0 : -ENOMEM;
    for (const struct jv *v = jv_first(values); v && !err;
         v = jv_next(values, v))
        if (v->type == JV_STRING) {
            text[n] = v->text;
            bytes[n++] = v->bytes;
        }
    if (!err && n)
        err = dfa_strings(&s.dfa, text, bytes, n);
    free(text);
    free(bytes);
    return err || !n ? err : node_add(list, &s);
}

static int literal_number(struct compiler *c, struct shape *s,
                          const struct jv *v)
{
    struct decimal *low = &s->range.low;
    if (!decimal_read(low, v->raw, v->raw_bytes) ||
        low->n > NUMBER_BOUND_DIGITS || low->exp > EXPONENT_MAX ||
        low->exp < -EXPONENT_MAX)
        return compiler_wrong(c, v, "a number", "has more than 40 digits");
    s->range.high = *low;
    s->range.has_low = s->range.has_high = true;
    return 0;
}

static int literal_array(struct compiler *c, struct shape *s,
                         const struct jv *v)
{
    s->min = s->max = v->bytes;
    s->prefix = calloc(v->bytes + 1, sizeof *s->prefix);
    if (!s->prefix)
        return -ENOMEM;
    for (const struct jv *i = jv_first(v); i; i = jv_next(v, i)) {
        int32_t n = compiler_node(c, i, true);
        if (n < 0)
            return n;
        s->prefix[s->prefixes++] = n;
    }
    return 0;
}

int literal_shape(struct compiler *c, struct node *list, const struct jv *v)
{
    struct shape s = { .rest = NODE_NONE, .max = UINT32_MAX };
    int err = 0;
    switch (v->type) {
    case JV_NULL:
        s.type = SHAPE_NULL;
        break;
    case JV_TRUE:
        s.type = SHAPE_TRUE;
        break;
    case JV_FALSE:
        s.type = SHAPE_FALSE;
        break;
    case JV_NUMBER:
        s.type = SHAPE_NUMBER;
        err = literal_number(c, &s, v);
        break;
    case JV_STRING: {
        s.type = SHAPE_STRING;
        size_t bytes = v->bytes;
        err = dfa_strings(&s.dfa, &v->text, &bytes, 1);
        break;
    }
    case JV_ARRAY:
        s.type = SHAPE_ARRAY;
        err = literal_array(c, &s, v);
        break;
    case JV_OBJECT:
        s.type = SHAPE_OBJECT;
        for (const struct jv *k = jv_first(v); k && !err; k = jv_next(v, k)) {
            int32_t n = compiler_node(c, k + 1, true);
            err = n < 0 ? n : add_named(&s, k, n, true);
        }
        if (s.properties)
            qsort(s.property, s.properties, sizeof *s.property, by_name);
        break;
    }
    if (err) {
        shape_free(&s);
        return err;
    }
    return node_add(list, &s);
}

/* compile.c - a schema to nodes: keywords, references, alternatives, and the
 * intersections that allOf and neighbouring keywords ask for. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/compile.h"

/* ---- nodes ---- */

static int32_t new_node(struct compiler *c)
{
    struct grammar *g = c->g;
    if (g->nodes == NODES_MAX)
        return compiler_refuse(c, -E2BIG,
                               "the schema is too large (more than "
                               "%d different values)",
                               NODES_MAX);
    if (g->nodes == c->room) {
        uint32_t room = c->room ? 2 * c->room : 64;
        struct node *node = realloc(g->node, room * sizeof *node);
        if (node)
            g->node = node;
        struct todo *todo = realloc(c->todo, room * sizeof *todo);
        if (todo)
            c->todo = todo;
        if (!node || !todo)
            return -ENOMEM;
        c->room = room;
    }
    g->node[g->nodes] = (struct node){ 0 };
    c->todo[g->nodes] = (struct todo){ .state = TODO_OPEN };
    return (int32_t)g->nodes++;
}

int32_t compiler_node(struct compiler *c, const struct jv *schema, bool literal)
{
    for (uint32_t i = 0; i < c->g->nodes; i++)
        if (c->todo[i].schema == schema && c->todo[i].literal == literal)
            return (int32_t)i;
    int32_t n = new_node(c);
    if (n >= 0) {
        c->todo[n].schema = schema;
        c->todo[n].literal = literal;
    }
    return n;
}

/* The schemas whose intersection a node is. */
static void bases_of(const struct compiler *c, int32_t *node,
                     const int32_t **list, uint32_t *n)
{
    const struct todo *t = &c->todo[*node];
    *list = t->bases ? t->base : node;
    *n = t->bases ? t->bases : 1;
}

static int32_t known_set(const struct compiler *c, const int32_t *set,
                         uint32_t n)
{
    for (uint32_t i = 0; i < c->g->nodes; i++)
        if (c->todo[i].bases == n &&
            !memcmp(c->todo[i].base, set, n * sizeof *set))
            return (int32_t)i;
    return -1;
}

int32_t compiler_both(struct compiler *c, int32_t a, int32_t b)
{
    const int32_t *x, *y;
    uint32_t m, n, i = 0, j = 0, count = 0;
    if (a == NODE_NONE || b == NODE_NONE)
        return NODE_NONE;
    bases_of(c, &a, &x, &m);
    bases_of(c, &b, &y, &n);
    int32_t *set = malloc((m + n) * sizeof *set);
    if (!set)
        return -ENOMEM;
    while (i < m || j < n) {
        int32_t next = i == m ? y[j] : j == n || x[i] < y[j] ? x[i] : y[j];
        i += i < m && x[i] == next;
        j += j < n && y[j] == next;
        set[count++] = next;
    }
    int32_t known = count == 1 ? set[0] : known_set(c, set, count);
    if (known >= 0) {
        free(set);
        return known;
    }
    int32_t node = new_node(c);
    if (node < 0) {
        free(set);
        return node;
    }
    c->todo[node].base = set;
    c->todo[node].bases = count;
    return node;
}

/* ---- lists of shapes ---- */

static int add_copies(struct node *to, const struct node *from)
{
    int err = 0;
    for (uint32_t i = 0; i < from->shapes && !err; i++) {
        struct shape s;
        err = shape_copy(&s, &from->shape[i]);
        if (!err)
            err = node_add(to, &s);
    }
    return err;
}

/* list = what list and `other` both allow. */
static int meet(struct compiler *c, struct node *list, const struct node *other)
{
    struct node out = { 0 };
    int err = 0;
    for (uint32_t i = 0; i < list->shapes && !err; i++)
        for (uint32_t j = 0; j < other->shapes && !err; j++) {
            struct shape s;
            int left = shape_both(&s, &list->shape[i], &other->shape[j], c);
            err = left < 0 ? left : left ? node_add(&out, &s) : 0;
        }
    node_free(list);
    *list = out;
    if (err == -E2BIG)
        compiler_refuse(c, err,
                        "the schema has too many alternatives in one "
                        "place");
    return err;
}

static int resolve(struct compiler *c, int32_t node);

/* meet() with a node. */
static int meet_node(struct compiler *c, struct node *list, int32_t node)
{
    if (node < 0)
        return node;
    int err = resolve(c, node);
    struct node other = c->g->node[node]; /* its array stays where it is */
    return err ? err : meet(c, list, &other);
}

/* ---- keywords that combine ---- */

static int any_of(struct compiler *c, struct node *list,
                  const struct jv *branches, bool one, const struct jv *at)
{
    struct node sum = { 0 };
    int err = 0;
    const char *word = one ? "oneOf" : "anyOf";
    if (!jv_is_type(branches, JV_ARRAY) || !branches->bytes)
        return compiler_wrong(c, at, word, "must be a list of schemas");
    for (const struct jv *b = jv_first(branches); b && !err;
         b = jv_next(branches, b)) {
        int32_t n = compiler_node(c, b, false);
        err = n < 0 ? n : resolve(c, n);
        if (!err) {
            struct node from = c->g->node[n];
            err = add_copies(&sum, &from);
        }
        for (const struct jv *o = jv_first(branches); one && o != b && !err;
             o = jv_next(branches, o))
            err = compiler_apart(c, compiler_node(c, o, false), n, at);
    }
    if (!err)
        err = meet(c, list, &sum);
    node_free(&sum);
    return err;
}

static int all_of(struct compiler *c, struct node *list,
                  const struct jv *branches, const struct jv *at)
{
    int err = 0;
    if (!jv_is_type(branches, JV_ARRAY) || !branches->bytes)
        return compiler_wrong(c, at, "allOf", "must be a list of schemas");
    for (const struct jv *b = jv_first(branches); b && !err;
         b = jv_next(branches, b))
        err = meet_node(c, list, compiler_node(c, b, false));
    return err;
}

/* Where "#/a/b" points. */
static const struct jv *pointed_at(const struct compiler *c,
                                   const struct jv *ref)
{
    const struct jv *v = c->root;
    const char *p = ref->text;
    if (*p++ != '#')
        return NULL;
    while (v && *p == '/') {
        char key[256];
        size_t n = 0;
        for (p++; *p && *p != '/' && n + 1 < sizeof key; p++) {
            char ch = *p;
            if (ch == '~' && (p[1] == '0' || p[1] == '1'))
                ch = *++p == '0' ? '~' : '/';
            key[n++] = ch;
        }
        key[n] = '\0';
        if (v->type == JV_ARRAY) {
            char *end;
            unsigned long i = strtoul(key, &end, 10);
            const struct jv *item = *end || !n ? NULL : jv_first(v);
            while (item && i--)
                item = jv_next(v, item);
            v = item;
        } else {
            v = v->type == JV_OBJECT ? jv_get(v, key) : NULL;
        }
    }
    return *p ? NULL : v;
}

static int follow_ref(struct compiler *c, struct node *list,
                      const struct jv *ref, const struct jv *at)
{
    const struct jv *to =
        jv_is_type(ref, JV_STRING) ? pointed_at(c, ref) : NULL;
    if (!to)
        return compiler_wrong(c, at, "$ref",
                              "leads nowhere (only #, #/... are supported)");
    return meet_node(c, list, compiler_node(c, to, false));
}

static int literals(struct compiler *c, struct node *list,
                    const struct jv *value, bool many, const struct jv *at)
{
    struct node sum = { 0 };
    int err = 0;
    if (many && !jv_is_type(value, JV_ARRAY))
        return compiler_wrong(c, at, "enum", "must be a list");
    if (many)
        err = literal_strings(&sum, value);
    else
        err = literal_shape(c, &sum, value);
    for (const struct jv *v = many ? jv_first(value) : NULL; v && !err;
         v = jv_next(value, v))
        if (v->type != JV_STRING)
            err = literal_shape(c, &sum, v);
    if (!err)
        err = meet(c, list, &sum);
    node_free(&sum);
    return err;
}

static int combine(struct compiler *c, struct node *list,
                   const struct jv *schema)
{
    int err = 0;
    for (const struct jv *k = jv_first(schema); k && !err;
         k = jv_next(schema, k)) {
        const struct jv *value = k + 1;
        if (jv_is(k, "anyOf") || jv_is(k, "oneOf"))
            err = any_of(c, list, value, jv_is(k, "oneOf"), schema);
        else if (jv_is(k, "allOf"))
            err = all_of(c, list, value, schema);
        else if (jv_is(k, "$ref"))
            err = follow_ref(c, list, value, schema);
        else if (jv_is(k, "enum") || jv_is(k, "const"))
            err = literals(c, list, value, jv_is(k, "enum"), schema);
    }
    const struct jv *nullable = jv_get(schema, "nullable");
    if (!err && jv_is_type(nullable, JV_TRUE)) {
        struct shape null = { .type = SHAPE_NULL,
                              .rest = NODE_NONE,
                              .max = UINT32_MAX };
        err = node_add(list, &null);
    }
    return err;
}

static int resolve_schema(struct compiler *c, struct node *list,
                          const struct jv *schema)
{
    if (schema->type == JV_FALSE)
        return 0;
    if (schema->type != JV_TRUE && schema->type != JV_OBJECT)
        return compiler_wrong(c, schema, "a schema",
                              "must be an object, true or false");
    int err = schema->type == JV_OBJECT ? compiler_keywords(c, schema) : 0;
    if (!err)
        err = typed_shapes(c, list, schema);
    return err || schema->type != JV_OBJECT ? err : combine(c, list, schema);
}

static int resolve(struct compiler *c, int32_t node)
{
    struct node list = { 0 };
    struct todo todo = c->todo[node];
    int err = 0;
    if (todo.state == TODO_DONE)
        return 0;
    if (todo.state == TODO_BUSY)
        return compiler_refuse(c, -EINVAL,
                               "a $ref leads to itself without an "
                               "object or array between");
    c->todo[node].state = TODO_BUSY;
    if (++c->depth > DEPTH_MAX)
        err = compiler_refuse(c, -E2BIG, "the schema is nested too deeply");
    if (!err && todo.bases) {
        err = resolve(c, todo.base[0]);
        struct node first = c->g->node[todo.base[0]];
        if (!err)
            err = add_copies(&list, &first);
        for (uint32_t i = 1; i < todo.bases && !err; i++)
            err = meet_node(c, &list, todo.base[i]);
    } else if (!err && todo.literal) {
        err = literal_shape(c, &list, todo.schema);
    } else if (!err) {
        err = resolve_schema(c, &list, todo.schema);
    }
    c->depth--;
    c->g->node[node] = list;
    c->todo[node].state = TODO_DONE;
    if (err == -E2BIG)
        compiler_refuse(c, err,
                        "the schema has too many alternatives or "
                        "properties in one place");
    return err;
}

/* ---- the whole ---- */

static int finish(struct compiler *c)
{
    struct grammar *g = c->g;
    int err = 0;
    for (uint32_t n = 0; n < g->nodes && !err; n++)
        err = resolve(c, (int32_t)n);
    for (uint32_t n = 0; n < g->nodes && !err; n++)
        for (uint32_t i = 0; i < g->node[n].shapes && !err; i++)
            err = shape_measure(&g->node[n].shape[i], c->error);
    if (err)
        return err;
    err = grammar_prune(g);
    for (uint32_t i = 0; i < c->aparts && !err; i++)
        if (g->node[c->apart[i].node].height != UINT32_MAX)
            return compiler_wrong(c, c->apart[i].at, "oneOf",
                                  "has branches that a value can match both: "
                                  "say anyOf, or make them exclude each "
                                  "other");
    if (err == -ENOENT)
        compiler_refuse(c, err,
                        "the schema allows no value (of at most %d "
                        "inside of each other)",
                        GRAMMAR_DEPTH);
    return err;
}

int grammar_schema(struct grammar **out, const struct jv *schema,
                   struct error *error)
{
    struct compiler c = { .root = schema, .error = error };
    *out = NULL;
    c.g = calloc(1, sizeof *c.g);
    int32_t root = c.g ? compiler_node(&c, schema, false) : -ENOMEM;
    int err = root < 0 ? root : 0;
    if (!err) {
        c.g->root = root;
        err = finish(&c);
    }
    for (uint32_t i = 0; c.g && i < c.g->nodes; i++)
        free(c.todo[i].base);
    free(c.todo);
    free(c.apart);
    if (err) {
        grammar_free(c.g);
        return error_set(error, err, "%s",
                         err == -ENOMEM ? "no memory for the schema"
                                        : "the schema is not supported");
    }
    *out = c.g;
    return 0;
}

int grammar_json(struct grammar **out, struct error *error)
{
    static const char text[] = "{\"type\":\"object\"}";
    struct jv_doc doc;
    *out = NULL;
    int err = jv_parse(&doc, text, sizeof text - 1, JV_STRICT, NULL);
    if (err)
        return error_set(error, err, "no memory for a schema");
    err = grammar_schema(out, doc.root, error);
    jv_free(&doc);
    return err;
}

int grammar_pattern(struct grammar **out, const char *pattern, size_t bytes,
                    struct error *error)
{
    struct grammar *g = calloc(1, sizeof *g);
    *out = NULL;
    int err = g ? dfa_pattern(&g->text, pattern, bytes, true, error)
                : error_set(error, -ENOMEM, "no memory for the pattern");
    if (!err && !g->text->states)
        err = error_set(error, -ENOENT, "the pattern matches no text");
    if (err) {
        grammar_free(g);
        return err;
    }
    *out = g;
    return 0;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    for (uint32_t n = 0; n < g->nodes; n++)
        node_free(&g->node[n]);
    free(g->node);
    dfa_free(g->text);
    for (uint32_t i = 0; i < g->tools; i++) {
        free(g->tool[i].name);
        grammar_free(g->tool[i].arguments);
    }
    free(g->tool);
    free(g);
}

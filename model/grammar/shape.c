/* shape.c - shapes: copies, and what two of them have in common. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/grammar_internal.h"

void shape_free(struct shape *s)
{
    for (uint32_t i = 0; i < s->properties; i++)
        free(s->property[i].name);
    free(s->property);
    free(s->prefix);
    free(s->longest);
    free(s->lengths);
    dfa_free(s->dfa);
    *s = (struct shape){ 0 };
}

void node_free(struct node *n)
{
    for (uint32_t i = 0; i < n->shapes; i++)
        shape_free(&n->shape[i]);
    free(n->shape);
    *n = (struct node){ 0 };
}

int node_add(struct node *n, struct shape *s)
{
    if (n->shapes == SHAPES_MAX) {
        shape_free(s);
        return -E2BIG;
    }
    struct shape *bigger = realloc(n->shape, (n->shapes + 1) * sizeof *bigger);
    if (!bigger) {
        shape_free(s);
        return -ENOMEM;
    }
    n->shape = bigger;
    n->shape[n->shapes++] = *s;
    return 0;
}

static struct dfa *copy_dfa(const struct dfa *d)
{
    struct dfa *out = NULL;
    return dfa_both(&out, d, d) ? NULL : out;
}

static int add_property(struct shape *s, const struct property *p, int32_t node,
                        bool required)
{
    struct property *bigger =
        realloc(s->property, (s->properties + 1) * sizeof *bigger);
    if (!bigger)
        return -ENOMEM;
    s->property = bigger;
    char *name = malloc(p->bytes + 1);
    if (!name)
        return -ENOMEM;
    memcpy(name, p->name, p->bytes);
    name[p->bytes] = '\0';
    s->property[s->properties++] =
        (struct property){ name, p->bytes, node, required };
    return 0;
}

int shape_copy(struct shape *out, const struct shape *s)
{
    int err = 0;
    *out = *s;
    out->longest = NULL;
    out->lengths = NULL;
    out->property = NULL;
    out->properties = 0;
    out->prefix = NULL;
    out->dfa = s->dfa ? copy_dfa(s->dfa) : NULL;
    if (s->dfa && !out->dfa)
        err = -ENOMEM;
    if (s->prefixes) {
        out->prefix = malloc(s->prefixes * sizeof *out->prefix);
        if (out->prefix)
            memcpy(out->prefix, s->prefix, s->prefixes * sizeof *out->prefix);
        else
            err = -ENOMEM;
    }
    for (uint32_t i = 0; i < s->properties && !err; i++)
        err = add_property(out, &s->property[i], s->property[i].node,
                           s->property[i].required);
    if (err)
        shape_free(out);
    return err;
}

/* ---- both ---- */

static int both_strings(struct shape *out, const struct shape *a,
                        const struct shape *b)
{
    int err = 0;
    if (a->dfa && b->dfa)
        err = dfa_both(&out->dfa, a->dfa, b->dfa);
    else if (a->dfa || b->dfa)
        err = (out->dfa = copy_dfa(a->dfa ? a->dfa : b->dfa)) ? 0 : -ENOMEM;
    if (err)
        return err;
    return !out->dfa || out->dfa->states;
}

static int32_t item_of(const struct shape *s, uint32_t i)
{
    return i < s->prefixes ? s->prefix[i] : s->rest;
}

static int both_arrays(struct shape *out, const struct shape *a,
                       const struct shape *b, struct compiler *c)
{
    uint32_t n = a->prefixes > b->prefixes ? a->prefixes : b->prefixes;
    out->prefix = n ? malloc(n * sizeof *out->prefix) : NULL;
    if (n && !out->prefix)
        return -ENOMEM;
    for (; out->prefixes < n; out->prefixes++) {
        int32_t node = compiler_both(c, item_of(a, out->prefixes),
                                     item_of(b, out->prefixes));
        if (node < NODE_NONE)
            return node;
        out->prefix[out->prefixes] = node;
    }
    out->rest = compiler_both(c, a->rest, b->rest);
    return out->rest < NODE_NONE ? out->rest : 1;
}

static int by_name(const struct property *a, const struct property *b)
{
    size_t n = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->name, b->name, n);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The properties of both, in order; one that only one of them names has what
 * the other allows for additional ones. */
static int both_objects(struct shape *out, const struct shape *a,
                        const struct shape *b, struct compiler *c)
{
    uint32_t i = 0, j = 0;
    while (i < a->properties || j < b->properties) {
        const struct property *x = i < a->properties ? &a->property[i] : NULL;
        const struct property *y = j < b->properties ? &b->property[j] : NULL;
        int order = !x ? 1 : !y ? -1 : by_name(x, y);
        bool has_x = order <= 0, has_y = order >= 0;
        int32_t node = compiler_both(c, has_x ? x->node : a->rest,
                                     has_y ? y->node : b->rest);
        if (node < NODE_NONE)
            return node;
        if (out->properties == PROPERTIES_MAX)
            return -E2BIG;
        int err =
            add_property(out, has_x ? x : y, node,
                         (has_x && x->required) || (has_y && y->required));
        if (err)
            return err;
        i += has_x;
        j += has_y;
    }
    out->rest = compiler_both(c, a->rest, b->rest);
    return out->rest < NODE_NONE ? out->rest : 1;
}

int shape_both(struct shape *out, const struct shape *a, const struct shape *b,
               struct compiler *c)
{
    int left = 1;
    *out = (struct shape){ .type = a->type,
                           .range = a->range,
                           .rest = NODE_NONE,
                           .min = a->min > b->min ? a->min : b->min,
                           .max = a->max < b->max ? a->max : b->max };
    if (a->type != b->type || out->min > out->max)
        return 0;
    if (a->type == SHAPE_NUMBER) {
        number_range_meet(&out->range, &b->range);
        left = !number_range_empty(&out->range);
    } else if (a->type == SHAPE_STRING) {
        left = both_strings(out, a, b);
    } else if (a->type == SHAPE_ARRAY) {
        left = both_arrays(out, a, b, c);
    } else if (a->type == SHAPE_OBJECT) {
        left = both_objects(out, a, b, c);
    }
    if (left <= 0)
        shape_free(out);
    return left;
}

/* grammar_internal.h - a schema in normal form.
 *
 * A *node* says what one value may be: a list of *shapes*, of which the value
 * has one; each shape is of one type. Nodes refer to each other by number, so
 * recursion is a number too. Intersections are worked out shape by shape, so
 * nothing but alternatives is left for the matcher.
 */
#ifndef MODEL_GRAMMAR_GRAMMAR_INTERNAL_H
#define MODEL_GRAMMAR_GRAMMAR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "model/grammar/dfa.h"
#include "model/grammar/grammar.h"
#include "model/grammar/number.h"

enum {
    NODES_MAX = 20000,
    SHAPES_MAX = 1000,    /* of a node */
    PROPERTIES_MAX = 256, /* of an object */
    LENGTH_MAX = 100000,  /* of strings with both a pattern and a maxLength */
    NODE_NONE = -1,       /* no value may be there */
};

enum shape_type {
    SHAPE_NULL,
    SHAPE_TRUE,
    SHAPE_FALSE,
    SHAPE_NUMBER,
    SHAPE_STRING,
    SHAPE_ARRAY,
    SHAPE_OBJECT,
    SHAPE_TYPES
};

struct property {
    char *name; /* UTF-8; may hold NUL */
    uint32_t bytes;
    int32_t node; /* NODE_NONE: the key is forbidden */
    bool required;
};

struct shape {
    enum shape_type type;
    uint32_t height; /* values inside of each other that the least has */
    struct number_range range;
    struct dfa *dfa;   /* of a string, or NULL: any characters */
    uint32_t *longest; /* [dfa states] characters to the last end, UINT32_MAX
                        * unbounded; NULL when not needed */
    uint64_t *lengths; /* [dfa states][max / 64 + 1] bit k: an end is k
                        * characters away; NULL when not needed */
    uint32_t min, max; /* characters, items or properties; max UINT32_MAX:
                        * unbounded */
    int32_t *prefix;   /* nodes of the first items */
    uint32_t prefixes;
    int32_t rest; /* of further items, or of additional properties */
    struct property *property; /* sorted by name, byte by byte */
    uint32_t properties;
};

struct node {
    struct shape *shape;
    uint32_t shapes;
    uint32_t height; /* of its least shape; UINT32_MAX: allows nothing */
};

/* A tool that may be called. */
struct tool {
    char *name;
    struct grammar *arguments;
};

struct grammar {
    struct node *node;
    uint32_t nodes;
    int32_t root;
    struct dfa *text; /* of a pattern; then there are no nodes */
    struct tool *tool; /* [tools] of calls; the same */
    uint32_t tools;
};

/* ---- shape.c ---- */

struct compiler;

/* A shape with everything that is its own. */
int shape_copy(struct shape *out, const struct shape *from);
void shape_free(struct shape *s);
/* What both allow. 1: something may be left, 0: nothing is, or an error. */
int shape_both(struct shape *out, const struct shape *a, const struct shape *b,
               struct compiler *c);
/* Add a shape to a node; takes it over, also on failure. */
int node_add(struct node *n, struct shape *s);
void node_free(struct node *n);

/* ---- compile.c ---- */

/* The node that allows what both allow; worked out later. May be an error. */
int32_t compiler_both(struct compiler *c, int32_t a, int32_t b);

/* ---- live.c ---- */

/* Heights of all nodes; what allows nothing is taken out of shapes. */
int grammar_prune(struct grammar *g);
/* The tables that say whether a string can still end in time. */
int shape_measure(struct shape *s, struct error *error);

/* May a string go on with `state` reached after `used` characters, and end? */
static inline bool shape_can_end(const struct shape *s, int32_t state,
                                 uint32_t used)
{
    if (used > s->max)
        return false;
    uint32_t least = used < s->min ? s->min - used : 0;
    if (!s->dfa)
        return true;
    if (s->max == UINT32_MAX)
        return !least || s->longest[state] >= least;
    uint32_t most = s->max - used;
    if (!least)
        return s->dfa->shortest[state] <= most;
    const uint64_t *bits = s->lengths + (size_t)state * (s->max / 64 + 1);
    for (uint32_t k = least; k <= most; k++)
        if (bits[k / 64] >> k % 64 & 1)
            return true;
    return false;
}

#endif

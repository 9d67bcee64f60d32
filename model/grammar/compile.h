/* compile.h - a schema on its way to nodes: what compile.c and keywords.c
 * share. Private to this folder. */
#ifndef MODEL_GRAMMAR_COMPILE_H
#define MODEL_GRAMMAR_COMPILE_H

#include "model/grammar/grammar_internal.h"

enum { DEPTH_MAX = 500 };

enum todo_state { TODO_OPEN, TODO_BUSY, TODO_DONE };

/* What a node is to become: a schema, a literal value, or the intersection of
 * other nodes. */
struct todo {
    enum todo_state state;
    const struct jv *schema;
    bool literal;
    int32_t *base; /* [bases] ascending; 0: it is a schema or a literal */
    uint32_t bases;
};

/* Branches of a oneOf: their intersection has to allow nothing. */
struct apart {
    int32_t node;
    const struct jv *at;
};

struct compiler {
    struct grammar *g;
    const struct jv *root;
    struct error *error;
    struct todo *todo; /* [g->nodes] */
    uint32_t room, depth;
    struct apart *apart;
    uint32_t aparts;
};

/* The number of the node of a schema (or of a literal), known or new. */
int32_t compiler_node(struct compiler *c, const struct jv *schema,
                      bool literal);
int compiler_refuse(struct compiler *c, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* `word` of the schema `at` is not what it must be. -EINVAL. */
int compiler_wrong(struct compiler *c, const struct jv *at, const char *word,
                   const char *what);
/* Note that a and b may have nothing in common. */
int compiler_apart(struct compiler *c, int32_t a, int32_t b,
                   const struct jv *at);

/* ---- keywords.c ---- */

/* Refuse keywords that are not supported, by name. */
int compiler_keywords(struct compiler *c, const struct jv *schema);
/* The shapes that `type` and the keywords of single types allow; `schema` may
 * be true. */
int typed_shapes(struct compiler *c, struct node *list,
                 const struct jv *schema);
/* Exactly this value. */
int literal_shape(struct compiler *c, struct node *list, const struct jv *v);
/* The strings of a list, as one shape; none: nothing is added. */
int literal_strings(struct node *list, const struct jv *values);

#endif

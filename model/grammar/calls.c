/* calls.c - tool calls in the form of a chat reply, whose arguments are
 * together an object of the tool's schema. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/match_internal.h"

enum { NAME_BYTES = 256, HEAD_BYTES = NAME_BYTES + 64 };

static const char *const type_name[SHAPE_TYPES] = {
    [SHAPE_NULL] = "null",     [SHAPE_TRUE] = "boolean",
    [SHAPE_NUMBER] = "number", [SHAPE_STRING] = "string",
    [SHAPE_ARRAY] = "array",   [SHAPE_OBJECT] = "object",
};

/* ---- heads ---- */

static size_t head_text(const struct grammar *g, const struct thread *t,
                        char out[HEAD_BYTES])
{
    int n = 0;
    switch ((enum head)t->head) {
    case HEAD_NONE:
        break;
    case HEAD_CALL:
        n = snprintf(out, HEAD_BYTES, "call tool=\"%s\" index=\"%" PRIu32 "\"",
                     g->tool[t->state].name, t->calls);
        break;
    case HEAD_ARGUMENT:
        n = snprintf(out, HEAD_BYTES, "argument key=\"");
        break;
    case HEAD_TYPE:
        n = snprintf(out, HEAD_BYTES, " type=\"%s\"", type_name[t->code]);
        break;
    case HEAD_END_ARGUMENT:
        n = snprintf(out, HEAD_BYTES, "argument");
        break;
    case HEAD_END_CALL:
        n = snprintf(out, HEAD_BYTES, "call");
        break;
    case HEAD_END_TOOLS:
        n = snprintf(out, HEAD_BYTES, "tools");
        break;
    }
    return (size_t)n;
}

static int begin_head(struct stepper *s, const struct thread *from,
                      enum head head)
{
    struct thread t = *from;
    t.place = IN_HEAD;
    t.head = (uint8_t)head;
    t.used = 0;
    return threads_add(s->to, &t);
}

/* The arguments of a call begin: any object of the tool's. */
static int begin_arguments(struct stepper *s, const struct thread *t)
{
    const struct grammar *g = s->g->tool[t->state].arguments;
    const struct node *root = &g->node[g->root];
    int err = 0;
    for (uint32_t i = 0; i < root->shapes && !err; i++) {
        const struct shape *shape = &root->shape[i];
        struct frame f = { .g = g, .shape = shape, .depth = 1,
                           .call = t->calls };
        struct thread next = { .place = AT_ARGUMENTS };
        if (shape->type != SHAPE_OBJECT || shape->height > GRAMMAR_DEPTH)
            continue;
        next.top = keep_frame(s, &f);
        err = next.top ? threads_add(s->to, &next) : -ENOMEM;
    }
    return err;
}

/* A value of type `code` begins: a string as it is, anything else as JSON. */
static int begin_argument(struct stepper *s, const struct thread *t)
{
    const struct node *n = &t->top->g->node[t->node];
    struct thread next = { .top = t->top, .node = t->node, .place = AT_VALUE,
                           .code = t->code + 1 };
    int err = 0;
    if (t->code != SHAPE_STRING)
        return threads_add(s->to, &next);
    for (uint32_t i = 0; i < n->shapes && !err; i++) {
        next = (struct thread){ .top = t->top, .shape = &n->shape[i],
                                .place = IN_RAW };
        if (n->shape[i].type == SHAPE_STRING)
            err = threads_add(s->to, &next);
    }
    return err;
}

static int end_head(struct stepper *s, const struct thread *t)
{
    struct thread next = { .top = t->top };
    switch ((enum head)t->head) {
    case HEAD_CALL:
        return begin_arguments(s, t);
    case HEAD_TYPE:
        return begin_argument(s, t);
    case HEAD_END_ARGUMENT:
        next.place = AT_ARGUMENTS;
        return threads_add(s->to, &next);
    case HEAD_END_CALL:
        next = (struct thread){ .place = AT_CALLS, .calls = t->top->call };
        return threads_add(s->to, &next);
    case HEAD_END_TOOLS:
        next.place = AT_END;
        return threads_add(s->to, &next);
    case HEAD_NONE:
    case HEAD_ARGUMENT:
        break;
    }
    return 0;
}

static int step_head(struct stepper *s, const struct thread *t)
{
    char text[HEAD_BYTES];
    size_t bytes = head_text(s->g, t, text);
    struct thread next = *t;
    if (t->used == bytes)
        return s->byte == GRAMMAR_SEP ? end_head(s, t) : 0;
    if (s->byte != (uint8_t)text[t->used])
        return 0;
    next.used++;
    if (t->head == HEAD_ARGUMENT && next.used == bytes) {
        next = (struct thread){ .top = t->top };
        if (!name_begin(&next, IN_KEY))
            return 0;
    }
    return threads_add(s->to, &next);
}

/* ---- keys and values ---- */

/* The key ends: the types that its value may be of. */
static int step_key(struct stepper *s, const struct thread *t)
{
    struct thread next = *t;
    if (s->byte != '"' || t->part != PART_NONE)
        return text_step(&next, s->byte) ? threads_add(s->to, &next) : 0;
    next = (struct thread){ .node = NODE_NONE };
    int kept = keep_name(s, t, &next), err = 0;
    if (kept <= 0)
        return kept;
    const struct frame *f = next.top;
    const struct node *n = &f->g->node[next.node];
    for (uint32_t type = 0; type < SHAPE_TYPES && !err; type++) {
        bool can = false;
        for (uint32_t i = 0; i < n->shapes && type_name[type]; i++)
            can |= is_of_type(&n->shape[i], type) &&
                   n->shape[i].height <= GRAMMAR_DEPTH - f->depth;
        next.code = type;
        err = can ? begin_head(s, &next, HEAD_TYPE) : 0;
    }
    return err;
}

static int step_raw(struct stepper *s, const struct thread *t)
{
    struct thread next = *t;
    if (s->byte != GRAMMAR_CLOSE)
        return text_step(&next, s->byte) ? threads_add(s->to, &next) : 0;
    if (!string_can_end(t))
        return 0;
    next = (struct thread){ .top = t->top };
    return begin_head(s, &next, HEAD_END_ARGUMENT);
}

int calls_step_after(struct stepper *s, const struct thread *t)
{
    struct thread next = { .top = t->top };
    return s->byte == GRAMMAR_CLOSE ? begin_head(s, &next, HEAD_END_ARGUMENT)
                                    : 0;
}

/* ---- between ---- */

static int step_calls(struct stepper *s, const struct thread *t)
{
    struct thread next = { .calls = t->calls + 1 };
    int err = 0;
    if (s->byte == GRAMMAR_CLOSE && t->calls)
        return begin_head(s, t, HEAD_END_TOOLS);
    for (uint32_t i = 0; s->byte == GRAMMAR_OPEN && i < s->g->tools && !err;
         i++) {
        next.state = (int32_t)i;
        err = begin_head(s, &next, HEAD_CALL);
    }
    return err;
}

static int step_arguments(struct stepper *s, const struct thread *t)
{
    struct thread next = { .top = t->top };
    if (s->byte == GRAMMAR_OPEN && object_can_grow(t->top))
        return begin_head(s, &next, HEAD_ARGUMENT);
    if (s->byte == GRAMMAR_CLOSE && object_can_end(t->top))
        return begin_head(s, &next, HEAD_END_CALL);
    return 0;
}

int calls_step(struct stepper *s, const struct thread *t)
{
    switch ((enum place)t->place) {
    case AT_CALLS:
        return step_calls(s, t);
    case AT_ARGUMENTS:
        return step_arguments(s, t);
    case IN_HEAD:
        return step_head(s, t);
    case IN_KEY:
        return step_key(s, t);
    case IN_RAW:
        return step_raw(s, t);
    default:
        return 0;
    }
}

/* ---- the grammar ---- */

/* Is there an object among the arguments, and has every name room in a head. */
static int check_arguments(const struct grammar *g, const char *name,
                           struct error *error)
{
    const struct node *root = &g->node[g->root];
    bool any = false;
    for (uint32_t i = 0; i < root->shapes; i++) {
        const struct shape *s = &root->shape[i];
        any |= s->type == SHAPE_OBJECT && s->height <= GRAMMAR_DEPTH;
        for (uint32_t k = 0; k < s->properties; k++)
            if (s->type == SHAPE_OBJECT && s->property[k].bytes > KEY_MAX)
                return error_set(error, -ENOTSUP,
                                 "%.100s: a property has a name of more than "
                                 "%d bytes", name, KEY_MAX);
    }
    return any ? 0
               : error_set(error, -ENOENT, "%.100s: the parameters allow no "
                           "object", name);
}

static int add_tool(struct grammar *g, const struct grammar_tool *tool,
                    struct error *error)
{
    static const char none[] =
        "{\"type\":\"object\",\"additionalProperties\":false}";
    struct tool *t = &g->tool[g->tools];
    struct jv_doc doc = { 0 };
    struct error said = { 0 };
    const struct jv *schema = tool->parameters;
    int err = schema ? 0 : jv_parse(&doc, none, sizeof none - 1, JV_STRICT,
                                    NULL);
    t->name = strndup(tool->name, tool->bytes);
    g->tools++;
    if (err || !t->name || tool->bytes > NAME_BYTES)
        err = error_set(error, -ENOMEM, "no memory for a tool");
    if (!err)
        err = grammar_schema(&t->arguments, schema ? schema : doc.root, &said);
    if (err && said.code)
        error_set(error, err, "%.100s: %s", t->name, said.text);
    jv_free(&doc);
    return err ? err : check_arguments(t->arguments, t->name, error);
}

int grammar_calls(struct grammar **out, const struct grammar_tool *tool,
                  uint32_t tools, struct error *error)
{
    struct grammar *g = calloc(1, sizeof *g);
    *out = NULL;
    if (g)
        g->tool = calloc(tools + 1, sizeof *g->tool);
    int err = g && g->tool ? 0
                           : error_set(error, -ENOMEM, "no memory for tools");
    for (uint32_t i = 0; i < tools && !err; i++)
        err = add_tool(g, &tool[i], error);
    if (err) {
        grammar_free(g);
        return err;
    }
    *out = g;
    return 0;
}

/* step.c - one byte further: values, containers and what stands between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/match_internal.h"

int threads_add(struct threads *list, const struct thread *t)
{
    if (list->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : 8;
        struct thread *bigger = realloc(list->thread, room * sizeof *bigger);
        if (!bigger)
            return -ENOMEM;
        list->thread = bigger;
        list->room = room;
    }
    list->thread[list->count++] = *t;
    return 0;
}

static bool is_blank(uint8_t b)
{
    return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}

const struct frame *keep_frame(struct stepper *s, const struct frame *from)
{
    struct frame *f = pool_take(s->pool, sizeof *f);
    if (!f)
        return NULL;
    *f = *from;
    f->hash[0] = f->up ? f->up->hash[0] : 1;
    f->hash[1] = f->up ? f->up->hash[1] : 2;
    mix_in(f->hash, (uint64_t)(uintptr_t)f->shape);
    mix_in(f->hash, f->count | (uint64_t)f->call << 32);
    for (int i = 0; i < SEEN_WORDS; i++)
        if (f->seen[i])
            mix_in(f->hash, f->seen[i] + (uint64_t)i);
    uint64_t extras[2] = { 0, 0 }; /* in any order */
    for (const struct extra *e = f->extra; e; e = e->next) {
        extras[0] += e->hash[0];
        extras[1] ^= e->hash[1];
    }
    mix_in(f->hash, extras[0]);
    mix_in(f->hash, extras[1]);
    return f;
}

static int add(struct stepper *s, const struct thread *t)
{
    return threads_add(s->to, t);
}

/* The thread behind a value that ended. */
static struct thread behind(const struct frame *top)
{
    return (struct thread){ .top = top, .place = top ? AT_AFTER : AT_END };
}

/* ---- values ---- */

static int step_number(struct stepper *s, const struct thread *t);

static int begin_container(struct stepper *s, const struct frame *top,
                           const struct shape *shape)
{
    struct frame f = { .up = top, .g = top ? top->g : s->g, .shape = shape,
                       .depth = top ? top->depth + 1 : 1 };
    struct thread t = { .top = keep_frame(s, &f) };
    t.place = shape->type == SHAPE_ARRAY ? AT_FIRST_ITEM : AT_FIRST_KEY;
    return t.top ? add(s, &t) : -ENOMEM;
}

static int begin_scalar(struct stepper *s, const struct frame *top,
                        const struct shape *shape)
{
    struct thread t = { .top = top, .shape = shape };
    static const char first[] = { 'n', 't', 'f' };
    if (shape->type == SHAPE_STRING && s->byte == '"') {
        t.place = IN_STRING;
        return add(s, &t);
    }
    if (shape->type == SHAPE_NUMBER) {
        t.place = IN_NUMBER;
        return step_number(s, &t);
    }
    if (shape->type <= SHAPE_FALSE && s->byte == first[shape->type]) {
        t.place = IN_WORD;
        t.used = 1;
        return add(s, &t);
    }
    return 0;
}

/* Of any type, or of type only - 1. */
static int begin_value(struct stepper *s, const struct frame *top, int32_t node,
                       uint32_t only)
{
    const struct node *n = &(top ? top->g : s->g)->node[node];
    uint32_t depth = top ? top->depth : 0;
    int err = 0;
    for (uint32_t i = 0; i < n->shapes && !err; i++) {
        const struct shape *shape = &n->shape[i];
        if (shape->height > GRAMMAR_DEPTH - depth ||
            (only && !is_of_type(shape, only - 1)))
            continue;
        if (shape->type == SHAPE_ARRAY || shape->type == SHAPE_OBJECT) {
            if (s->byte == (shape->type == SHAPE_ARRAY ? '[' : '{'))
                err = begin_container(s, top, shape);
        } else {
            err = begin_scalar(s, top, shape);
        }
    }
    return err;
}

static int step_word(struct stepper *s, const struct thread *t)
{
    static const char *const word[] = { "null", "true", "false" };
    const char *w = word[t->shape->type];
    struct thread next = *t;
    if (s->byte != (uint8_t)w[t->used])
        return 0;
    if (w[++next.used])
        return add(s, &next);
    next = behind(t->top);
    return add(s, &next);
}

static int step_after(struct stepper *s, const struct thread *t);

static int step_number(struct stepper *s, const struct thread *t)
{
    static const struct digits none;
    const struct digits *so_far = t->digits ? t->digits : &none;
    const struct number_range *r = &t->shape->range;
    if (number_may_follow(r, so_far->text, so_far->n, (char)s->byte)) {
        struct digits *more = pool_take(s->pool, sizeof *more);
        struct thread next = *t;
        if (!more)
            return -ENOMEM;
        memcpy(more->text, so_far->text, so_far->n);
        more->text[so_far->n] = (char)s->byte;
        more->n = so_far->n + 1;
        next.digits = more;
        return add(s, &next);
    }
    if (!so_far->n || !number_complete(r, so_far->text, so_far->n))
        return 0;
    struct thread next = behind(t->top);
    return step_after(s, &next);
}

static int step_string(struct stepper *s, const struct thread *t)
{
    struct thread next = *t;
    if (s->byte == '"' && t->part == PART_NONE) {
        next = behind(t->top);
        return string_can_end(t) ? add(s, &next) : 0;
    }
    return text_step(&next, s->byte) ? add(s, &next) : 0;
}

int keep_name(struct stepper *s, const struct thread *t, struct thread *next)
{
    struct frame f;
    bool extra;
    if (!name_end(t, &f, &next->node, &extra))
        return 0;
    if (extra) {
        struct extra *e = pool_take(s->pool, sizeof *e);
        if (!e)
            return -ENOMEM;
        *e = (struct extra){ f.extra, { t->name_hash[0], t->name_hash[1] } };
        f.extra = e;
    }
    next->top = keep_frame(s, &f);
    return next->top ? 1 : -ENOMEM;
}

static int step_name(struct stepper *s, const struct thread *t)
{
    struct thread next = *t;
    if (s->byte != '"' || t->part != PART_NONE)
        return text_step(&next, s->byte) ? add(s, &next) : 0;
    next = (struct thread){ .place = AT_COLON };
    int kept = keep_name(s, t, &next);
    return kept > 0 ? add(s, &next) : kept;
}

/* ---- between values ---- */

static int32_t item_node(const struct frame *f)
{
    const struct shape *s = f->shape;
    return f->count < s->prefixes ? s->prefix[f->count] : s->rest;
}

static bool array_can_grow(const struct frame *f)
{
    return f->count < f->shape->max && node_fits(f->g, item_node(f), f->depth);
}

/* The array with one item more begun. */
static const struct frame *next_item(struct stepper *s, const struct frame *f)
{
    struct frame more = *f;
    more.count++;
    return keep_frame(s, &more);
}

static int step_first_item(struct stepper *s, const struct thread *t)
{
    const struct frame *f = t->top;
    if (s->byte == ']') {
        struct thread next = behind(f->up);
        return f->shape->min ? 0 : add(s, &next);
    }
    if (!array_can_grow(f))
        return 0;
    const struct frame *more = next_item(s, f);
    return more ? begin_value(s, more, item_node(f), 0) : -ENOMEM;
}

static int step_key(struct stepper *s, const struct thread *t)
{
    struct thread next = { .top = t->top };
    if (t->place == AT_FIRST_KEY && s->byte == '}') {
        next = behind(t->top->up);
        return object_can_end(t->top) ? add(s, &next) : 0;
    }
    return s->byte == '"' && name_begin(&next, IN_NAME) ? add(s, &next) : 0;
}

static int step_after(struct stepper *s, const struct thread *t)
{
    const struct frame *f = t->top;
    struct thread next = *t;
    if (is_blank(s->byte)) {
        next.blanks++;
        return t->blanks < GRAMMAR_BLANKS ? add(s, &next) : 0;
    }
    if (!f)
        return 0;
    if (f->call)
        return calls_step_after(s, t);
    bool array = f->shape->type == SHAPE_ARRAY;
    if (s->byte == (array ? ']' : '}')) {
        next = behind(f->up);
        return (array ? f->count >= f->shape->min : object_can_end(f))
                   ? add(s, &next)
                   : 0;
    }
    if (s->byte != ',')
        return 0;
    if (!array) {
        next = (struct thread){ .top = f, .place = AT_KEY };
        return object_can_grow(f) ? add(s, &next) : 0;
    }
    if (!array_can_grow(f))
        return 0;
    next = (struct thread){ .top = next_item(s, f),
                            .node = item_node(f),
                            .place = AT_VALUE };
    return next.top ? add(s, &next) : -ENOMEM;
}

static int step(struct stepper *s, const struct thread *t)
{
    struct thread next = *t;
    bool between = t->place <= AT_END;
    if (between && is_blank(s->byte)) {
        next.blanks++;
        return t->blanks < GRAMMAR_BLANKS ? add(s, &next) : 0;
    }
    switch ((enum place)t->place) {
    case AT_VALUE:
        return begin_value(s, t->top, t->node, t->code);
    case AT_FIRST_ITEM:
        return step_first_item(s, t);
    case AT_FIRST_KEY:
    case AT_KEY:
        return step_key(s, t);
    case AT_COLON:
        next.place = AT_VALUE;
        next.blanks = 0;
        return s->byte == ':' ? add(s, &next) : 0;
    case AT_AFTER:
    case AT_END:
        return step_after(s, t);
    case IN_STRING:
        return step_string(s, t);
    case IN_NAME:
        return step_name(s, t);
    case IN_NUMBER:
        return step_number(s, t);
    case IN_WORD:
        return step_word(s, t);
    case IN_TEXT:
        return text_step(&next, s->byte) ? add(s, &next) : 0;
    case AT_CALLS:
    case AT_ARGUMENTS:
    case IN_HEAD:
    case IN_KEY:
    case IN_RAW:
        return calls_step(s, t);
    }
    return 0;
}

void thread_key(const struct thread *t, uint64_t key[2])
{
    key[0] = t->top ? t->top->hash[0] : 3;
    key[1] = t->top ? t->top->hash[1] : 4;
    mix_in(key, (uint64_t)(uintptr_t)t->shape);
    mix_in(key, (uint64_t)(uint32_t)t->node << 32 | (uint32_t)t->place << 24 |
                    (uint32_t)t->part << 16 | (uint32_t)t->left << 8 |
                    t->blanks);
    mix_in(key, (uint64_t)t->code << 32 | t->half);
    mix_in(key, (uint64_t)t->calls << 8 | t->head);
    mix_in(key, (uint64_t)(uint32_t)t->state << 32 | t->used);
    mix_in(key,
           (uint64_t)t->low << 32 | t->high | (uint64_t)t->free_name << 63);
    mix_in(key, t->name_hash[0]);
    mix_in(key, t->name_hash[1]);
    for (uint32_t i = 0; t->digits && i < t->digits->n; i++)
        mix_in(key, (uint8_t)t->digits->text[i]);
}

/* Threads that may go on alike are one. */
static void join_equal(struct threads *list)
{
    uint64_t key[64][2];
    uint32_t kept = 0;
    if (list->count < 2 || list->count > 64)
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        bool known = false;
        thread_key(&list->thread[i], key[kept]);
        for (uint32_t j = 0; j < kept && !known; j++)
            known = key[j][0] == key[kept][0] && key[j][1] == key[kept][1];
        if (!known)
            list->thread[kept++] = list->thread[i];
    }
    list->count = kept;
}

int threads_step(const struct grammar *g, struct pool *pool,
                 const struct threads *from, uint8_t byte, struct threads *to)
{
    struct stepper s = { g, pool, to, byte };
    int err = 0;
    to->count = 0;
    for (uint32_t i = 0; i < from->count && !err; i++)
        err = step(&s, &from->thread[i]);
    join_equal(to);
    return err;
}

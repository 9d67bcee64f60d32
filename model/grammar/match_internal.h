/* match_internal.h - the states of a match.
 *
 * A match is a set of *threads*, one for each way in which the text so far can
 * be read: alternatives that begin alike part later. A thread stands in one
 * place of one value; the containers around it are a list of *frames* that is
 * never changed, only replaced, so that threads share it.
 */
#ifndef MODEL_GRAMMAR_MATCH_INTERNAL_H
#define MODEL_GRAMMAR_MATCH_INTERNAL_H

#include "model/grammar/grammar_internal.h"
#include "model/grammar/match.h"

enum {
    SEEN_WORDS = PROPERTIES_MAX / 64,
    KEY_MAX = 500, /* bytes of an argument's name: heads have at most 4096 */
};

/* A name of an object that no property has. */
struct extra {
    const struct extra *next;
    uint64_t hash[2];
};

struct frame {
    const struct frame *up;
    const struct grammar *g;
    const struct shape *shape; /* of an array or object */
    uint32_t count;            /* items or properties begun */
    uint32_t depth;            /* containers around and this one */
    uint32_t call; /* of a call's arguments: its number from 1; else 0 */
    uint64_t seen[SEEN_WORDS]; /* properties by number */
    const struct extra *extra;
    uint64_t hash[2]; /* of all of it and what is above */
};

struct digits { /* the text of a number so far */
    uint32_t n;
    char text[NUMBER_MAX];
};

enum place {
    AT_VALUE,      /* a value of `node` begins */
    AT_FIRST_ITEM, /* behind [: an item or ] */
    AT_FIRST_KEY,  /* behind {: a key or } */
    AT_KEY,        /* behind a comma: a key */
    AT_COLON,
    AT_AFTER, /* behind a value of a container: , or its end */
    AT_END,   /* behind the whole */
    IN_STRING,
    IN_NAME,
    IN_NUMBER,
    IN_WORD, /* null, true, false */
    IN_TEXT, /* of a pattern */
    /* of calls */
    AT_CALLS,     /* a call begins, or the tools end */
    AT_ARGUMENTS, /* an argument begins, or the call ends */
    IN_HEAD,      /* of what `head` says; then its separator */
    IN_KEY,       /* of an argument */
    IN_RAW,       /* a string without quotes */
};

/* What stands between two control ids. */
enum head {
    HEAD_NONE,
    HEAD_CALL,     /* call tool="NAME" index="N": tool `state`, call `calls` */
    HEAD_ARGUMENT, /* argument key=" */
    HEAD_TYPE,     /* type="T"; T is type `code` */
    HEAD_END_ARGUMENT,
    HEAD_END_CALL,
    HEAD_END_TOOLS,
};

/* Inside of a character of a string. */
enum part {
    PART_NONE,
    PART_UTF8,     /* `left` bytes are missing, `code` so far */
    PART_ESCAPE,   /* behind a backslash */
    PART_HEX,      /* \u: `left` digits are missing */
    PART_HALF,     /* the first half of a pair is `half`: a backslash */
    PART_HALF_U,   /* then u */
    PART_HALF_HEX, /* then `left` digits */
    PART_ENTITY,   /* of a key: `left` letters of &amp; or &quot;; `code` says
                    * which of them it may be */
};

struct thread {
    const struct frame *top;   /* NULL: at the outermost */
    const struct shape *shape; /* of the scalar at hand */
    int32_t node;
    uint8_t place, part, left, blanks, head;
    uint32_t code, half; /* AT_VALUE: code - 1 is the only type, 0: any */
    int32_t state; /* of the string's automaton */
    uint32_t used; /* characters of the string; letters of the word */
    uint32_t calls; /* of calls: begun so far */
    const struct digits *digits;
    /* A name: properties [low, high) begin with its `used` bytes. */
    uint16_t low, high;
    bool free_name; /* it may be one that no property has */
    uint64_t name_hash[2];
};

struct threads {
    struct thread *thread;
    uint32_t count, room;
};

/* Memory that is given back all at once, or down to a mark. */
struct pool {
    char **chunk;
    size_t chunks, used; /* chunk in use, bytes of it */
    size_t room;
};

struct pool_mark {
    size_t chunk, used;
};

void *pool_take(struct pool *p, size_t bytes);
struct pool_mark pool_mark(const struct pool *p);
void pool_rewind(struct pool *p, struct pool_mark mark);
void pool_free(struct pool *p);

struct match {
    const struct grammar *g;
    struct threads now, next;
    struct pool pool;
};

/* On the way from threads to threads. */
struct stepper {
    const struct grammar *g;
    struct pool *pool;
    struct threads *to;
    uint8_t byte;
};

/* The name of *t ends: *next has the object with it and the node of its value.
 * 1; 0: it may not end here; -ENOMEM. */
int keep_name(struct stepper *s, const struct thread *t, struct thread *next);
/* A frame of the pool with the hash of what it is; NULL: no memory. */
const struct frame *keep_frame(struct stepper *s, const struct frame *from);

/* All that `from` becomes by one byte, into `to`. 0 or -ENOMEM. */
int threads_step(const struct grammar *g, struct pool *pool,
                 const struct threads *from, uint8_t byte, struct threads *to);
int threads_add(struct threads *list, const struct thread *t);
void thread_key(const struct thread *t, uint64_t key[2]);

/* ---- calls.c ---- */

/* One byte at a place of calls. 0 or -ENOMEM. */
int calls_step(struct stepper *s, const struct thread *t);
/* The same behind a value that is an argument. */
int calls_step_after(struct stepper *s, const struct thread *t);

/* ---- text.c: the characters of strings and names ---- */

/* One byte inside of a string, a name or a text. 1: *t has taken it; 0: it may
 * not follow. The closing quote is not for this. */
int text_step(struct thread *t, uint8_t byte);
/* A name begins, IN_NAME or IN_KEY: false when the object can have no further
 * one. */
bool name_begin(struct thread *t, enum place place);
/* The name of *t ends here: the node of its value, in *frame what the object
 * becomes. False: it may not end here. */
bool name_end(const struct thread *t, struct frame *frame, int32_t *node,
              bool *extra);
/* Can the object have one more property. */
bool object_can_grow(const struct frame *f);
bool object_can_end(const struct frame *f);

/* TRUE and FALSE are one type. */
static inline bool is_of_type(const struct shape *s, uint32_t type)
{
    return s->type == type || (s->type == SHAPE_FALSE && type == SHAPE_TRUE);
}

/* Is what *t has of a string all that its shape asks for. */
static inline bool string_can_end(const struct thread *t)
{
    const struct shape *s = t->shape;
    return t->part == PART_NONE && t->used >= s->min &&
           (!s->dfa || s->dfa->accept[t->state]);
}

/* Can a value of the node be inside of `depth` containers. */
static inline bool node_fits(const struct grammar *g, int32_t node,
                             uint32_t depth)
{
    return node != NODE_NONE && g->node[node].height <= GRAMMAR_DEPTH - depth;
}

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline void mix_in(uint64_t hash[2], uint64_t value)
{
    hash[0] = mix(hash[0] + value + UINT64_C(0x9e3779b97f4a7c15));
    hash[1] = mix(hash[1] ^ (value * UINT64_C(0xd6e8feb86659fd93) + 1));
}

#endif

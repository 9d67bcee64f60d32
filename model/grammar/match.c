#include "model/grammar/match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/match_internal.h"

enum { CHUNK_BYTES = 16 << 10, COMPACT_CHUNKS = 16 };

/* ---- memory ---- */

void *pool_take(struct pool *p, size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    if (!p->room || p->used + bytes > CHUNK_BYTES) {
        size_t next = p->room ? p->chunks + 1 : 0;
        if (next == p->room) {
            char **bigger = realloc(p->chunk, (next + 1) * sizeof *bigger);
            if (!bigger)
                return NULL;
            p->chunk = bigger;
            p->chunk[next] = malloc(CHUNK_BYTES);
            if (!p->chunk[next])
                return NULL;
            p->room = next + 1;
        }
        p->chunks = next;
        p->used = 0;
    }
    void *out = p->chunk[p->chunks] + p->used;
    p->used += bytes;
    return out;
}

struct pool_mark pool_mark(const struct pool *p)
{
    return (struct pool_mark){ p->chunks, p->used };
}

void pool_rewind(struct pool *p, struct pool_mark mark)
{
    p->chunks = mark.chunk;
    p->used = mark.used;
}

void pool_free(struct pool *p)
{
    for (size_t i = 0; i < p->room; i++)
        free(p->chunk[i]);
    free(p->chunk);
    *p = (struct pool){ 0 };
}

/* ---- copies ---- */

static const struct extra *copy_extras(struct pool *pool,
                                       const struct extra *from, int *err)
{
    const struct extra *first = NULL;
    struct extra *last = NULL;
    for (; from && !*err; from = from->next) {
        struct extra *e = pool_take(pool, sizeof *e);
        if (!e) {
            *err = -ENOMEM;
            break;
        }
        *e = (struct extra){ NULL, { from->hash[0], from->hash[1] } };
        if (last)
            last->next = e;
        else
            first = e;
        last = e;
    }
    return first;
}

static const struct frame *copy_frames(struct pool *pool,
                                       const struct frame *from, int *err)
{
    const struct frame *first = NULL;
    struct frame *last = NULL;
    for (; from && !*err; from = from->up) {
        struct frame *f = pool_take(pool, sizeof *f);
        if (!f) {
            *err = -ENOMEM;
            break;
        }
        *f = *from;
        f->extra = copy_extras(pool, from->extra, err);
        if (last)
            last->up = f;
        else
            first = f;
        last = f;
    }
    return first;
}

static int copy_threads(struct threads *to, struct pool *pool,
                        const struct threads *from)
{
    int err = 0;
    to->count = 0;
    for (uint32_t i = 0; i < from->count && !err; i++) {
        struct thread t = from->thread[i];
        t.top = copy_frames(pool, t.top, &err);
        if (t.digits) {
            struct digits *d = pool_take(pool, sizeof *d);
            if (!d)
                return -ENOMEM;
            *d = *t.digits;
            t.digits = d;
        }
        if (!err)
            err = threads_add(to, &t);
    }
    return err;
}

/* ---- use ---- */

int match_open(struct match **out, const struct grammar *g)
{
    struct match *m = calloc(1, sizeof *m);
    struct thread t = { .node = g->root, .place = AT_VALUE };
    *out = NULL;
    if (!m)
        return -ENOMEM;
    m->g = g;
    if (g->text) { /* a shape that holds the automaton */
        struct shape *s = pool_take(&m->pool, sizeof *s);
        if (s)
            *s = (struct shape){ .type = SHAPE_STRING, .dfa = g->text };
        t = (struct thread){ .shape = s, .place = IN_TEXT };
    }
    if (g->tools)
        t = (struct thread){ .place = AT_CALLS };
    if ((g->text && !t.shape) || threads_add(&m->now, &t)) {
        match_close(m);
        return -ENOMEM;
    }
    *out = m;
    return 0;
}

void match_close(struct match *m)
{
    if (!m)
        return;
    pool_free(&m->pool);
    free(m->now.thread);
    free(m->next.thread);
    free(m);
}

int match_copy(struct match *to, const struct match *from)
{
    if (from->g->text) { /* its threads have no frames, its shape stays */
        struct thread t = from->now.thread[0];
        t.shape = to->now.thread[0].shape;
        to->now.thread[0] = t;
        return 0;
    }
    pool_rewind(&to->pool, (struct pool_mark){ 0, 0 });
    return copy_threads(&to->now, &to->pool, &from->now);
}

/* Leave behind what no thread holds any more. */
static int compact(struct match *m)
{
    struct pool fresh = { 0 };
    if (m->pool.chunks < COMPACT_CHUNKS || m->g->text)
        return 0;
    int err = copy_threads(&m->next, &fresh, &m->now);
    if (err) {
        pool_free(&fresh);
        return err;
    }
    struct threads t = m->now;
    m->now = m->next;
    m->next = t;
    pool_free(&m->pool);
    m->pool = fresh;
    return 0;
}

int match_push(struct match *m, const char *bytes, size_t n)
{
    struct threads before = { 0 };
    struct pool_mark mark = pool_mark(&m->pool);
    int got = 1;
    for (uint32_t i = 0; i < m->now.count && got > 0; i++)
        got = threads_add(&before, &m->now.thread[i]) ? -ENOMEM : 1;
    for (size_t i = 0; i < n && got > 0; i++) {
        int err =
            threads_step(m->g, &m->pool, &m->now, (uint8_t)bytes[i], &m->next);
        struct threads t = m->now;
        m->now = m->next;
        m->next = t;
        got = err ? err : m->now.count > 0;
    }
    if (got == 0) {
        struct threads t = m->now;
        m->now = before;
        before = t;
        pool_rewind(&m->pool, mark);
    }
    free(before.thread);
    if (got <= 0)
        return got;
    int err = compact(m);
    return err ? err : 1;
}

bool match_complete(const struct match *m)
{
    for (uint32_t i = 0; i < m->now.count; i++) {
        const struct thread *t = &m->now.thread[i];
        if (t->place == AT_END)
            return true;
        if (t->place == IN_NUMBER && !t->top && t->digits &&
            number_complete(&t->shape->range, t->digits->text, t->digits->n))
            return true;
        if (t->place == IN_TEXT && t->part == PART_NONE &&
            t->shape->dfa->accept[t->state])
            return true;
    }
    return false;
}

/* The only byte that may follow; -1: there are several, or none. */
static int only_byte(struct match *m)
{
    struct pool_mark mark = pool_mark(&m->pool);
    int only = -1, found = 0, err = 0;
    for (int b = 0; b < GRAMMAR_CONTROL_END && found < 2 && !err; b++) {
        bool beside = b == ' ' || b == '\t' || b == '\r' || b == '\n' ||
                      b == '\\';
        if (beside)
            continue;
        err = threads_step(m->g, &m->pool, &m->now, (uint8_t)b, &m->next);
        if (m->next.count) {
            only = b;
            found++;
        }
        pool_rewind(&m->pool, mark);
    }
    return err ? err : found == 1 ? only : -1;
}

int match_likely(struct match *m, char *out, size_t room)
{
    size_t n = 0;
    while (n < room && !match_complete(m)) {
        int b = only_byte(m);
        if (b == -ENOMEM)
            return b;
        if (b < 0)
            break;
        out[n] = (char)b;
        int got = match_push(m, out + n, 1);
        if (got < 0)
            return got;
        n += got > 0;
        if (!got)
            break;
    }
    return (int)n;
}

void match_key(const struct match *m, uint64_t key[2])
{
    key[0] = (uint64_t)(uintptr_t)m->g;
    key[1] = m->now.count;
    for (uint32_t i = 0; i < m->now.count; i++) {
        uint64_t one[2];
        thread_key(&m->now.thread[i], one);
        mix_in(key, one[0]);
        mix_in(key, one[1]);
    }
}

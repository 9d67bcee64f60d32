#include "model/grammar/dfa.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/dfa_internal.h"
#include "model/json/utf8.h"

/* ---- making ---- */

static int grow(void **array, uint32_t *room, uint32_t count, size_t size)
{
    if (count < *room)
        return 0;
    uint32_t wanted = *room ? *room * 2 : 64;
    void *bigger = realloc(*array, wanted * size);
    if (!bigger)
        return -ENOMEM;
    *array = bigger;
    *room = wanted;
    return 0;
}

int dfa_maker_state(struct dfa_maker *m, bool accept)
{
    if (m->states == DFA_STATES_MAX)
        return -E2BIG;
    int err =
        grow((void **)&m->accept, &m->state_room, m->states, sizeof *m->accept);
    if (err)
        return err;
    m->accept[m->states] = accept;
    return (int)m->states++;
}

/* low..high has no surrogate. */
static int add_edge(struct dfa_maker *m, uint32_t from, uint32_t low,
                    uint32_t high, uint32_t to)
{
    uint32_t room = m->edge_room;
    assert(!m->edges || m->from[m->edges - 1] <= from);
    if (m->edges && m->from[m->edges - 1] == from) {
        struct dfa_edge *last = &m->edge[m->edges - 1];
        assert(last->high < low);
        bool touch =
            last->high + 1 == low || (last->high == 0xd7ff && low == 0xe000);
        if (touch && last->to == (int32_t)to) {
            last->high = high;
            return 0;
        }
    }
    int err = grow((void **)&m->edge, &room, m->edges, sizeof *m->edge);
    if (!err)
        err = grow((void **)&m->from, &m->edge_room, m->edges, sizeof *m->from);
    if (err)
        return err;
    m->edge[m->edges] = (struct dfa_edge){ low, high, (int32_t)to };
    m->from[m->edges++] = from;
    return 0;
}

int dfa_maker_edge(struct dfa_maker *m, uint32_t from, uint32_t low,
                   uint32_t high, uint32_t to)
{
    int err = 0;
    if (low < 0xd800)
        err = add_edge(m, from, low, high < 0xd800 ? high : 0xd7ff, to);
    if (!err && high > 0xdfff)
        err = add_edge(m, from, low > 0xdfff ? low : 0xe000, high, to);
    return err;
}

void dfa_maker_free(struct dfa_maker *m)
{
    free(m->edge);
    free(m->from);
    free(m->accept);
    *m = (struct dfa_maker){ 0 };
}

/* Characters from every state to an accepting one; UINT32_MAX: none. Relaxed
 * until nothing changes. */
static void measure(const struct dfa_maker *m, uint32_t *shortest)
{
    bool changed = true;
    for (uint32_t s = 0; s < m->states; s++)
        shortest[s] = m->accept[s] ? 0 : UINT32_MAX;
    while (changed) {
        changed = false;
        for (uint32_t e = m->edges; e-- > 0;) {
            uint32_t to = shortest[m->edge[e].to];
            if (to != UINT32_MAX && to + 1 < shortest[m->from[e]]) {
                shortest[m->from[e]] = to + 1;
                changed = true;
            }
        }
    }
}

/* Copy the states that live, under new numbers. */
static void copy_live(struct dfa *d, const struct dfa_maker *m,
                      const uint32_t *shortest, uint32_t *number)
{
    uint32_t e = 0, edges = 0;
    for (uint32_t s = 0; s < m->states; s++)
        if (shortest[s] != UINT32_MAX)
            number[s] = d->states++;
    for (uint32_t s = 0; s < m->states; s++) {
        bool live = shortest[s] != UINT32_MAX;
        if (live) {
            d->accept[number[s]] = m->accept[s];
            d->shortest[number[s]] = shortest[s];
            d->first[number[s]] = edges;
        }
        for (; e < m->edges && m->from[e] == s; e++) {
            struct dfa_edge edge = m->edge[e];
            if (!live || shortest[edge.to] == UINT32_MAX)
                continue;
            edge.to = (int32_t)number[edge.to];
            d->edge[edges++] = edge;
        }
    }
    d->first[d->states] = edges;
}

/* Does a state take every character, into total states? */
static bool is_total(const struct dfa *d, uint32_t s)
{
    uint32_t next = 0;
    for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
        if (d->edge[e].low != next || !d->total[d->edge[e].to])
            return false;
        next = d->edge[e].high + 1;
        next = next == 0xd800 ? 0xe000 : next; /* no surrogates */
    }
    return next == DFA_CHAR_MAX + 1;
}

static void find_total(struct dfa *d)
{
    bool changed = true;
    memset(d->total, 1, d->states * sizeof *d->total);
    while (changed) {
        changed = false;
        for (uint32_t s = d->states; s-- > 0;)
            if (d->total[s] && !is_total(d, s)) {
                d->total[s] = false;
                changed = true;
            }
    }
}

int dfa_maker_finish(struct dfa **out, struct dfa_maker *m)
{
    struct dfa *d = calloc(1, sizeof *d);
    uint32_t *shortest = calloc(m->states + 1, sizeof *shortest);
    uint32_t *number = calloc(m->states + 1, sizeof *number);
    int err = d && shortest && number ? 0 : -ENOMEM;
    *out = NULL;
    if (!err) {
        d->first = calloc(m->states + 1, sizeof *d->first);
        d->edge = calloc(m->edges + 1, sizeof *d->edge);
        d->accept = calloc(m->states + 1, sizeof *d->accept);
        d->shortest = calloc(m->states + 1, sizeof *d->shortest);
        d->total = calloc(m->states + 1, sizeof *d->total);
        if (!d->first || !d->edge || !d->accept || !d->shortest || !d->total)
            err = -ENOMEM;
    }
    if (!err) {
        measure(m, shortest);
        /* State 0 begins every text: without it the set is empty. */
        if (m->states && shortest[0] != UINT32_MAX)
            copy_live(d, m, shortest, number);
        find_total(d);
        *out = d;
    } else {
        dfa_free(d);
    }
    free(shortest);
    free(number);
    dfa_maker_free(m);
    return err;
}

void dfa_free(struct dfa *d)
{
    if (!d)
        return;
    free(d->first);
    free(d->edge);
    free(d->accept);
    free(d->shortest);
    free(d->total);
    free(d);
}

int32_t dfa_next(const struct dfa *d, int32_t state, uint32_t character)
{
    uint32_t low = d->first[state], high = d->first[state + 1];
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (d->edge[mid].high < character)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < d->first[state + 1] && d->edge[low].low <= character)
        return d->edge[low].to;
    return DFA_DEAD;
}

int dfa_pattern(struct dfa **out, const char *pattern, size_t bytes, bool whole,
                struct error *error)
{
    struct nfa n = { 0 };
    *out = NULL;
    int err = nfa_pattern(&n, pattern, bytes, whole, error);
    if (!err)
        err = nfa_to_dfa(out, &n);
    nfa_free(&n);
    if (err == -E2BIG)
        error_set(error, err, "the pattern needs more than %d states",
                  DFA_STATES_MAX);
    return err;
}

/* ---- given strings ---- */

struct word {
    const char *text;
    size_t bytes;
};

static int by_bytes(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool next_char(const struct word *w, size_t at, uint32_t *c, size_t *n)
{
    if (at >= w->bytes)
        return false;
    int length = utf8_next(w->text + at, w->bytes - at, c);
    *n = length > 0 ? (size_t)length : 1;
    if (length <= 0)
        *c = 0xfffd;
    return true;
}

/* The words [first, end) share their first `at` bytes, and `state`. States are
 * visited in the order of their numbers: a queue. */
struct part {
    uint32_t state;
    size_t first, end, at;
};

static int add_children(struct dfa_maker *m, const struct word *word,
                        const struct part *p, struct part *queue,
                        size_t *queued)
{
    size_t i = p->first;
    while (i < p->end && word[i].bytes == p->at)
        i++; /* the text that ends here */
    while (i < p->end) {
        uint32_t c = 0, other;
        size_t n = 0, m_bytes, j = i + 1;
        next_char(&word[i], p->at, &c, &n);
        while (j < p->end && next_char(&word[j], p->at, &other, &m_bytes) &&
               other == c)
            j++;
        bool ends = word[i].bytes == p->at + n;
        int state = dfa_maker_state(m, ends);
        int err = state < 0
                      ? state
                      : dfa_maker_edge(m, p->state, c, c, (uint32_t)state);
        if (err)
            return err;
        queue[(*queued)++] = (struct part){ (uint32_t)state, i, j, p->at + n };
        i = j;
    }
    return 0;
}

int dfa_strings(struct dfa **out, const char *const *text, const size_t *bytes,
                size_t count)
{
    struct dfa_maker m = { 0 };
    struct word *word = calloc(count + 1, sizeof *word);
    struct part *queue = calloc(DFA_STATES_MAX + 1, sizeof *queue);
    int err = word && queue ? 0 : -ENOMEM;
    *out = NULL;
    bool empty = false;
    for (size_t i = 0; !err && i < count; i++) {
        word[i] = (struct word){ text[i], bytes[i] };
        empty |= !bytes[i];
    }
    if (!err) {
        qsort(word, count, sizeof *word, by_bytes);
        int root = dfa_maker_state(&m, empty);
        err = root < 0 ? root : 0;
    }
    if (!err) {
        size_t queued = 1;
        queue[0] = (struct part){ 0, 0, count, 0 };
        for (size_t i = 0; i < queued && !err; i++) {
            struct part p = queue[i];
            err = add_children(&m, word, &p, queue, &queued);
        }
    }
    if (!err)
        err = dfa_maker_finish(out, &m);
    dfa_maker_free(&m);
    free(word);
    free(queue);
    return err;
}

/* ---- both ---- */

struct pairs {
    uint64_t *pair; /* [states] a << 32 | b */
    uint32_t *slot; /* hash table of state + 1 */
    uint32_t slots;
    struct dfa_maker m;
    const struct dfa *a, *b;
};

static int pair_state(struct pairs *p, uint32_t a, uint32_t b)
{
    uint64_t key = (uint64_t)a << 32 | b;
    uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    uint32_t at = (uint32_t)h & (p->slots - 1);
    for (; p->slot[at]; at = (at + 1) & (p->slots - 1))
        if (p->pair[p->slot[at] - 1] == key)
            return (int)p->slot[at] - 1;
    int state = dfa_maker_state(&p->m, p->a->accept[a] && p->b->accept[b]);
    if (state < 0)
        return state;
    p->pair[state] = key;
    p->slot[at] = (uint32_t)state + 1;
    return state;
}

static int pair_edges(struct pairs *p, uint32_t state)
{
    uint32_t a = (uint32_t)(p->pair[state] >> 32);
    uint32_t b = (uint32_t)p->pair[state];
    uint32_t i = p->a->first[a], j = p->b->first[b];
    while (i < p->a->first[a + 1] && j < p->b->first[b + 1]) {
        const struct dfa_edge *x = &p->a->edge[i], *y = &p->b->edge[j];
        uint32_t low = x->low > y->low ? x->low : y->low;
        uint32_t high = x->high < y->high ? x->high : y->high;
        if (low <= high) {
            int to = pair_state(p, (uint32_t)x->to, (uint32_t)y->to);
            int err =
                to < 0 ? to
                       : dfa_maker_edge(&p->m, state, low, high, (uint32_t)to);
            if (err)
                return err;
        }
        if (x->high < y->high)
            i++;
        else
            j++;
    }
    return 0;
}

int dfa_both(struct dfa **out, const struct dfa *a, const struct dfa *b)
{
    struct pairs p = { .slots = 1 << 16, .a = a, .b = b };
    p.pair = calloc(DFA_STATES_MAX, sizeof *p.pair);
    p.slot = calloc(p.slots, sizeof *p.slot);
    int err = p.pair && p.slot ? 0 : -ENOMEM;
    *out = NULL;
    if (!err && a->states && b->states) {
        int start = pair_state(&p, 0, 0);
        err = start < 0 ? start : 0;
        for (uint32_t s = 0; s < p.m.states && !err; s++)
            err = pair_edges(&p, s);
    }
    if (!err)
        err = dfa_maker_finish(out, &p.m);
    dfa_maker_free(&p.m);
    free(p.pair);
    free(p.slot);
    return err;
}

/* subset.c - the subset construction: an automaton whose states are sets of
 * another's nodes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/dfa_internal.h"

struct set { /* of nodes that take a character, or accept; ascending */
    uint32_t *node;
    uint32_t count;
};

struct builder {
    const struct nfa *n;
    struct dfa_maker m;
    struct set *set; /* [DFA_STATES_MAX] of each state */
    uint32_t *slot;  /* hash table of state + 1 */
    uint32_t slots;
    uint32_t *stack, *mark, now;
    uint32_t *found, founds; /* the closure at hand */
    uint32_t *cut;           /* [room] where the ranges of a set begin or end */
    uint32_t cut_room;
};

/* Where a closure stands in the text. */
enum { AT_BEGIN = 1, AT_END = 2 };

static void close_over(struct builder *b, const uint32_t *from, uint32_t n,
                       unsigned where)
{
    uint32_t depth = 0;
    b->now++;
    b->founds = 0;
    for (uint32_t i = n; i-- > 0;)
        if (b->mark[from[i]] != b->now) {
            b->mark[from[i]] = b->now;
            b->stack[depth++] = from[i];
        }
    while (depth) {
        const struct nfa_node *x = &b->n->node[b->stack[--depth]];
        uint32_t at = (uint32_t)(x - b->n->node), next[2], nexts = 0;
        if (x->kind == NFA_CHARS || x->kind == NFA_ACCEPT || x->kind == NFA_END)
            b->found[b->founds++] = at;
        if (x->kind == NFA_SPLIT) {
            next[nexts++] = x->to;
            next[nexts++] = x->other;
        } else if ((x->kind == NFA_BEGIN && where & AT_BEGIN) ||
                   (x->kind == NFA_END && where & AT_END)) {
            next[nexts++] = x->to;
        }
        for (uint32_t i = 0; i < nexts; i++)
            if (b->mark[next[i]] != b->now) {
                b->mark[next[i]] = b->now;
                b->stack[depth++] = next[i];
            }
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* May a text end in these nodes? A ^ behind nothing but $ is only passed by the
 * empty text. */
static bool accepts(struct builder *b, const struct set *s, bool first)
{
    close_over(b, s->node, s->count, AT_END | (first ? AT_BEGIN : 0u));
    for (uint32_t i = 0; i < b->founds; i++)
        if (b->n->node[b->found[i]].kind == NFA_ACCEPT)
            return true;
    return false;
}

/* The state of the closure at hand, new or known. */
static int state_of(struct builder *b, bool first)
{
    uint64_t h = b->founds;
    qsort(b->found, b->founds, sizeof *b->found, by_number);
    for (uint32_t i = 0; i < b->founds; i++)
        h = (h ^ b->found[i]) * UINT64_C(0x100000001b3);
    uint32_t at = (uint32_t)(h >> 20) & (b->slots - 1);
    /* The first state has passed ^ and is its own. */
    for (; b->slot[at]; at = (at + 1) & (b->slots - 1)) {
        const struct set *s = &b->set[b->slot[at] - 1];
        if (b->slot[at] != 1 && s->count == b->founds &&
            !memcmp(s->node, b->found, b->founds * sizeof *s->node))
            return (int)b->slot[at] - 1;
    }
    struct set fresh = { malloc((b->founds + 1) * sizeof *fresh.node),
                         b->founds };
    if (!fresh.node)
        return -ENOMEM;
    memcpy(fresh.node, b->found, b->founds * sizeof *fresh.node);
    int state = dfa_maker_state(&b->m, accepts(b, &fresh, first));
    if (state < 0) {
        free(fresh.node);
        return state;
    }
    b->set[state] = fresh;
    b->slot[at] = (uint32_t)state + 1;
    return state;
}

/* Where the set's ranges begin, and one past where they end; sorted. */
static int find_cuts(struct builder *b, const struct set *s, uint32_t *count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->count; i++)
        n += 2 * b->n->node[s->node[i]].ranges;
    if (n > b->cut_room) {
        uint32_t *bigger = realloc(b->cut, n * sizeof *bigger);
        if (!bigger)
            return -ENOMEM;
        b->cut = bigger;
        b->cut_room = n;
    }
    n = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct nfa_node *x = &b->n->node[s->node[i]];
        for (uint32_t r = 0; r < x->ranges; r++) {
            b->cut[n++] = b->n->range[x->range + r].low;
            b->cut[n++] = b->n->range[x->range + r].high + 1;
        }
    }
    if (n)
        qsort(b->cut, n, sizeof *b->cut, by_number);
    *count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!*count || b->cut[*count - 1] != b->cut[i])
            b->cut[(*count)++] = b->cut[i];
    return 0;
}

static bool takes(const struct nfa *n, const struct nfa_node *x, uint32_t c)
{
    for (uint32_t r = 0; r < x->ranges; r++)
        if (n->range[x->range + r].low <= c && c <= n->range[x->range + r].high)
            return true;
    return false;
}

static int add_edges(struct builder *b, uint32_t state, uint32_t *to)
{
    uint32_t cuts;
    struct set s = b->set[state];
    int err = find_cuts(b, &s, &cuts);
    for (uint32_t i = 0; i + 1 < cuts && !err; i++) {
        uint32_t low = b->cut[i], high = b->cut[i + 1] - 1, n = 0;
        for (uint32_t j = 0; j < s.count; j++) {
            const struct nfa_node *x = &b->n->node[s.node[j]];
            if (x->kind == NFA_CHARS && takes(b->n, x, low))
                to[n++] = x->to;
        }
        if (!n)
            continue;
        close_over(b, to, n, 0);
        int next = state_of(b, false);
        err = next < 0
                  ? next
                  : dfa_maker_edge(&b->m, state, low, high, (uint32_t)next);
    }
    return err;
}

int nfa_to_dfa(struct dfa **out, const struct nfa *n)
{
    struct builder b = { .n = n, .slots = 1 << 16 };
    uint32_t *to = calloc(n->nodes + 1, sizeof *to);
    b.set = calloc(DFA_STATES_MAX, sizeof *b.set);
    b.slot = calloc(b.slots, sizeof *b.slot);
    b.stack = calloc(n->nodes + 1, sizeof *b.stack);
    b.mark = calloc(n->nodes + 1, sizeof *b.mark);
    b.found = calloc(n->nodes + 1, sizeof *b.found);
    int err =
        to && b.set && b.slot && b.stack && b.mark && b.found ? 0 : -ENOMEM;
    if (!err) {
        close_over(&b, &n->start, 1, AT_BEGIN);
        int start = state_of(&b, true);
        err = start < 0 ? start : 0;
    }
    for (uint32_t s = 0; !err && s < b.m.states; s++)
        err = add_edges(&b, s, to);
    for (uint32_t s = 0; b.set && s < b.m.states; s++)
        free(b.set[s].node);
    if (!err)
        err = dfa_maker_finish(out, &b.m);
    dfa_maker_free(&b.m);
    free(to);
    free(b.set);
    free(b.slot);
    free(b.stack);
    free(b.mark);
    free(b.found);
    free(b.cut);
    return err;
}

/* dfa_internal.h - automata under construction. */
#ifndef MODEL_GRAMMAR_DFA_INTERNAL_H
#define MODEL_GRAMMAR_DFA_INTERNAL_H

#include "model/grammar/dfa.h"

/* A growing automaton; states are numbered as they are added. */
struct dfa_maker {
    struct dfa_edge *edge;
    uint32_t *from; /* [edges] the state an edge leaves; ascending */
    uint32_t edges, edge_room;
    bool *accept;
    uint32_t states, state_room;
};

/* The new state's number, or a negative errno. */
int dfa_maker_state(struct dfa_maker *m, bool accept);
/* Edges are added state by state, each state's ascending. */
int dfa_maker_edge(struct dfa_maker *m, uint32_t from, uint32_t low,
                   uint32_t high, uint32_t to);
/* Take out what cannot reach an accepting state; frees the maker's arrays. */
int dfa_maker_finish(struct dfa **out, struct dfa_maker *m);
void dfa_maker_free(struct dfa_maker *m);

/* ---- nondeterministic automata: regex.c makes them, subset.c removes the
 * nondeterminism ---- */

enum nfa_kind {
    NFA_CHARS, /* one character of a class, then `to` */
    NFA_SPLIT, /* `to` or `other` */
    NFA_BEGIN, /* `to`, only before the first character */
    NFA_END,   /* `to`, only behind the last */
    NFA_ACCEPT,
};

struct char_range {
    uint32_t low, high;
};

struct nfa_node {
    enum nfa_kind kind;
    uint32_t to, other;
    uint32_t range, ranges; /* of NFA_CHARS, into nfa.range */
};

struct nfa {
    struct nfa_node *node;
    uint32_t nodes, node_room;
    struct char_range *range;
    uint32_t ranges, range_room;
    uint32_t start;
};

int nfa_pattern(struct nfa *n, const char *pattern, size_t bytes, bool whole,
                struct error *error);
void nfa_free(struct nfa *n);
int nfa_to_dfa(struct dfa **out, const struct nfa *n);

#endif

/* draft.h - draft ids from the text so far, and how many of them save time.
 *
 * A draft is what followed when the end of the text occurred before (prompt
 * lookup). Draft rows go through the model in the same pass as the row whose id
 * is known. A draft is accepted if and only if it equals what is sampled at its
 * position, so drafts change the time a text takes, never the text.
 *
 *     draft_init, draft_cost_init -> { draft_look, draft_spread, pass,
 *     draft_learn, draft_cost_add }
 *
 * How often drafts are right is learned from every id, even without draft rows:
 * the first draft is compared with what is sampled. So a text without
 * repetition is recognised without running a draft row.
 *
 * The cost of a row is measured: a line is fitted to the times of the last
 * passes over their rows. Until there are passes of different widths, its slope
 * is the share of one row's experts in the bytes of a pass: small while the
 * trunk is streamed, large once it is resident.
 *
 * Bytes    nothing beside the caller's structs.
 * Threads  one caller a struct.
 * Cost     draft_look walks the text once, backwards.
 */
#ifndef MODEL_DECODE_DRAFT_H
#define MODEL_DECODE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/k3/k3.h"

enum {
    DRAFT_MATCH_MAX = 16, /* ids of the end that are compared */
    DRAFT_CLASSES = 5,    /* lengths of a match: 1, 2, 3-4, 5-8, 9 and more */
    DRAFT_AUTO_MAX = 15,  /* rows for one sequence that auto goes up to */
    DRAFT_FIXED_MAX = 256, /* and that may be asked for by number */
};

struct draft_options {
    uint32_t max;      /* draft rows of a sequence in a pass; 0: off */
    bool     adaptive; /* as many of them as save time; else always all */
};

/* One sequence's. */
struct draft {
    float    tried[DRAFT_CLASSES], right[DRAFT_CLASSES]; /* decaying counts */
    uint32_t match; /* ids of the end that occurred before; 0: none */
    uint32_t from;  /* the position after that occurrence */
    uint32_t count; /* ids of the text at the last look */
};

void draft_init(struct draft *d);
/* Find the longest end of ids[count] that occurred before, the latest one of
 * equally long ones. */
void draft_look(struct draft *d, const uint32_t *ids, uint32_t count);
/* The i-th draft after the text of the last look; match is not 0. Where the
 * earlier occurrence runs into the end, the drafts repeat. */
uint32_t draft_propose(const struct draft *d, const uint32_t *ids, uint32_t i);
/* The probability that draft i is right, given that those before it are. */
double draft_chance(const struct draft *d, uint32_t i);
/* ids[count] is the text by now: count how many drafts of the last look were
 * right. */
void draft_learn(struct draft *d, const uint32_t *ids, uint32_t count);

/* Decaying sums over passes without prompt rows: x rows, y seconds. */
struct draft_cost {
    double weight, x, y, xx, xy;
    double row_share; /* expected time of one more row / that of a pass */
    double weights_share; /* the same of the weight bytes */
};

/* `weights_share`: the bytes of one row's experts in all weight bytes of a pass
 * with one row; draft_weights_share computes it. */
void   draft_cost_init(struct draft_cost *c, double weights_share);
double draft_weights_share(const struct k3 *k);
/* Add a pass, as k3_last returns it. */
void   draft_cost_add(struct draft_cost *c, const struct k3_totals *last);
/* Expected seconds of a pass with `rows` rows, and of one more row; 0 before
 * the first pass. */
double draft_cost_pass(const struct draft_cost *c, double rows);
double draft_cost_row(const struct draft_cost *c);

/* A sequence that decodes in the next pass. */
struct draft_ask {
    const struct draft *draft;
    const double *each; /* [max] chances of other drafts, or NULL: draft's */
    bool     formed; /* `each` is of drafts that the form has */
    uint32_t max;    /* draft rows that it can use */
    uint32_t width;  /* the answer: draft rows that it gets */
    double   chance; /* that one more row, and all before it, are right */
};

/* Divide at most `room` draft rows among n sequences, in a pass that has `rows`
 * other rows and `beside_s` seconds beside it. A row is added while it raises
 * the expected ids a second, which are returned. All get 0 until a pass was
 * measured. */
double draft_spread(const struct draft_cost *c, struct draft_ask *ask,
                    uint32_t n, uint32_t rows, uint32_t room, double beside_s);
/* The chance of the ask's i-th draft, given those before it. */
double draft_ask_chance(const struct draft_ask *a, uint32_t i);

#endif

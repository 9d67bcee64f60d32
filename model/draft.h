/* draft.h - guesses at the next ids from the text so far, and how many pay.
 *
 * A draft is what followed when the end of the text occurred before (prompt
 * lookup). Draft rows go through the model in the same pass as the row that is
 * sure, and one comes true if and only if it equals what is sampled at its
 * position; so a draft changes the time a text takes, never the text.
 *
 *     draft_init, draft_cost_init -> { draft_look, draft_spread, pass,
 *     draft_learn, draft_cost_add }
 *
 * Whether a guess comes true is learned from every id, drafted or not: the
 * first guess is compared with what is sampled all the same. A text without
 * repetition is therefore recognised without a single row spent on it.
 *
 * What a row costs is measured: a line through the times of the last passes
 * over their rows. Until there are passes of different widths its slope is the
 * share that the experts of one row have in the bytes of a pass: small while
 * the trunk is streamed, large once it is resident.
 *
 * Bytes    nothing beside the caller's structs.
 * Threads  one caller a struct.
 * Cost     draft_look walks the text once, backwards.
 */
#ifndef MODEL_DRAFT_H
#define MODEL_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/k3.h"

enum {
    DRAFT_MATCH_MAX = 16, /* ids of the end that are compared */
    DRAFT_CLASSES = 5,    /* lengths of a match: 1, 2, 3-4, 5-8, 9 and more */
    DRAFT_AUTO_MOST = 15, /* rows for one sequence that auto goes up to */
};

struct draft_options {
    uint32_t most;     /* draft rows of a sequence in a pass; 0: off */
    bool     adaptive; /* as many of them as pay; else always all */
};

/* One sequence's. */
struct draft {
    float    tried[DRAFT_CLASSES], right[DRAFT_CLASSES]; /* fading counts */
    uint32_t match; /* ids of the end that occurred before; 0: none */
    uint32_t from;  /* the position after that occurrence */
    uint32_t count; /* of the text when it was looked at */
};

void draft_init(struct draft *d);
/* Find the longest end of ids[count] that occurred before, the latest one of
 * equally long ones. */
void draft_look(struct draft *d, const uint32_t *ids, uint32_t count);
/* The i-th id that should follow the text of the last look; match is not 0.
 * Where the earlier occurrence runs into the end, the guesses repeat. */
uint32_t draft_guess(const struct draft *d, const uint32_t *ids, uint32_t i);
/* The chance that guess i is right, given that those before it are. */
double draft_chance(const struct draft *d, uint32_t i);
/* ids[count] is the text by now: judge the guesses of the last look. */
void draft_learn(struct draft *d, const uint32_t *ids, uint32_t count);

/* Passes without prompt rows, fading sums. */
struct draft_cost {
    double weight, x, y, xx, xy; /* rows and seconds */
    double row_share; /* of a row more in the time of a pass; not measured */
    double weights_share; /* the same in weight bytes computed with */
};

/* `weights_share`: the experts of one row in all weights that a pass with one
 * row computes with. */
void   draft_cost_init(struct draft_cost *c, double weights_share);
double draft_weights_share(const struct k3 *k);
/* What k3_last says. */
void   draft_cost_add(struct draft_cost *c, const struct k3_totals *last);
/* Seconds of a pass with so many rows, and of one row more. */
double draft_cost_pass(const struct draft_cost *c, double rows);
double draft_cost_row(const struct draft_cost *c);

/* A sequence that decodes in the next pass. */
struct draft_ask {
    const struct draft *draft;
    uint32_t most;   /* rows that its text has use for */
    uint32_t width;  /* the answer */
    double   chance; /* that a row more, and all before it, come true */
};

/* Divide at most `room` draft rows over n sequences, in a pass that has `rows`
 * other rows: a row is added while the ids a second that are to be expected
 * grow by it. 0 everywhere until a pass has been measured. */
void draft_spread(const struct draft_cost *c, struct draft_ask *ask,
                  uint32_t n, uint32_t rows, uint32_t room);

#endif

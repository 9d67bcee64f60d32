/* cuts.h - who owns which rows: the matrices of a model divided over N parts.
 *
 * Part r owns a contiguous range of output rows of every matrix of the trunk
 * and of w1, w2 and w3 of every expert, in proportion to its weight. The ranges
 * of the parts follow each other and cover the matrix. They are cut at
 * multiples of cuts_unit: of 16 rows and, where rows belong to attention heads,
 * of whole heads, the same heads in every matrix of a layer. A part may own
 * none of a small matrix. Tensors that are small are whole in every part.
 *
 *     { weights } -> cuts_rows, cuts_expert_rows
 *
 * The same weights always give the same ranges: a part need not be asked what
 * it owns.
 *
 * Threads  any: all functions are pure. Errors: none.
 */
#ifndef MODEL_CKPT_CUTS_H
#define MODEL_CKPT_CUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/config.h"
#include "model/ckpt/tensors.h"

enum {
    CUTS_PARTS_MAX = 16,
    CUTS_WEIGHT_MAX = 1000000,
    CUTS_ROWS = 16, /* every cut is at a multiple, but for a matrix's end */
};

struct cuts {
    uint32_t parts;                  /* 1..CUTS_PARTS_MAX */
    uint32_t weight[CUTS_PARTS_MAX]; /* 1..CUTS_WEIGHT_MAX */
};

/* Rows [begin, end); begin == end: none. */
struct row_range {
    uint32_t begin, end;
};

/* Weights in proportion to `rate`, any positive numbers. False: one is not
 * positive or so small beside the largest that it would own nothing. */
bool cuts_weigh(struct cuts *out, uint32_t parts, const double *rate);

/* Is it small, so that every part has all of it? True for vectors and for the
 * narrow matrices of KDA's decay, its bias and beta. */
bool cuts_small(enum tensor_role role, const struct config *c, int64_t layer);
/* Cuts of this matrix are at multiples of this many rows. */
uint32_t cuts_unit(enum tensor_role role, const struct config *c,
                   int64_t layer);
/* The rows of a matrix that a part owns: all of them if it is small. The role
 * is one that the layer has. */
struct row_range cuts_rows(const struct cuts *cuts, uint32_t part,
                           enum tensor_role role, const struct config *c,
                           int64_t layer);
/* The same for tensor `which` of any expert: its weights and their scales have
 * the same rows. */
struct row_range cuts_expert_rows(const struct cuts *cuts, uint32_t part,
                                  uint32_t which, const struct config *c);
/* The plain rule, for `rows` rows cut at multiples of `unit`. */
struct row_range cuts_of(const struct cuts *cuts, uint32_t part, uint32_t rows,
                         uint32_t unit);

/* The part whose copy of the small tensors of a layer is read, where all parts
 * are at hand: in turn, in proportion to the weights. */
uint32_t cuts_small_from(const struct cuts *cuts, int64_t layer);

#endif

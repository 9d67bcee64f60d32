/* rope.h - rotated positions, plain and YaRN.
 *
 * A pair (a, b) of a head becomes (a cos - b sin, b cos + a sin) at the angle
 * position * inv[i]. The pairs are neighbours (2i, 2i+1) or halves (i, i+d/2).
 * Angles are in double: positions reach a million.
 *
 * Threads  plain functions of their arguments.
 */
#ifndef MODEL_DSPARK_ROPE_H
#define MODEL_DSPARK_ROPE_H

#include <stdint.h>

#include "model/dspark/config.h"

struct rope {
    uint32_t half;                   /* pairs */
    double   inv[DSPARK_ROPE_MAX / 2];
    double   mag;                    /* of cos and sin */
    float    score_scale;            /* of attention scores */
};

void rope_init(struct rope *r, const struct dspark_config *c);
/* The position's [half] cos, then [half] sin, times mag. */
void rope_at(const struct rope *r, uint32_t position, float *out);
/* Rotate one head, values [2 * half], with what rope_at made. */
void rope_halves(const struct rope *r, float *x, const float *at);
void rope_neighbours(const struct rope *r, float *x, const float *at);

#endif

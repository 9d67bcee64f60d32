/* things.h - what a shard consists of, as work for spread_make.c.
 *
 * Errors   -ENOMEM; -ENOTSUP: an expert that lies in two shards.
 */
#ifndef MODEL_PARTS_THINGS_H
#define MODEL_PARTS_THINGS_H

#include "model/parts/parts_internal.h"

enum thing_kind { THING_REST, THING_SMALLS, THING_BLOCK, THING_EXPERT };

struct thing {
    uint8_t  kind; /* enum thing_kind */
    uint8_t  part; /* of a block */
    uint32_t index; /* of the rest; of the first small tensor; of the matrix in
                     * its part's table; of the expert in the tables */
    uint32_t block; /* of the matrix; SMALLS: how many tensors */
};

/* A tensor of the trunk that is in the shard. */
struct thing_source {
    struct extent extent;
    int32_t  layer;
    enum tensor_role role;
};

struct things {
    uint32_t count;
    struct thing *thing; /* [count], in the order of the files */
    /* The tables of each part but for places and checksums. */
    struct part_head head[CUTS_PARTS_MAX];
    struct part_matrix *matrix[CUTS_PARTS_MAX]; /* [head.matrices] */
    struct thing_source *source[CUTS_PARTS_MAX]; /* of each matrix */
    struct part_rest *rest;       /* [rests], for part 0 */
    uint32_t rests, smalls, experts;
    struct thing_source *small;   /* [smalls] */
    uint32_t *expert;             /* [experts]: their numbers */
    struct sidecar_spot *spot;    /* [spots], the same in all parts */
    uint32_t spots;
    uint64_t bytes;               /* of the shard */
};

/* For the parts that have a path in s. */
int  things_list(struct things *t, const struct spread_shard *s,
                 struct error *error);
void things_free(struct things *t);

#endif

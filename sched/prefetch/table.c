/* table: count how often expert j of a layer followed expert i of the layer
 * before, over all sequences.
 *
 *     chance(j) = mean over the chosen i of (n_ij + 2 p_j) / (n_i + 2)
 *
 * n_ij is the number of rows that chose i and then j, n_i of rows that chose i,
 * p_j the share of all rows that chose j. Counts are bytes: at 255, n_i and its
 * n_ij are halved, so that newer text counts more. Before layer 0 comes the
 * last layer of the token before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/prefetch/method.h"

#define TABLE_ROWS 64 /* of a pass, whose choices are kept for one layer */

struct choice {
    uint32_t k;
    uint16_t ids[];
};

struct table {
    struct prefetch_shape shape;
    uint8_t *pair;   /* [layers][experts i][experts j]: i before, j in layer */
    uint8_t *used;   /* [layers][experts i] n_i, i in the layer before */
    uint32_t *count; /* [layers][experts] rows that chose it */
    uint32_t *rows;  /* [layers] rows seen */
    float *score;    /* [experts] scratch */
    size_t choice_bytes; /* of one struct choice */
    /* [sequences][2][TABLE_ROWS + 1] struct choice, of even and of odd layers;
     * the rows from TABLE_ROWS on share the last. */
    char *choice;
    uint32_t *last_row; /* [sequences] of the last layer seen */
    uint32_t *layer;    /* [sequences] that layer, or UINT32_MAX */
};

static void table_close(void *state)
{
    struct table *s = state;
    free(s->pair);
    free(s->used);
    free(s->count);
    free(s->rows);
    free(s->score);
    free(s->choice);
    free(s->last_row);
    free(s->layer);
    free(s);
}

static int table_open(void **state, const struct prefetch_shape *shape)
{
    size_t blocks = (size_t)shape->layers * shape->experts;
    struct table *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->shape = *shape;
    s->pair = calloc(blocks, shape->experts);
    s->used = calloc(blocks, sizeof *s->used);
    s->count = calloc(blocks, sizeof *s->count);
    s->rows = calloc(shape->layers, sizeof *s->rows);
    s->score = calloc(shape->experts, sizeof *s->score);
    s->choice_bytes =
        sizeof(struct choice) + (shape->top_k * sizeof(uint16_t) + 3) / 4 * 4;
    s->choice = calloc((size_t)shape->sequences * 2 * (TABLE_ROWS + 1),
                       s->choice_bytes);
    s->last_row = calloc(shape->sequences, sizeof *s->last_row);
    s->layer = malloc(shape->sequences * sizeof *s->layer);
    if (!s->pair || !s->used || !s->count || !s->rows || !s->score ||
        !s->choice || !s->last_row || !s->layer)
        return -ENOMEM;
    memset(s->layer, 0xff, shape->sequences * sizeof *s->layer);
    return 0;
}

static struct choice *choice_of(struct table *s, uint32_t sequence,
                                uint32_t layer, uint32_t row)
{
    size_t i = ((size_t)sequence * 2 + layer % 2) * (TABLE_ROWS + 1) +
               (row < TABLE_ROWS ? row : TABLE_ROWS);
    return (void *)(s->choice + i * s->choice_bytes);
}

/* What the row chose in the layer before `layer`, or NULL if unknown. */
static struct choice *before(struct table *s, uint32_t sequence, uint32_t layer,
                             uint32_t row)
{
    uint32_t last = layer ? layer - 1 : s->shape.layers - 1;
    uint32_t seen = s->layer[sequence];
    if (layer > 0 && (seen == last || seen == layer))
        return choice_of(s, sequence, last, row);
    if (layer == 0 && seen == last && row == 0)
        return choice_of(s, sequence, last, s->last_row[sequence]);
    return NULL;
}

static void halve(uint8_t *counts, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        counts[j] /= 2;
}

static void learn(struct table *s, const struct choice *from,
                  const struct prefetch_seen *seen)
{
    size_t layer = (size_t)seen->layer * s->shape.experts;
    for (uint32_t i = 0; i < from->k; i++) {
        size_t at = layer + from->ids[i];
        uint8_t *pair = s->pair + at * s->shape.experts;
        if (s->used[at] == UINT8_MAX) {
            halve(pair, s->shape.experts);
            s->used[at] /= 2;
        }
        s->used[at]++;
        for (uint32_t j = 0; j < seen->k; j++)
            pair[seen->ids[j]]++;
    }
}

static void table_saw(void *state, const struct prefetch_seen *seen)
{
    struct table *s = state;
    const struct choice *from =
        before(s, seen->sequence, seen->layer, seen->row);
    if (from && seen->row < TABLE_ROWS)
        learn(s, from, seen);
    struct choice *mine = choice_of(s, seen->sequence, seen->layer, seen->row);
    mine->k = seen->k;
    for (uint32_t j = 0; j < seen->k; j++) {
        mine->ids[j] = (uint16_t)seen->ids[j];
        s->count[(size_t)seen->layer * s->shape.experts + seen->ids[j]]++;
    }
    s->rows[seen->layer]++;
    s->layer[seen->sequence] = seen->layer;
    s->last_row[seen->sequence] = seen->row;
}

static uint32_t table_next(void *state, uint32_t sequence, uint32_t layer,
                           const struct prefetch_names *out)
{
    struct table *s = state;
    uint32_t experts = s->shape.experts;
    size_t first = (size_t)layer * experts;
    const struct choice *from =
        s->layer[sequence] == layer
            ? NULL
            : before(s, sequence, layer, layer ? s->last_row[sequence] : 0);
    if (!from || !from->k || !s->rows[layer])
        return 0;
    float base = 0;
    for (uint32_t i = 0; i < from->k; i++)
        base += 2 / ((float)s->used[first + from->ids[i]] + 2);
    base /= (float)s->rows[layer];
    for (uint32_t j = 0; j < experts; j++)
        s->score[j] = base * (float)s->count[first + j];
    for (uint32_t i = 0; i < from->k; i++) {
        size_t at = first + from->ids[i];
        const uint8_t *pair = s->pair + at * experts;
        float share = 1 / ((float)s->used[at] + 2);
        for (uint32_t j = 0; j < experts; j++)
            s->score[j] += share * (float)pair[j];
    }
    return prefetch_best(s->score, experts, 1 / (float)from->k, out);
}

static void table_forget(void *state, uint32_t sequence)
{
    struct table *s = state;
    s->layer[sequence] = UINT32_MAX;
}

const struct prefetch_method prefetch_table = {
    .name = "table",
    .about = "count which experts followed the choice of the layer before",
    .open = table_open,
    .close = table_close,
    .saw = table_saw,
    .next = table_next,
    .forget = table_forget,
};

/* ema: name the experts of the layer with the highest score. A score halves
 * every two rows of the sequence and grows with each use, by 1.5 for the
 * router's first choice down to 0.5 for its last.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/prefetch/method.h"

#define EMA_DECAY 0.70710678118654757 /* 2^(-1/2) */
#define EMA_ROWS 64                   /* older uses count as none: 2^-32 */

struct ema {
    struct prefetch_shape shape;
    float *score;      /* [sequences][layers][experts] at the last use */
    uint32_t *used_at; /* [sequences][layers][experts] row of that use */
    uint32_t *rows;    /* [sequences][layers] rows seen */
    float *now;        /* [experts] scratch */
    float decay[EMA_ROWS];
};

static void ema_close(void *state)
{
    struct ema *s = state;
    free(s->score);
    free(s->used_at);
    free(s->rows);
    free(s->now);
    free(s);
}

static int ema_open(void **state, const struct prefetch_shape *shape)
{
    size_t cells = (size_t)shape->sequences * shape->layers;
    struct ema *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->shape = *shape;
    s->score = calloc(cells * shape->experts, sizeof *s->score);
    s->used_at = calloc(cells * shape->experts, sizeof *s->used_at);
    s->rows = calloc(cells, sizeof *s->rows);
    s->now = calloc(shape->experts, sizeof *s->now);
    if (!s->score || !s->used_at || !s->rows || !s->now)
        return -ENOMEM;
    double d = 1;
    for (uint32_t i = 0; i < EMA_ROWS; i++, d *= EMA_DECAY)
        s->decay[i] = (float)d;
    return 0;
}

static size_t cell(const struct ema *s, uint32_t sequence, uint32_t layer)
{
    return (size_t)sequence * s->shape.layers + layer;
}

static float decayed(const struct ema *s, size_t at, uint32_t row)
{
    uint32_t age = row - s->used_at[at];
    return age < EMA_ROWS ? s->score[at] * s->decay[age] : 0;
}

static void ema_saw(void *state, const struct prefetch_seen *seen)
{
    struct ema *s = state;
    size_t c = cell(s, seen->sequence, seen->layer);
    uint32_t row = ++s->rows[c];
    for (uint32_t i = 0; i < seen->k; i++) {
        size_t at = c * s->shape.experts + seen->ids[i];
        float w = seen->k > 1 ? 1.5f - (float)i / (float)(seen->k - 1) : 1;
        s->score[at] = decayed(s, at, row) + w;
        s->used_at[at] = row;
    }
}

static uint32_t ema_next(void *state, uint32_t sequence, uint32_t layer,
                         const struct prefetch_names *out)
{
    struct ema *s = state;
    size_t c = cell(s, sequence, layer);
    for (uint32_t e = 0; e < s->shape.experts; e++)
        s->now[e] = decayed(s, c * s->shape.experts + e, s->rows[c]);
    return prefetch_best(s->now, s->shape.experts, (float)(1 - EMA_DECAY), out);
}

static void ema_forget(void *state, uint32_t sequence)
{
    struct ema *s = state;
    size_t c = cell(s, sequence, 0), n = s->shape.layers;
    memset(s->rows + c, 0, n * sizeof *s->rows);
    memset(s->score + c * s->shape.experts, 0,
           n * s->shape.experts * sizeof *s->score);
}

const struct prefetch_method prefetch_ema = {
    .name = "ema",
    .about = "name what the layer used most of late",
    .open = ema_open,
    .close = ema_close,
    .saw = ema_saw,
    .next = ema_next,
    .forget = ema_forget,
};

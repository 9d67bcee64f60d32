/* prev: name what the sequence's last row chose in this layer, best rank first.
 * A cache with room for one token's experts has all of these already.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/prefetch/method.h"

#define PREV_START 0.34f /* chance of reuse, before any was seen */
#define PREV_RATE 0.02f

struct prev {
    struct prefetch_shape shape;
    uint16_t *ids;   /* [sequences][layers][top_k] */
    uint16_t *count; /* [sequences][layers] */
    float *chance;   /* [top_k] of reuse by rank, a running mean */
    uint32_t *mark;  /* [experts] number of the last row that chose it */
    uint32_t now;    /* number of the last row, never 0 */
};

static void prev_close(void *state)
{
    struct prev *s = state;
    free(s->ids);
    free(s->count);
    free(s->chance);
    free(s->mark);
    free(s);
}

static int prev_open(void **state, const struct prefetch_shape *shape)
{
    size_t cells = (size_t)shape->sequences * shape->layers;
    struct prev *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->shape = *shape;
    s->ids = calloc(cells * shape->top_k, sizeof *s->ids);
    s->count = calloc(cells, sizeof *s->count);
    s->chance = calloc(shape->top_k, sizeof *s->chance);
    s->mark = calloc(shape->experts, sizeof *s->mark);
    if (!s->ids || !s->count || !s->chance || !s->mark)
        return -ENOMEM;
    for (uint32_t i = 0; i < shape->top_k; i++)
        s->chance[i] = PREV_START;
    return 0;
}

static size_t cell(const struct prev *s, uint32_t sequence, uint32_t layer)
{
    return (size_t)sequence * s->shape.layers + layer;
}

static void prev_saw(void *state, const struct prefetch_seen *seen)
{
    struct prev *s = state;
    size_t c = cell(s, seen->sequence, seen->layer);
    uint16_t *ids = s->ids + c * s->shape.top_k;
    if (++s->now == 0) {
        memset(s->mark, 0, s->shape.experts * sizeof *s->mark);
        s->now = 1;
    }
    for (uint32_t i = 0; i < seen->k; i++)
        s->mark[seen->ids[i]] = s->now;
    for (uint32_t i = 0; i < s->count[c]; i++) {
        float reused = s->mark[ids[i]] == s->now ? 1 : 0;
        s->chance[i] += PREV_RATE * (reused - s->chance[i]);
    }
    for (uint32_t i = 0; i < seen->k; i++)
        ids[i] = (uint16_t)seen->ids[i];
    s->count[c] = (uint16_t)seen->k;
}

static uint32_t prev_next(void *state, uint32_t sequence, uint32_t layer,
                          const struct prefetch_names *out)
{
    struct prev *s = state;
    size_t c = cell(s, sequence, layer);
    const uint16_t *ids = s->ids + c * s->shape.top_k;
    uint32_t n = s->count[c] < out->max ? s->count[c] : out->max;
    float min = 1;
    for (uint32_t i = 0; i < n; i++) {
        min = s->chance[i] < min ? s->chance[i] : min;
        out->ids[i] = ids[i];
        out->confidence[i] = min;
    }
    return n;
}

static void prev_forget(void *state, uint32_t sequence)
{
    struct prev *s = state;
    memset(s->count + cell(s, sequence, 0), 0,
           s->shape.layers * sizeof *s->count);
}

const struct prefetch_method prefetch_prev = {
    .name = "prev",
    .about = "name what the previous token chose in the layer",
    .open = prev_open,
    .close = prev_close,
    .saw = prev_saw,
    .next = prev_next,
    .forget = prev_forget,
};

/* prev: what the sequence's last row chose in this layer, best rank first. It
 * names only what a cache of one token or more already holds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/predictor.h"

#define PREV_START 0.34f /* share that comes back, before anything is known */
#define PREV_RATE  0.02f

struct prev {
    struct predict_shape shape;
    uint16_t *ids;   /* [sequences][layers][top_k] */
    uint16_t *count; /* [sequences][layers] */
    float *chance;   /* [top_k] of a rank to come back, a running mean */
    uint32_t *mark;  /* [experts] the row that chose it last, never 0 */
    uint32_t now;
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

static int prev_open(void **state, const struct predict_shape *shape)
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

static void prev_saw(void *state, const struct predict_seen *seen)
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
        float came = s->mark[ids[i]] == s->now ? 1 : 0;
        s->chance[i] += PREV_RATE * (came - s->chance[i]);
    }
    for (uint32_t i = 0; i < seen->k; i++)
        ids[i] = (uint16_t)seen->ids[i];
    s->count[c] = (uint16_t)seen->k;
}

static uint32_t prev_next(void *state, uint32_t sequence, uint32_t layer,
                          const struct predict_names *out)
{
    struct prev *s = state;
    size_t c = cell(s, sequence, layer);
    const uint16_t *ids = s->ids + c * s->shape.top_k;
    uint32_t n = s->count[c] < out->most ? s->count[c] : out->most;
    float least = 1;
    for (uint32_t i = 0; i < n; i++) {
        least = s->chance[i] < least ? s->chance[i] : least;
        out->ids[i] = ids[i];
        out->confidence[i] = least;
    }
    return n;
}

static void prev_forget(void *state, uint32_t sequence)
{
    struct prev *s = state;
    memset(s->count + cell(s, sequence, 0), 0,
           s->shape.layers * sizeof *s->count);
}

const struct predictor predictor_prev = {
    .name = "prev",
    .about = "what the last token chose in the layer",
    .open = prev_open,
    .close = prev_close,
    .saw = prev_saw,
    .next = prev_next,
    .forget = prev_forget,
};

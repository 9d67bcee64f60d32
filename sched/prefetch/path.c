/* path: earlier tokens of the sequence vote for what they chose in this layer.
 * A vote weighs more, the more experts the token shares with the present one
 * in the last four layers.
 *
 *     weight(token) = exp(8 x shared experts / (4 top_k))
 *     chance(j)     = weights of the tokens that chose j / (all weights + 1)
 *
 * It needs no training, but a history of tokens. Before layer 0 come the last
 * layers of the token before.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched/prefetch/method.h"

#define PATH_TOKENS 512 /* kept of a sequence; fewer with many sequences */
#define PATH_DEPTH 4    /* layers compared */
#define PATH_SHARP 8.0

struct path {
    struct prefetch_shape shape;
    uint32_t tokens; /* kept of a sequence, in a ring: t at t % tokens */
    uint16_t *ids;   /* [sequences][tokens][layers][top_k] */
    uint64_t *first; /* [sequences] token of row 0 of the present step */
    uint64_t *end;   /* [sequences] token after the last */
    uint32_t *step;  /* [sequences] the present one, or UINT32_MAX */
    uint64_t *set;   /* [PATH_DEPTH][words] bits: what this token chose */
    uint32_t words;  /* of 64 experts */
    float *weight;   /* [PATH_DEPTH * top_k + 1] by number of shared experts */
    float *score;    /* [experts] scratch */
};

static void path_close(void *state)
{
    struct path *s = state;
    free(s->ids);
    free(s->first);
    free(s->end);
    free(s->step);
    free(s->set);
    free(s->weight);
    free(s->score);
    free(s);
}

static int path_open(void **state, const struct prefetch_shape *shape)
{
    size_t token_bytes = (size_t)shape->layers * shape->top_k * 2;
    size_t room = PREFETCH_PATH_BYTES / shape->sequences / token_bytes;
    struct path *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->shape = *shape;
    s->tokens = room < PATH_TOKENS ? (uint32_t)room : PATH_TOKENS;
    if (s->tokens < 2)
        s->tokens = 2;
    uint32_t max = PATH_DEPTH * shape->top_k;
    s->words = (shape->experts + 63) / 64;
    s->ids = calloc((size_t)shape->sequences * s->tokens, token_bytes);
    s->first = calloc(shape->sequences, sizeof *s->first);
    s->end = calloc(shape->sequences, sizeof *s->end);
    s->step = malloc(shape->sequences * sizeof *s->step);
    s->set = calloc((size_t)PATH_DEPTH * s->words, sizeof *s->set);
    s->weight = calloc(max + 1, sizeof *s->weight);
    s->score = calloc(shape->experts, sizeof *s->score);
    if (!s->ids || !s->first || !s->end || !s->step || !s->set || !s->weight ||
        !s->score)
        return -ENOMEM;
    memset(s->step, 0xff, shape->sequences * sizeof *s->step);
    for (uint32_t i = 0; i <= max; i++)
        s->weight[i] = (float)exp(PATH_SHARP * i / max);
    return 0;
}

static uint16_t *chosen(const struct path *s, uint32_t sequence, uint64_t token,
                        uint32_t layer)
{
    size_t at = (size_t)sequence * s->tokens + token % s->tokens;
    return s->ids + (at * s->shape.layers + layer) * s->shape.top_k;
}

static void path_saw(void *state, const struct prefetch_seen *seen)
{
    struct path *s = state;
    uint32_t q = seen->sequence;
    if (s->step[q] != seen->step) {
        s->step[q] = seen->step;
        s->first[q] = s->end[q];
    }
    uint64_t token = s->first[q] + seen->row;
    if (token >= s->end[q])
        s->end[q] = token + 1;
    uint16_t *ids = chosen(s, q, token, seen->layer);
    for (uint32_t i = 0; i < s->shape.top_k; i++)
        ids[i] = (uint16_t)seen->ids[i < seen->k ? i : 0];
}

/* What was chosen `back` layers before `layer` of `token`, back >= 1. */
static const uint16_t *earlier(const struct path *s, uint32_t sequence,
                               uint64_t token, uint32_t layer, uint32_t back)
{
    uint64_t at = token * s->shape.layers + layer - back;
    return chosen(s, sequence, at / s->shape.layers,
                  (uint32_t)(at % s->shape.layers));
}

static uint32_t in_common(const struct path *s, const uint16_t *ids,
                          uint32_t back)
{
    const uint64_t *set = s->set + (size_t)(back - 1) * s->words;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shape.top_k; i++)
        n += set[ids[i] / 64] >> ids[i] % 64 & 1;
    return n;
}

static void note_path(struct path *s, uint32_t sequence, uint64_t token,
                      uint32_t layer, uint32_t depth)
{
    memset(s->set, 0, (size_t)PATH_DEPTH * s->words * sizeof *s->set);
    for (uint32_t back = 1; back <= depth; back++) {
        const uint16_t *ids = earlier(s, sequence, token, layer, back);
        uint64_t *set = s->set + (size_t)(back - 1) * s->words;
        for (uint32_t i = 0; i < s->shape.top_k; i++)
            set[ids[i] / 64] |= 1ull << ids[i] % 64;
    }
}

static uint32_t path_next(void *state, uint32_t sequence, uint32_t layer,
                          const struct prefetch_names *out)
{
    struct path *s = state;
    uint64_t end = s->end[sequence];
    /* Names for layer 0 are for a token of which no row was seen yet. Its path
     * is that of the token before. */
    uint64_t token = layer ? end - 1 : end;
    uint64_t first = layer ? s->first[sequence] : end;
    if (end == 0)
        return 0;
    uint32_t depth =
        PATH_DEPTH < s->shape.layers ? PATH_DEPTH : s->shape.layers;
    uint64_t oldest = end > s->tokens ? end - s->tokens : 0;
    if (layer < depth) /* its path begins in the token before it */
        oldest++;
    note_path(s, sequence, token, layer, depth);
    memset(s->score, 0, s->shape.experts * sizeof *s->score);
    float all = 1;
    for (uint64_t voter = oldest; voter < first; voter++) {
        uint32_t common = 0;
        for (uint32_t back = 1; back <= depth; back++)
            common +=
                in_common(s, earlier(s, sequence, voter, layer, back), back);
        const uint16_t *ids = chosen(s, sequence, voter, layer);
        for (uint32_t i = 0; i < s->shape.top_k; i++)
            s->score[ids[i]] += s->weight[common];
        all += s->weight[common];
    }
    return prefetch_best(s->score, s->shape.experts, 1 / all, out);
}

static void path_forget(void *state, uint32_t sequence)
{
    struct path *s = state;
    s->first[sequence] = s->end[sequence] = 0;
    s->step[sequence] = UINT32_MAX;
}

const struct prefetch_method prefetch_path = {
    .name = "path",
    .about = "let earlier tokens with the same path through the layers vote",
    .open = path_open,
    .close = path_close,
    .saw = path_saw,
    .next = path_next,
    .forget = path_forget,
};

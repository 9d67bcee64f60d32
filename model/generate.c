#include "model/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct generation {
    struct k3 *k;
    const struct generate_options *o;
    struct generate_result *result;
    struct why *why;
    struct k3_row *row;
    void *scratch; /* of the sampler */
    uint32_t position; /* of the next row */
};

static int hand_logits(struct generation *g, uint32_t rows)
{
    for (uint32_t i = 0; g->o->all_logits && g->o->logits && i < rows; i++) {
        int err = g->o->logits(g->o->arg, k3_logits(g->k, i));
        if (err)
            return why_set(g->why, err, "the logits could not be written");
    }
    return 0;
}

static uint32_t pick(struct generation *g, uint32_t logit_row,
                     uint32_t position)
{
    return sample(k3_logits(g->k, logit_row), k3_config(g->k)->vocab,
                  &g->o->sample, 0, position, g->scratch);
}

static uint64_t chunks(const struct generation *g, uint32_t from)
{
    uint32_t rows = k3_rows(g->k);
    return (g->o->prompt_count - from + rows - 1) / rows;
}

static int prefill(struct generation *g, uint32_t *next)
{
    const struct generate_options *o = g->o;
    while (g->position < o->prompt_count) {
        uint32_t n = o->prompt_count - g->position;
        n = n < k3_rows(g->k) ? n : k3_rows(g->k);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = g->position + i;
            g->row[i] = (struct k3_row){
                .position = at, .id = o->prompt[at], .phase = K3_PREFILL,
                .logits = o->all_logits || at + 1 == o->prompt_count };
        }
        k3_allow(g->k, chunks(g, g->position) + o->most - 1);
        int err = k3_pass(g->k, g->row, n, g->why);
        if (!err)
            err = hand_logits(g, n);
        if (err)
            return err;
        g->position += n;
        *next = pick(g, o->all_logits ? n - 1 : 0, g->position);
    }
    return 0;
}

/* Take an id; false when it ends the text. */
static bool take(struct generation *g, uint32_t id)
{
    const struct generate_options *o = g->o;
    if (!o->ignore_end && o->is_end && o->is_end(o->is_end_arg, id)) {
        g->result->ended = true;
        return false;
    }
    g->result->ids[g->result->count++] = id;
    if (o->token)
        o->token(o->arg, id);
    return true;
}

static int decode(struct generation *g, uint32_t id)
{
    while (take(g, id) && g->result->count < g->o->most) {
        g->row[0] = (struct k3_row){ .position = g->position, .id = id,
                                     .phase = K3_DECODE, .logits = true };
        k3_allow(g->k, g->o->most - g->result->count);
        int err = k3_pass(g->k, g->row, 1, g->why);
        if (!err)
            err = hand_logits(g, 1);
        if (err)
            return err;
        g->position++;
        id = pick(g, 0, g->position);
    }
    return 0;
}

int generate(struct k3 *k, const struct generate_options *o,
             struct generate_result *result, struct why *why)
{
    struct generation g = { .k = k, .o = o, .result = result, .why = why };
    const struct config *c = k3_config(k);
    result->count = 0;
    result->ended = false;
    result->drafted = result->accepted = 0;
    if (!o->prompt_count)
        return why_set(why, -EINVAL, "the prompt is empty");
    for (uint32_t i = 0; i < o->prompt_count; i++)
        if (o->prompt[i] >= c->vocab)
            return why_set(why, -EINVAL, "token id %" PRIu32 " is out of range"
                           ", the vocabulary has %" PRIu32, o->prompt[i],
                           c->vocab);
    if (!o->most)
        return 0;
    g.row = calloc(k3_rows(k), sizeof *g.row);
    g.scratch = malloc((size_t)c->vocab * 16);
    uint32_t next = 0;
    int err = g.row && g.scratch ? 0 : -ENOMEM;
    if (err)
        why_set(why, err, "no memory for the rows of a pass");
    if (!err)
        err = prefill(&g, &next);
    if (!err)
        err = decode(&g, next);
    free(g.row);
    free(g.scratch);
    return err;
}

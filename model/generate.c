#include "model/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct generation {
    struct k3 *k;
    const struct generate_options *o;
    struct generate_result *result;
    struct why *why;
    struct k3_row *row;
    void *scratch; /* of the sampler */
    uint32_t position; /* of the next row */
    uint32_t *text; /* prompt and new ids; NULL without drafts */
    uint32_t most;  /* draft rows a pass */
    struct draft draft;
    struct draft_cost cost;
};

static int hand_logits(struct generation *g, uint32_t row)
{
    if (!g->o->all_logits || !g->o->logits)
        return 0;
    int err = g->o->logits(g->o->arg, k3_logits(g->k, row));
    return err ? why_set(g->why, err, "the logits could not be written") : 0;
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

/* Passes that so many ids more take if every draft comes true. */
static uint64_t fewest(const struct generation *g, uint64_t ids)
{
    return (ids + g->most) / (1 + g->most);
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
        k3_allow(g->k, chunks(g, g->position) +
                           fewest(g, o->most ? o->most - 1 : 0));
        int err = k3_pass(g->k, g->row, n, g->why);
        for (uint32_t i = 0; i < n && !err; i++)
            err = hand_logits(g, i);
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
    if (g->text)
        g->text[g->position] = id;
    if (!o->ignore_end && o->is_end && o->is_end(o->is_end_arg, id)) {
        g->result->ended = true;
        return false;
    }
    g->result->ids[g->result->count++] = id;
    if (o->token)
        o->token(o->arg, id);
    return true;
}

/* Draft rows for the next pass, of `left` ids that are still wanted. */
static uint32_t draft_width(struct generation *g, uint32_t left)
{
    uint32_t most = g->most < left - 1 ? g->most : left - 1;
    if (!most)
        return 0;
    draft_look(&g->draft, g->text, g->position + 1);
    struct draft_ask ask = { .draft = &g->draft, .most = most };
    if (!g->o->draft.adaptive)
        return g->draft.match ? most : 0;
    draft_spread(&g->cost, &ask, 1, 1, most);
    return ask.width;
}

/* After a pass over one row and `width` drafts: take what is sampled, until a
 * draft turns out wrong. */
static int judge(struct generation *g, uint32_t width, bool *going)
{
    uint32_t accepted = 0;
    for (uint32_t i = 0;; i++) {
        int err = hand_logits(g, i);
        if (err)
            return err;
        g->position++;
        uint32_t id = pick(g, i, g->position);
        bool right = i < width && id == g->row[i + 1].id;
        accepted += right;
        *going = take(g, id);
        if (!right || !*going)
            break;
    }
    if (width)
        k3_accept(g->k, 0, accepted);
    if (g->text)
        draft_learn(&g->draft, g->text, g->position + 1);
    g->result->drafted += width;
    g->result->accepted += accepted;
    return 0;
}

static int decode(struct generation *g, uint32_t id)
{
    bool going = take(g, id);
    while (going && g->result->count < g->o->most) {
        uint32_t left = g->o->most - g->result->count;
        uint32_t width = draft_width(g, left);
        for (uint32_t i = 0; i <= width; i++)
            g->row[i] = (struct k3_row){
                .position = g->position + i, .phase = K3_DECODE,
                .logits = true, .draft = i > 0,
                .id = i ? draft_guess(&g->draft, g->text, i - 1)
                        : g->result->ids[g->result->count - 1] };
        k3_allow(g->k, 1 + fewest(g, left - width - 1));
        int err = k3_pass(g->k, g->row, width + 1, g->why);
        if (err)
            return err;
        draft_cost_add(&g->cost, k3_last(g->k));
        err = judge(g, width, &going);
        if (err)
            return err;
    }
    return 0;
}

static int check_prompt(struct k3 *k, const struct generate_options *o,
                        struct why *why)
{
    const struct config *c = k3_config(k);
    if (!o->prompt_count)
        return why_set(why, -EINVAL, "the prompt is empty");
    for (uint32_t i = 0; i < o->prompt_count; i++)
        if (o->prompt[i] >= c->vocab)
            return why_set(why, -EINVAL, "token id %" PRIu32 " is out of range"
                           ", the vocabulary has %" PRIu32, o->prompt[i],
                           c->vocab);
    return 0;
}

static int set_up(struct generation *g)
{
    const struct generate_options *o = g->o;
    g->row = calloc(k3_rows(g->k), sizeof *g->row);
    g->scratch = malloc((size_t)k3_config(g->k)->vocab * 16);
    g->most = o->draft.most < k3_drafts(g->k) ? o->draft.most
                                              : k3_drafts(g->k);
    if (g->most > k3_rows(g->k) - 1)
        g->most = k3_rows(g->k) - 1;
    if (g->most) {
        g->text = malloc(((size_t)o->prompt_count + o->most) *
                         sizeof *g->text);
        if (g->text)
            memcpy(g->text, o->prompt, o->prompt_count * sizeof *g->text);
        draft_init(&g->draft);
        draft_cost_init(&g->cost, draft_weights_share(g->k));
    }
    if (g->row && g->scratch && (g->text || !g->most))
        return 0;
    return why_set(g->why, -ENOMEM, "no memory for the rows of a pass");
}

int generate(struct k3 *k, const struct generate_options *o,
             struct generate_result *result, struct why *why)
{
    struct generation g = { .k = k, .o = o, .result = result, .why = why };
    result->count = 0;
    result->ended = false;
    result->drafted = result->accepted = 0;
    int err = check_prompt(k, o, why);
    if (err)
        return err;
    uint32_t next = 0;
    err = set_up(&g);
    if (!err)
        err = prefill(&g, &next);
    if (!err && o->most)
        err = decode(&g, next);
    free(g.row);
    free(g.scratch);
    free(g.text);
    return err;
}

#include "model/decode/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct generation {
    const struct generate_options *o;
    struct generate_result *result;
    struct batch_request request;
    bool taken;
    int  logits_error;
};

static bool next(void *arg, struct batch_request *out)
{
    struct generation *g = arg;
    *out = g->request;
    bool first = !g->taken;
    g->taken = true;
    return first;
}

static bool is_end(void *arg, uint32_t id)
{
    struct generation *g = arg;
    return g->o->is_end && g->o->is_end(g->o->is_end_arg, id);
}

static bool logits(void *arg, uint64_t tag, const float *row)
{
    struct generation *g = arg;
    (void)tag;
    g->logits_error = g->o->logits(g->o->arg, row);
    return g->logits_error;
}

static void finished(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason)
{
    struct generation *g = arg;
    (void)tag;
    g->result->count = count;
    g->result->ended = reason == BATCH_END;
}

int generate(struct k3 *k, const struct generate_options *o,
             struct generate_result *result, struct error *error)
{
    struct generation g = {
        .o = o, .result = result,
        .request = { .prompt_count = o->prompt_count, .max = o->max,
                     .sample = o->sample, .ignore_end = o->ignore_end,
                     .logits = o->logits } };
    struct batch_options bo = { .sequences = 1, .draft = o->draft,
                                .next = next, .is_end = is_end,
                                .logits = logits, .finished = finished,
                                .arg = &g };
    size_t room = (size_t)o->prompt_count + o->max + 1;
    struct batch *b = NULL;
    result->count = 0;
    result->ended = false;
    result->drafted = result->accepted = 0;
    uint32_t *ids = malloc(room * sizeof *ids);
    if (!ids)
        return error_set(error, -ENOMEM, "no memory for the ids");
    memcpy(ids, o->prompt, o->prompt_count * sizeof *ids);
    g.request.ids = ids;
    int err = batch_check(k, &g.request, error);
    if (!err)
        err = batch_open(&b, k, &bo, error);
    int step = err ? 0 : 1;
    while (step > 0)
        step = batch_step(b, error);
    err = step < 0 ? step : err;
    if (!err && g.logits_error)
        err = error_set(error, g.logits_error,
                        "the logits could not be written");
    if (b) {
        result->drafted = batch_counts(b)->drafted;
        result->accepted = batch_counts(b)->accepted;
    }
    if (result->count)
        memcpy(result->ids, ids + o->prompt_count,
               result->count * sizeof *ids);
    batch_close(b);
    free(ids);
    return err;
}

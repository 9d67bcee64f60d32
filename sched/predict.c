#include "sched/predict.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/predictor.h"

static const struct predictor predictor_none = {
    .name = "none",
    .about = "no guesses",
};

/* Its names come from predict_supply. */
static const struct predictor predictor_gate = {
    .name = "gate",
    .about = "the next layer's router on this layer's residual stream",
};

static const struct predictor *const predictors[] = {
    &predictor_gate, &predictor_path, &predictor_table,
    &predictor_ema,  &predictor_prev, &predictor_none,
};

#define PREDICTORS (sizeof predictors / sizeof *predictors)

struct row_count {
    uint32_t step, layer, rows;
};

struct predict {
    const struct predictor *kind;
    void *state;
    struct predict_shape shape;
    struct row_count *count; /* [sequences] rows seen of a step and layer */
    predict_gate_fn *gate;
    void *gate_arg;
};

const char *predict_name(uint32_t i, const char **about)
{
    if (i >= PREDICTORS)
        return NULL;
    if (about)
        *about = predictors[i]->about;
    return predictors[i]->name;
}

int predict_open(struct predict **out, const char *name, uint32_t layers,
                 uint32_t experts, uint32_t top_k, uint32_t sequences)
{
    const struct predictor *kind = NULL;
    *out = NULL;
    for (size_t i = 0; i < PREDICTORS; i++)
        if (!strcmp(predictors[i]->name, name))
            kind = predictors[i];
    if (!kind || !layers || !experts || !top_k || !sequences ||
        top_k > experts || experts > UINT16_MAX)
        return -EINVAL;
    struct predict *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->kind = kind;
    p->shape = (struct predict_shape){ layers, experts, top_k, sequences };
    p->count = calloc(sequences, sizeof *p->count);
    int error = p->count ? 0 : -ENOMEM;
    if (!error && kind->open)
        error = kind->open(&p->state, &p->shape);
    if (error) {
        predict_close(p);
        return error;
    }
    *out = p;
    return 0;
}

void predict_close(struct predict *p)
{
    if (!p)
        return;
    if (p->state)
        p->kind->close(p->state);
    free(p->count);
    free(p);
}

void predict_supply(struct predict *p, predict_gate_fn *gate, void *arg)
{
    p->gate = gate;
    p->gate_arg = arg;
}

void predict_saw(struct predict *p, uint32_t sequence, uint32_t step,
                 uint32_t layer, const uint32_t *ids, uint32_t k)
{
    assert(sequence < p->shape.sequences);
    assert(layer < p->shape.layers);
    assert(k <= p->shape.top_k);
    if (!p->kind->saw)
        return;
    struct row_count *count = &p->count[sequence];
    if (count->step != step || count->layer != layer)
        *count = (struct row_count){ step, layer, 0 };
    struct predict_seen seen = { sequence, step, layer, count->rows++,
                                 ids,      k };
    p->kind->saw(p->state, &seen);
}

uint32_t predict_next(struct predict *p, uint32_t sequence, uint32_t layer,
                      uint32_t *ids, float *confidence, uint32_t most)
{
    assert(sequence < p->shape.sequences);
    assert(layer < p->shape.layers);
    struct predict_names out = { ids, confidence, most };
    if (p->kind == &predictor_gate && p->gate)
        return p->gate(p->gate_arg, sequence, layer, ids, confidence, most);
    if (!p->kind->next || !most)
        return 0;
    return p->kind->next(p->state, sequence, layer, &out);
}

void predict_forget(struct predict *p, uint32_t sequence)
{
    assert(sequence < p->shape.sequences);
    p->count[sequence] = (struct row_count){ 0, 0, 0 };
    if (p->kind->forget)
        p->kind->forget(p->state, sequence);
}

uint32_t predict_best(const float *score, uint32_t experts, float scale,
                      const struct predict_names *out)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < experts; e++) {
        if (!(score[e] > 0) ||
            (n == out->most && !(score[e] > out->confidence[n - 1])))
            continue;
        uint32_t i = n < out->most ? n++ : n - 1;
        for (; i > 0 && out->confidence[i - 1] < score[e]; i--) {
            out->confidence[i] = out->confidence[i - 1];
            out->ids[i] = out->ids[i - 1];
        }
        out->confidence[i] = score[e];
        out->ids[i] = e;
    }
    for (uint32_t i = 0; i < n; i++) {
        float c = out->confidence[i] * scale;
        out->confidence[i] = c < 1 ? c : 1;
    }
    return n;
}

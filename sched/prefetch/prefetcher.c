#include "sched/prefetch/prefetcher.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/prefetch/method.h"

static const struct prefetch_method prefetch_none = {
    .name = "none",
    .about = "prefetch no experts",
};

/* Its names come from prefetcher_set_gate. */
static const struct prefetch_method prefetch_gate = {
    .name = "gate",
    .about = "ask the next layer's router early, on this layer's residual",
};

static const struct prefetch_method *const prefetch_methods[] = {
    &prefetch_gate, &prefetch_path, &prefetch_table,
    &prefetch_ema,  &prefetch_prev, &prefetch_none,
};

#define METHODS (sizeof prefetch_methods / sizeof *prefetch_methods)

struct row_count {
    uint32_t step, layer, rows;
};

struct prefetcher {
    const struct prefetch_method *kind;
    void *state;
    struct prefetch_shape shape;
    struct row_count *count; /* [sequences] rows seen of a step and layer */
    prefetch_gate_fn *gate;
    void *gate_arg;
};

const char *prefetcher_name(uint32_t i, const char **about)
{
    if (i >= METHODS)
        return NULL;
    if (about)
        *about = prefetch_methods[i]->about;
    return prefetch_methods[i]->name;
}

int prefetcher_open(struct prefetcher **out, const char *name, uint32_t layers,
                    uint32_t experts, uint32_t top_k, uint32_t sequences)
{
    const struct prefetch_method *kind = NULL;
    *out = NULL;
    for (size_t i = 0; i < METHODS; i++)
        if (!strcmp(prefetch_methods[i]->name, name))
            kind = prefetch_methods[i];
    if (!kind || !layers || !experts || !top_k || !sequences ||
        top_k > experts || experts > UINT16_MAX)
        return -EINVAL;
    struct prefetcher *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->kind = kind;
    p->shape = (struct prefetch_shape){ layers, experts, top_k, sequences };
    p->count = calloc(sequences, sizeof *p->count);
    int error = p->count ? 0 : -ENOMEM;
    if (!error && kind->open)
        error = kind->open(&p->state, &p->shape);
    if (error) {
        prefetcher_close(p);
        return error;
    }
    *out = p;
    return 0;
}

void prefetcher_close(struct prefetcher *p)
{
    if (!p)
        return;
    if (p->state)
        p->kind->close(p->state);
    free(p->count);
    free(p);
}

void prefetcher_set_gate(struct prefetcher *p, prefetch_gate_fn *gate,
                         void *arg)
{
    p->gate = gate;
    p->gate_arg = arg;
}

void prefetcher_saw(struct prefetcher *p, uint32_t sequence, uint32_t step,
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
    struct prefetch_seen seen = {
        sequence, step, layer, count->rows++, ids, k
    };
    p->kind->saw(p->state, &seen);
}

uint32_t prefetcher_next(struct prefetcher *p, uint32_t sequence,
                         uint32_t layer, uint32_t *ids, float *confidence,
                         uint32_t max)
{
    assert(sequence < p->shape.sequences);
    assert(layer < p->shape.layers);
    struct prefetch_names out = { ids, confidence, max };
    if (p->kind == &prefetch_gate && p->gate)
        return p->gate(p->gate_arg, sequence, layer, ids, confidence, max);
    if (!p->kind->next || !max)
        return 0;
    return p->kind->next(p->state, sequence, layer, &out);
}

void prefetcher_forget(struct prefetcher *p, uint32_t sequence)
{
    assert(sequence < p->shape.sequences);
    p->count[sequence] = (struct row_count){ 0, 0, 0 };
    if (p->kind->forget)
        p->kind->forget(p->state, sequence);
}

uint32_t prefetch_best(const float *score, uint32_t experts, float scale,
                       const struct prefetch_names *out)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < experts; e++) {
        if (!(score[e] > 0) ||
            (n == out->max && !(score[e] > out->confidence[n - 1])))
            continue;
        uint32_t i = n < out->max ? n++ : n - 1;
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

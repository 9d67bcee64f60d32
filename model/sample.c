#include "model/sample.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double   weight;
    uint32_t id;
};

uint32_t sample_greedy(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The finaliser of splitmix64: every bit of the input moves every bit of the
 * output. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

double sample_number(uint64_t seed, uint64_t sequence, uint64_t position)
{
    const uint64_t golden = 0x9e3779b97f4a7c15ull;
    uint64_t z = mix(seed + golden);
    z = mix(z + sequence * golden + 1);
    z = mix(z + position * golden + 1);
    return (double)(z >> 11) * 0x1p-53;
}

static int likelier(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

uint32_t sample(const float *logits, uint32_t vocab,
                const struct sample_options *o, uint64_t sequence,
                uint64_t position, void *scratch)
{
    uint32_t best = sample_greedy(logits, vocab);
    if (o->temperature <= 0)
        return best;
    struct candidate *list = scratch;
    double total = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        double w = exp(((double)logits[i] - (double)logits[best]) /
                       o->temperature);
        list[i] = (struct candidate){ w, i };
        total += w;
    }
    uint32_t kept = vocab;
    if (o->top_p < 1) {
        qsort(list, vocab, sizeof *list, likelier);
        double sum = 0;
        for (kept = 0; kept < vocab && (!kept || sum < o->top_p * total);)
            sum += list[kept++].weight;
        total = sum;
    }
    double at = sample_number(o->seed, sequence, position) * total;
    for (uint32_t i = 0; i < kept; i++) {
        at -= list[i].weight;
        if (at < 0)
            return list[i].id;
    }
    return list[kept - 1].id;
}

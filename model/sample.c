#include "model/sample.h"

#include <math.h>
#include <stdbool.h>

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

static bool likelier(const struct candidate *x, const struct candidate *y)
{
    return x->weight > y->weight ||
           (x->weight == y->weight && x->id < y->id);
}

/* Let list[at] sink to its place in a heap of n, the likeliest on top. */
static void sink(struct candidate *list, uint32_t n, uint32_t at)
{
    struct candidate c = list[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && likelier(&list[child + 1], &list[child]);
        if (!likelier(&list[child], &c))
            break;
        list[at] = list[child];
    }
    list[at] = c;
}

/* Move the likeliest to the end of the list, the first of them last, until
 * their sum reaches `enough`. Returns how many; *sum is theirs. qsort would
 * allocate, and sort what is not wanted. */
static uint32_t take_likeliest(struct candidate *list, uint32_t n,
                               double enough, double *sum)
{
    uint32_t left = n;
    for (uint32_t i = n / 2; i-- > 0;)
        sink(list, n, i);
    *sum = 0;
    while (left && (left == n || *sum < enough)) {
        struct candidate top = list[0];
        list[0] = list[--left];
        sink(list, left, 0);
        list[left] = top;
        *sum += top.weight;
    }
    return n - left;
}

/* The id at `at` of the weights laid end to end, list[0], list[step], ... */
static uint32_t choose(const struct candidate *list, uint32_t n, int step,
                       double at)
{
    uint32_t i = 0;
    for (; i < n - 1; i++, list += step) {
        at -= list->weight;
        if (at < 0)
            break;
    }
    return list->id;
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
    double number = sample_number(o->seed, sequence, position);
    if (o->top_p >= 1)
        return choose(list, vocab, 1, number * total);
    uint32_t kept =
        take_likeliest(list, vocab, o->top_p * total, &total);
    return choose(list + vocab - 1, kept, -1, number * total);
}

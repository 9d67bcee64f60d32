#include "model/decode/sample.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

struct candidate {
    double   weight;
    uint32_t id;
};
_Static_assert(sizeof(struct candidate) + sizeof(float) == SAMPLE_ID_BYTES,
               "sample.h");

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
 * their sum reaches `enough` or they are `max`. Returns how many; *sum is
 * theirs. qsort would allocate, and sort what is not wanted. */
static uint32_t take_likeliest(struct candidate *list, uint32_t n,
                               uint32_t max, double enough, double *sum)
{
    uint32_t left = n;
    for (uint32_t i = n / 2; i-- > 0;)
        sink(list, n, i);
    *sum = 0;
    while (left && (left == n || *sum < enough) && n - left < max) {
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

static bool adjusts(const struct sample_options *o)
{
    return o->biases || o->presence != 0 || o->frequency != 0 ||
           (o->repetition != 0 && o->repetition != 1);
}

static bool allowed(const uint64_t *mask, uint32_t id)
{
    return !mask || mask[id / 64] >> id % 64 & 1;
}

/* `count` holds how often each id came: in the prompt, and 65,536 for each time
 * among the new ones, so that an id is penalised once. */
static void penalise(float *out, uint32_t vocab, const struct sample_options *o,
                     const struct sample_context *c, uint32_t *count)
{
    double r = o->repetition != 0 ? o->repetition : 1;
    memset(count, 0, vocab * sizeof *count);
    for (uint32_t i = 0; i < c->prompt + c->fresh; i++) {
        uint32_t id = c->ids[i];
        bool first = !count[id];
        count[id] += i < c->prompt ? 1u : 1u << 16;
        if (first && out[id] > 0)
            out[id] = (float)(out[id] / r);
        else if (first)
            out[id] = (float)(out[id] * r);
    }
    for (uint32_t i = c->prompt; i < c->prompt + c->fresh; i++) {
        uint32_t id = c->ids[i], times = count[id] >> 16;
        if (times)
            out[id] = (float)(out[id] - o->frequency * times - o->presence);
        count[id] &= 0xffff;
    }
}

/* The logits with everything that changes them. `count` is [vocab]. */
static void adjust(float *out, const float *logits, uint32_t vocab,
                   const struct sample_options *o,
                   const struct sample_context *c, uint32_t *count)
{
    memcpy(out, logits, vocab * sizeof *out);
    for (uint32_t i = 0; i < o->biases; i++)
        out[o->bias[i].id] += o->bias[i].add;
    penalise(out, vocab, o, c, count);
}

static uint32_t best_allowed(const float *logits, uint32_t vocab,
                             const uint64_t *mask)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < vocab; i++)
        if (allowed(mask, i) &&
            (best == UINT32_MAX || logits[i] > logits[best]))
            best = i;
    return best == UINT32_MAX ? 0 : best;
}

uint32_t sample(const float *logits, uint32_t vocab,
                const struct sample_options *o,
                const struct sample_context *c, uint64_t sequence,
                uint64_t position, void *scratch)
{
    struct candidate *list = scratch;
    if (adjusts(o)) {
        float *own = (float *)(void *)(list + vocab);
        adjust(own, logits, vocab, o, c, scratch);
        logits = own;
    }
    uint32_t best = c->mask ? best_allowed(logits, vocab, c->mask)
                            : sample_greedy(logits, vocab);
    if (o->temperature <= 0)
        return best;
    double total = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        if (!allowed(c->mask, i))
            continue;
        double w = exp(((double)logits[i] - (double)logits[best]) /
                       o->temperature);
        if (w < o->min_p)
            continue;
        list[n++] = (struct candidate){ w, i };
        total += w;
    }
    double number = sample_number(o->seed, sequence, position);
    if (o->top_p >= 1 && (!o->top_k || o->top_k >= n))
        return choose(list, n, 1, number * total);
    if (o->top_k && o->top_k < n) { /* the share is of these */
        uint32_t kept = take_likeliest(list, n, o->top_k, INFINITY, &total);
        memmove(list, list + n - kept, kept * sizeof *list);
        n = kept;
    }
    uint32_t kept = take_likeliest(list, n, n, o->top_p * total, &total);
    return choose(list + n - 1, kept, -1, number * total);
}

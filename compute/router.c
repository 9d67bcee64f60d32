#include "compute/router.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/kern.h"

bool router_scores(const struct kern *kern, float *s, const void *w_bf16,
                   const float *x, size_t cols, size_t begin, size_t end)
{
    assert(begin <= end);
    return kern->router_scores(s, w_bf16, x, cols, begin, end);
}

static float biased(const float *s, const void *bias_f32, size_t e)
{
    float bias;
    memcpy(&bias, (const char *)bias_f32 + e * sizeof bias, sizeof bias);
    float sum = s[e] + bias;
    return isnan(sum) ? -INFINITY : sum;
}

void router_select(uint32_t *ids, float *weights, const float *s,
                   const void *bias_f32, size_t experts, size_t k,
                   bool renormalize, float scaling)
{
    assert(k >= 1 && k <= experts);
    size_t held = 0;
    /* While choosing, weights[] holds the biased scores, best first. A new one
     * goes behind its equals: they have lower indices. */
    for (size_t e = 0; e < experts; e++) {
        float score = biased(s, bias_f32, e);
        if (held == k && !(score > weights[k - 1]))
            continue;
        size_t at = held < k ? held++ : k - 1;
        for (; at > 0 && score > weights[at - 1]; at--) {
            weights[at] = weights[at - 1];
            ids[at] = ids[at - 1];
        }
        weights[at] = score;
        ids[at] = (uint32_t)e;
    }
    double sum = 0.0;
    for (size_t i = 0; i < k; i++)
        sum += (double)s[ids[i]];
    for (size_t i = 0; i < k; i++) {
        double weight = (double)s[ids[i]];
        if (renormalize)
            weight /= sum + 1e-20;
        weights[i] = (float)(weight * (double)scaling);
    }
}

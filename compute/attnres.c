#include "compute/attnres.h"

#include <assert.h>
#include <math.h>

#include "compute/kern.h"
#include "compute/vmath.h"

bool attn_mix(const struct kern *kern, float *h, const float *const *sources,
              unsigned n, const void *norm_bf16, const void *proj_bf16,
              size_t width, float eps)
{
    assert(n >= 1 && n <= ATTN_SOURCES_MAX);
    assert(width >= 1);
    double score[ATTN_SOURCES_MAX], max = -INFINITY, sum = 0.0;
    float prob[ATTN_SOURCES_MAX];
    for (unsigned s = 0; s < n; s++) {
        double mean = kern->sum_squares(sources[s], width) / (double)width;
        double dot = kern->attn_dot(sources[s], norm_bf16, proj_bf16, width);
        score[s] = dot / sqrt(mean + (double)eps);
        if (score[s] > max)
            max = score[s];
    }
    for (unsigned s = 0; s < n; s++) {
        prob[s] = vmath_exp1((float)(score[s] - max));
        sum += (double)prob[s];
    }
    for (unsigned s = 0; s < n; s++)
        prob[s] = (float)((double)prob[s] / sum);
    return kern->attn_sum(h, sources, prob, n, width);
}

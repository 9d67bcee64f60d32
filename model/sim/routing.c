#include "model/sim/routing.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct routing {
    uint32_t experts, top_k;
    uint64_t random;
    float    row_scale; /* of what a row adds */
    float   *score;     /* [top_k] of the best so far, descending */
    float   *fixed;     /* [moe layers][experts] */
};

/* The sum of eight random bytes, less its mean: normal, nearly. */
static float normal(struct routing *r)
{
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff);
    uint64_t x = r->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    r->random = x;
    x *= UINT64_C(0x2545f4914f6cdd1d);
    x = (x & even) + (x >> 8 & even);
    x = x * UINT64_C(0x0001000100010001) >> 48;
    return ((float)(int32_t)x - 1020.0f) / 209.0f;
}

int routing_open(struct routing **out, const struct config *c)
{
    *out = NULL;
    struct routing *r = calloc(1, sizeof *r);
    size_t n = (size_t)config_moe_layers(c) * c->experts;
    if (!r)
        return -ENOMEM;
    r->experts = c->experts;
    r->top_k = c->top_k;
    r->random = 1;
    r->row_scale = (float)sqrt(1 - ROUTING_FIXED_SHARE);
    r->score = calloc(c->top_k + 1, sizeof *r->score);
    r->fixed = calloc(n + 1, sizeof *r->fixed);
    if (!r->score || !r->fixed) {
        routing_close(r);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        r->fixed[i] = (float)sqrt(ROUTING_FIXED_SHARE) * normal(r);
    *out = r;
    return 0;
}

void routing_close(struct routing *r)
{
    if (!r)
        return;
    free(r->score);
    free(r->fixed);
    free(r);
}

void routing_choose(struct routing *r, uint32_t m, uint32_t *ids)
{
    const float *fixed = r->fixed + (size_t)m * r->experts;
    uint32_t n = 0;
    for (uint32_t e = 0; e < r->experts; e++) {
        float score = fixed[e] + r->row_scale * normal(r);
        if (n == r->top_k && score <= r->score[n - 1])
            continue;
        uint32_t at = n < r->top_k ? n++ : n - 1;
        for (; at > 0 && r->score[at - 1] < score; at--) {
            r->score[at] = r->score[at - 1];
            ids[at] = ids[at - 1];
        }
        r->score[at] = score;
        ids[at] = e;
    }
}

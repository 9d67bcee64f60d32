#include "model/dspark/rope.h"

#include <math.h>
#include <string.h>

/* The pair that turns `turns` times over the original context. */
static double pair_of(const struct dspark_rope *r, double dim, double turns)
{
    return dim * log(r->original / (2 * M_PI * turns)) / (2 * log(r->theta));
}

static double magnitude(double factor, double scale)
{
    return factor > 1 ? 0.1 * scale * log(factor) + 1 : 1;
}

static void yarn(struct rope *out, const struct dspark_rope *r, double dim)
{
    double low = floor(pair_of(r, dim, r->beta_fast));
    double high = ceil(pair_of(r, dim, r->beta_slow));
    low = low > 0 ? low : 0;
    high = high < dim - 1 ? high : dim - 1;
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < out->half; i++) {
        double g = (i - low) / (high - low);
        g = g < 0 ? 0 : g > 1 ? 1 : g;
        out->inv[i] = out->inv[i] * (1 - g) + out->inv[i] / r->factor * g;
    }
}

void rope_init(struct rope *out, const struct dspark_config *c)
{
    const struct dspark_rope *r = &c->rotation;
    uint32_t dim = dspark_rotated(c);
    bool mla = c->kind == DSPARK_MLA;
    double scale = 1 / sqrt(mla ? c->nope + c->rope : c->head_dim);
    memset(out, 0, sizeof *out);
    out->half = dim / 2;
    out->mag = 1;
    for (uint32_t i = 0; i < out->half; i++)
        out->inv[i] = pow(r->theta, -2.0 * i / dim);
    if (r->yarn) {
        yarn(out, r, dim);
        if (r->attention_factor > 0)
            out->mag = r->attention_factor;
        else if (r->mscale > 0 && r->mscale_all > 0)
            out->mag = magnitude(r->factor, r->mscale) /
                       magnitude(r->factor, r->mscale_all);
        else
            out->mag = magnitude(r->factor, 1);
        if (mla && r->mscale_all > 0) {
            double m = magnitude(r->factor, r->mscale_all);
            scale *= m * m;
        }
    }
    out->score_scale = (float)scale;
}

void rope_at(const struct rope *r, uint32_t position, float *out)
{
    for (uint32_t i = 0; i < r->half; i++) {
        double angle = position * r->inv[i];
        out[i] = (float)(cos(angle) * r->mag);
        out[r->half + i] = (float)(sin(angle) * r->mag);
    }
}

static void turn(float *a, float *b, float cos, float sin)
{
    float x = *a, y = *b;
    *a = x * cos - y * sin;
    *b = y * cos + x * sin;
}

void rope_halves(const struct rope *r, float *x, const float *at)
{
    for (uint32_t i = 0; i < r->half; i++)
        turn(&x[i], &x[r->half + i], at[i], at[r->half + i]);
}

void rope_neighbours(const struct rope *r, float *x, const float *at)
{
    for (uint32_t i = 0; i < r->half; i++)
        turn(&x[2 * i], &x[2 * i + 1], at[i], at[r->half + i]);
}

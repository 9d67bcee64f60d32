#include "model/forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3_limits.h"
#include "model/tensors.h"

/* Of the variance of an expert's score, the part that it has in every text. */
static const double fixed_share = 0.31;
static const double close_enough = 0.98;

enum { STEPS = 256 };

/* The chance that a standard normal is above x. */
static double above(double x)
{
    return 0.5 * erfc(x / sqrt(2));
}

static double above_inverse(double p)
{
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        double x = (low + high) / 2;
        *(above(x) > p ? &low : &high) = x;
    }
    return low;
}

/* An expert of popularity b is chosen by a row with the chance that
 * sqrt(fixed) b + sqrt(1 - fixed) z, z normal, is above a threshold; over all
 * experts the chances add up to top_k. */
double forecast_distinct(uint32_t experts, uint32_t top_k, double rows,
                         double kept)
{
    double threshold = above_inverse((double)top_k / experts);
    double end = kept > 0 ? above_inverse(kept) : 8, begin = -8, sum = 0;
    if (top_k >= experts)
        return experts * (1 - kept);
    if (kept >= 1)
        return 0;
    double step = (end - begin) / STEPS;
    for (int i = 0; i < STEPS; i++) {
        double b = begin + (i + 0.5) * step;
        double chance = above((threshold - sqrt(fixed_share) * b) /
                              sqrt(1 - fixed_share));
        double density = exp(-b * b / 2) / sqrt(2 * M_PI);
        sum += density * step * (1 - pow(1 - chance, rows));
    }
    return experts * sum;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

static void estimate(struct forecast *f, const struct k3_shape *s,
                     const struct config *c, const struct forecast_options *o)
{
    const struct forecast_machine *m = &o->machine;
    const struct plan *p = &f->plan;
    double layers = config_moe_layers(c), each = (double)expert_bytes(c);
    double rows = f->sequences, all, kept = 0;
    double trunk = (double)(p->streamed_payload_bytes +
                            p->resident_payload_bytes);
    if (o->hits && layers > 0)
        kept = p->expert_frames / (layers * c->experts);
    f->distinct = forecast_distinct(c->experts, c->top_k, rows, kept);
    all = forecast_distinct(c->experts, c->top_k, rows, 0);
    f->trunk_bytes = (double)p->streamed_payload_bytes;
    f->expert_bytes = f->distinct * layers * each;
    double read = f->trunk_bytes + f->expert_bytes + rows * 2 * c->hidden;
    f->io_s = read / m->drive_bytes;
    /* 4.25 bits a weight of an expert, 16 of the trunk */
    double expert_ops = 2 * rows * c->top_k * layers * each * 8 / 4.25;
    f->compute_s =
        longer(trunk / m->trunk_bytes, trunk * rows / m->trunk_ops) +
        longer(all * layers * each / m->expert_bytes,
               expert_ops / m->expert_ops) +
        rows * 2 * (double)s->state.kda_bytes * s->state.kda_layers /
            m->trunk_bytes;
    f->pass_s = longer(f->io_s, f->compute_s);
    f->ids_per_s = rows / f->pass_s;
    f->bytes_per_id = read / rows;
}

struct k3_options forecast_session(const struct forecast_options *f,
                                   uint32_t n)
{
    struct k3_options o = f->o;
    uint64_t rows = (uint64_t)n * (1 + f->drafts);
    o.sequences = n;
    if (!o.rows)
        o.rows = (uint32_t)(rows > n + f->prompt_rows ? rows
                                                      : n + f->prompt_rows);
    o.rows = o.rows < K3_ROWS_MAX ? o.rows : K3_ROWS_MAX;
    o.drafts = n * f->drafts < o.rows - 1 ? n * f->drafts : o.rows - 1;
    o.logits = n;
    o.heap_bytes += n * f->sequence_heap;
    return o;
}

int forecast_curve(struct forecast *curve, uint32_t n, struct k3_shape *shape,
                   const struct config *c, const struct forecast_options *f)
{
    for (uint32_t i = 0; i < n; i++) {
        struct k3_options o = forecast_session(f, i + 1);
        k3_option_defaults(&o);
        curve[i] = (struct forecast){ .sequences = i + 1 };
        int err = k3_shape_plan(shape, c, &o, f->machine.threads);
        if (err && err != -ENOBUFS)
            return err;
        curve[i].plan = shape->plan;
        curve[i].fits = !err && shape->plan.rows >= i + 1;
        if (curve[i].fits)
            estimate(&curve[i], shape, c, f);
    }
    return 0;
}

uint32_t forecast_best(const struct forecast *curve, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (curve[i].fits &&
            (best == n || curve[i].ids_per_s > curve[best].ids_per_s))
            best = i;
    double least = best < n ? close_enough * curve[best].ids_per_s : 0;
    for (uint32_t i = best; i < n; i++)
        if (curve[i].fits && curve[i].ids_per_s >= least)
            best = i;
    return best;
}

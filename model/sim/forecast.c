#include "model/sim/forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3/limits.h"
#include "model/sim/routing.h"

static const double fixed_share = ROUTING_FIXED_SHARE;
static const double close_enough = 0.98;

enum { STEPS = 256, WARM_MAX = 24, SIMULATED_MAX = 24 };

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

/* Passes that fill the expert frames, twice over. */
static uint32_t warm_passes(const struct forecast *f, const struct config *c)
{
    double layers = config_moe_layers(c), one;
    one = layers * forecast_distinct(c->experts, c->top_k, f->sequences, 0);
    double passes = one > 0 ? 2 + 2 * f->plan.expert_frames / one : 1;
    return passes < WARM_MAX ? (uint32_t)passes : WARM_MAX;
}

static int simulate(struct forecast *f, const struct config *c,
                    const struct forecast_options *fo, struct error *error)
{
    struct k3_options o = forecast_session(fo, f->sequences);
    struct pass_clock *clock = NULL;
    struct simulate_cost *cost = NULL;
    double items = forecast_distinct(c->experts, c->top_k, f->sequences, 0);
    o.paced = fo->machine.drive;
    o.paced_count = fo->machine.drives;
    o.threads = fo->machine.threads;
    if (!fo->hits) {
        o.policy = "none";
        o.prefetch = "none";
    }
    int err = pass_clock_open(&clock, c, f->sequences, 1,
                              fo->hits ? warm_passes(f, c) : 1, error);
    if (!err)
        err = simulate_cost_machine(&cost, c, &fo->machine, f->sequences,
                                    items, error);
    if (!err)
        err = pass_clock_run(&f->pass, clock, &o, cost, error);
    if (!err) {
        f->simulated = true;
        f->ids_per_s = f->sequences / f->pass.seconds;
        f->bytes_per_id = f->pass.read_bytes / f->sequences;
    }
    simulate_cost_free(cost);
    pass_clock_close(clock);
    return err;
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

/* Of 1, 2, 3, 4, 6, 8, 12 ..., the number after n. */
static uint32_t next_number(uint32_t n)
{
    bool power = !(n & (n - 1));
    return n == 1 ? 2 : power ? n + n / 2 : n + n / 3;
}

/* These numbers, as far as they fit, and the most that fit. */
static uint32_t choose_simulated(uint32_t *index, const struct forecast *curve,
                                 uint32_t n, bool one)
{
    uint32_t most = n, count = 0;
    while (most && !curve[most - 1].fits)
        most--;
    if (one && most < n)
        return 0;
    for (uint32_t i = 1; !one && i < most; i = next_number(i))
        index[count++] = i - 1;
    if (most)
        index[count++] = most - 1;
    return count;
}

int forecast_curve(struct forecast *curve, uint32_t n, struct k3_shape *shape,
                   const struct config *c, const struct forecast_options *f,
                   struct error *error)
{
    uint32_t index[SIMULATED_MAX];
    struct error first = { 0 };
    int failed = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct k3_options o = forecast_session(f, i + 1);
        k3_option_defaults(&o);
        curve[i] = (struct forecast){ .sequences = i + 1 };
        int err = k3_shape_plan(shape, c, &o, f->machine.threads);
        if (err && err != -ENOBUFS)
            return error_set(error, err, "no memory for a forecast");
        curve[i].plan = shape->plan;
        curve[i].fits = !err && shape->plan.rows >= i + 1;
    }
    uint32_t count = choose_simulated(index, curve, n, f->one);
#pragma omp parallel for schedule(dynamic, 1)
    for (uint32_t k = 0; k < count; k++) { /* the longest first */
        struct error error_k = { 0 };
        int err = simulate(&curve[index[count - 1 - k]], c, f, &error_k);
        if (err)
#pragma omp critical
        {
            failed = err;
            first = error_k;
        }
    }
    return failed ? error_set(error, failed, "%s", first.text) : 0;
}

uint32_t forecast_best(const struct forecast *curve, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (curve[i].simulated &&
            (best == n || curve[i].ids_per_s > curve[best].ids_per_s))
            best = i;
    double min = best < n ? close_enough * curve[best].ids_per_s : 0;
    for (uint32_t i = best; i < n; i++)
        if (curve[i].simulated && curve[i].ids_per_s >= min)
            best = i;
    return best;
}

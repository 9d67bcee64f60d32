#include "model/token_clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/simulate.h"
#include "model/token_cost.h"
#include "sched/trace.h"

enum { PASSES = 2 };

struct token_clock {
    const struct config  *config;
    struct simulate_cost *cost;
    double compute_s;
    int    fd;       /* the trace, in memory; -1: it cannot hold the model */
    char   path[32]; /* of it */
};

/* top_k experts of all, each as likely, none twice. */
static void choose(uint32_t *ids, const struct config *c, uint64_t *state)
{
    for (uint32_t k = 0; k < c->top_k; k++) {
        uint32_t same = 1;
        while (same) {
            *state = *state * UINT64_C(6364136223846793005) +
                     1442695040888963407;
            ids[k] = (uint32_t)((*state >> 33) % c->experts);
            same = 0;
            for (uint32_t j = 0; j < k; j++)
                same += ids[j] == ids[k];
        }
    }
}

/* The first pass fills the ring; only the second counts as decode. */
static int write_trace(const struct token_clock *t)
{
    const struct config *c = t->config;
    struct trace_writer *w;
    struct trace_info info = {
        .layers = config_moe_layers(c), .first_layer = c->first_dense,
        .model_layers = c->layers, .experts = c->experts, .top_k = c->top_k,
    };
    uint64_t state = 1;
    uint32_t *ids = calloc(c->top_k + 1, sizeof *ids);
    int err = ids ? trace_create(&w, t->path, &info, NULL, 1) : -ENOMEM;
    if (err) {
        free(ids);
        return err;
    }
    for (uint32_t pass = 0; pass < PASSES && !err; pass++) {
        trace_begin(w, pass, 1);
        trace_row(w, 0, 0, pass, 0,
                  pass == 1 ? TRACE_DECODE : TRACE_PREFILL,
                  pass ? 0 : TRACE_FIRST);
        for (uint32_t m = 0; m < config_moe_layers(c); m++) {
            choose(ids, c, &state);
            trace_choice(w, 0, m, ids, NULL);
        }
        err = trace_commit(w);
    }
    int end = trace_finish(w);
    free(ids);
    return err ? err : end;
}

int token_clock_open(struct token_clock **out, const struct config *c,
                     double compute_s, struct why *why)
{
    *out = NULL;
    struct token_clock *t = calloc(1, sizeof *t);
    if (!t)
        return why_set(why, -ENOMEM, "no memory for a forecast");
    t->config = c;
    t->compute_s = compute_s;
    t->fd = memfd_create("sluice-forecast", MFD_CLOEXEC);
    int err = t->fd < 0 ? -errno : 0;
    snprintf(t->path, sizeof t->path, "/proc/self/fd/%d", t->fd);
    if (!err)
        err = write_trace(t);
    if (err == -EINVAL) {
        close(t->fd);
        t->fd = -1;
        err = 0;
    }
    if (err)
        why_set(why, err, "no memory for a forecast: %s", strerror(-err));
    else
        err = simulate_cost_seconds(&t->cost, c, compute_s, why);
    if (err) {
        token_clock_close(t);
        return err;
    }
    *out = t;
    return 0;
}

static int longer_side(double *out, const struct token_clock *t,
                       const struct k3_options *o, struct why *why)
{
    struct token_cost cost;
    int err = token_cost(&cost, t->config, o, why);
    if (!err)
        *out = cost.io_s > t->compute_s ? cost.io_s : t->compute_s;
    return err;
}

int token_clock_seconds(double *out, const struct token_clock *t,
                        const struct k3_options *o, struct why *why)
{
    struct simulate_result r;
    struct simulate_options so = {
        .trace = t->path, .config = t->config, .cost = t->cost, .k3 = *o,
        .frames = -1,
    };
    if (t->fd < 0)
        return longer_side(out, t, o, why);
    so.k3.policy = "none";
    so.k3.prefetch = "none";
    int err = simulate_run(&r, &so, why);
    if (!err)
        *out = (double)r.totals[K3_DECODE].ns / 1e9;
    return err;
}

void token_clock_close(struct token_clock *t)
{
    if (!t)
        return;
    simulate_cost_free(t->cost);
    if (t->fd >= 0)
        close(t->fd);
    free(t);
}

#include "model/sim/pass_clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/k3/coded.h"
#include "model/k3/rates.h"
#include "model/sim/routing.h"
#include "model/sim/token_cost.h"
#include "sched/trace/trace.h"

enum {
    CHOICES = 1 << 10, /* of experts, at least, that the counted passes make */
    COUNTED_MAX = 16,
};

struct pass_clock {
    const struct config *config;
    uint32_t rows, each; /* of a pass; of a sequence in it */
    uint32_t warm, counted; /* passes */
    int      fd;       /* the trace, in memory; -1: it cannot hold the model */
    char     path[32]; /* of it */
};

static int write_pass(const struct pass_clock *t, struct trace_writer *w,
                      struct routing *routing, uint32_t *ids, uint32_t pass)
{
    bool counts = pass >= t->warm;
    trace_begin(w, pass, t->rows);
    for (uint32_t r = 0; r < t->rows; r++) {
        trace_row(w, r, r / t->each, pass * t->each + r % t->each,
                  TRACE_TOKEN_UNKNOWN, counts ? TRACE_DECODE : TRACE_PREFILL,
                  pass || r % t->each ? 0 : TRACE_FIRST);
        for (uint32_t m = 0; m < config_moe_layers(t->config); m++) {
            routing_choose(routing, m, ids);
            trace_choice(w, r, m, ids, NULL);
        }
    }
    return trace_commit(w);
}

static int write_trace(const struct pass_clock *t)
{
    const struct config *c = t->config;
    struct trace_writer *w = NULL;
    struct routing *routing = NULL;
    struct trace_info info = {
        .layers = config_moe_layers(c), .first_layer = c->first_dense,
        .model_layers = c->layers, .experts = c->experts, .top_k = c->top_k,
    };
    uint32_t *ids = calloc(c->top_k + 1, sizeof *ids);
    int err = ids ? routing_open(&routing, c) : -ENOMEM;
    if (!err)
        err = trace_create(&w, t->path, &info, NULL, t->rows);
    for (uint32_t p = 0; p < t->warm + t->counted && !err; p++)
        err = write_pass(t, w, routing, ids, p);
    int end = trace_finish(w);
    routing_close(routing);
    free(ids);
    return err ? err : end;
}

int pass_clock_open(struct pass_clock **out, const struct config *c,
                    uint32_t sequences, uint32_t each, uint32_t warm,
                    struct error *error)
{
    *out = NULL;
    struct pass_clock *t = calloc(1, sizeof *t);
    uint32_t rows = sequences * each;
    uint64_t choices = (uint64_t)config_moe_layers(c) * c->top_k * rows;
    if (!t)
        return error_set(error, -ENOMEM, "no memory for a forecast");
    t->config = c;
    t->rows = rows;
    t->each = each;
    t->warm = warm > 0 ? warm : 1;
    t->counted = 1;
    while (choices && t->counted * choices < CHOICES &&
           t->counted < COUNTED_MAX)
        t->counted++;
    t->fd = memfd_create("sluice-forecast", MFD_CLOEXEC);
    int err = t->fd < 0 ? -errno : 0;
    snprintf(t->path, sizeof t->path, "/proc/self/fd/%d", t->fd);
    if (!err)
        err = write_trace(t);
    if (err && err != -ENOMEM) { /* too large a model, or no such file here */
        if (t->fd >= 0)
            close(t->fd);
        t->fd = -1;
        err = 0;
    }
    if (err) {
        error_set(error, err, "no memory for a forecast: %s", strerror(-err));
        pass_clock_close(t);
        return err;
    }
    *out = t;
    return 0;
}

static int longer_side(struct pass_times *out, const struct pass_clock *t,
                       const struct k3_options *o,
                       const struct simulate_cost *cost, struct error *error)
{
    struct token_cost c;
    int err = token_cost(&c, t->config, o, error);
    if (err)
        return err;
    double compute_s = simulate_cost_total(cost);
    if (o->decode && coded_files(o->sidecars))
        compute_s *= o->decode->product;
    *out = (struct pass_times){
        .seconds = c.io_s > compute_s ? c.io_s : compute_s,
        .compute_s = compute_s, .io_s = c.io_s,
        .trunk_bytes = (double)c.trunk_bytes,
        .read_bytes = (double)c.read_bytes, .drives = o->paced_count,
        .plan = c.plan };
    for (uint32_t d = 0; d < c.drives; d++)
        out->io_mean_s += (double)c.drive_bytes[d] /
                          (double)o->paced[d].bytes_per_s / c.drives;
    out->wait_trunk_s = out->seconds - compute_s;
    out->any_share = c.io_s / out->seconds;
    out->at_once = out->io_mean_s * c.drives / out->seconds;
    return 0;
}

static void take(struct pass_times *out, const struct simulate_result *r,
                 const struct config *c, uint32_t drives)
{
    const struct k3_totals *t = &r->totals[K3_DECODE];
    double passes = (double)t->passes, ns = (double)t->ns;
    double layers = config_moe_layers(c) ? config_moe_layers(c) : 1;
    *out = (struct pass_times){
        .seconds = ns / 1e9 / passes,
        .compute_s = r->compute_s[K3_DECODE] / passes,
        .network_s = r->network_s[K3_DECODE] / passes,
        .wait_trunk_s = (double)t->wait_trunk_ns / 1e9 / passes,
        .wait_expert_s = (double)t->wait_expert_ns / 1e9 / passes,
        .trunk_bytes = (double)t->trunk_bytes / passes,
        .expert_bytes = (double)(t->demand_bytes + t->prefetch_bytes +
                                 t->wasted_bytes) / passes,
        .read_bytes = (double)k3_read_bytes(t) / passes,
        .distinct = (double)t->expert_items / layers / passes,
        .io_s = r->io_s[K3_DECODE] / passes,
        .io_mean_s = r->io_mean_s[K3_DECODE] / passes, .drives = drives,
        .any_share = ns > 0 ? 1 - (double)t->all_idle_ns / ns : 0,
        .at_once = ns > 0 ? r->drives - (double)t->idle_ns / ns : 0,
        .plan = r->plan };
    if (r->drives < drives) /* a read is on all of them */
        out->at_once *= drives;
}

int pass_clock_run(struct pass_times *out, const struct pass_clock *t,
                   const struct k3_options *o,
                   const struct simulate_cost *cost, struct error *error)
{
    struct simulate_result r;
    struct simulate_options so = {
        .trace = t->path, .config = t->config, .cost = cost, .k3 = *o,
        .frames = -1,
    };
    if (t->fd < 0)
        return longer_side(out, t, o, cost, error);
    int err = simulate_run(&r, &so, error);
    if (!err)
        take(out, &r, t->config, o->paced_count);
    return err;
}

enum cause pass_cause(const struct pass_times *t)
{
    double n = t->drives;
    struct cause_input in = {
        .seconds = t->seconds, .wait_trunk_s = t->wait_trunk_s,
        .wait_expert_s = t->wait_expert_s, .drives = t->drives,
        .used_share = t->io_mean_s / t->seconds,
        .busiest_share = t->io_s / t->seconds, .any_share = t->any_share,
        .at_once = t->at_once };
    if (t->drives > 1)
        in.others_share = (t->io_mean_s * n - t->io_s) / (n - 1) / t->seconds;
    return cause_of(&in);
}

void pass_clock_close(struct pass_clock *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    free(t);
}

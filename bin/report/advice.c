#include "bin/report/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/packed.h"
#include "model/ckpt/figure.h"
#include "model/sim/simulate.h"
#include "model/sim/simulate_meta.h"

#define RATE_MAX 1e15 /* bytes a second; beyond it is no drive's */
#define US_MAX   1e9

enum { MORE_SHARE = 4, LATENCY_NS = 100 * 1000 };

static double number(const json_t *o, const char *part, const char *name)
{
    return json_number_value(json_object_get(json_object_get(o, part), name));
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* ---- what takes the time ---- */

/* The share of the time that the busiest drive and the others work. */
static void find_busiest(struct advice *a, const json_t *report)
{
    const json_t *list = json_object_get(report, "drives");
    size_t n = json_array_size(list);
    double time = number(report, "prefill", "seconds") +
                  number(report, "decode", "seconds");
    double all = 0, most = -1;
    for (size_t i = 0; i < n; i++) {
        double busy = json_number_value(
            json_object_get(json_array_get(list, i), "busy_s"));
        all += busy;
        if (busy > most) {
            most = busy;
            a->drive = (uint32_t)i;
        }
    }
    a->drives = (uint32_t)n;
    if (n < 2 || !(time > 0))
        return;
    double others = (all - most) / (double)(n - 1);
    a->busy_share = most < time ? most / time : 1;
    a->others_share = others < time ? others / time : 1;
}

/* Is the cache not full yet, and what is read mostly experts? */
static bool is_cold(struct advice *a, const json_t *report, const char *part)
{
    double experts = number(report, part, "expert_demand_bytes") +
                     number(report, part, "expert_prefetch_bytes");
    double loads = number(report, "experts", "loads");
    double read = a->bytes * a->tokens;
    a->expert_share = read > 0 ? experts / read : 0;
    return number(report, "plan", "expert_frames") > 0 &&
           number(report, "experts", "evictions") <= 0 &&
           number(report, "experts", "bypassed") < loads / 2 &&
           a->expert_share > .5;
}

static enum cause find_cause(struct advice *a, const json_t *report,
                             const char *part)
{
    struct cause_input in = {
        .seconds = a->seconds, .wait_trunk_s = a->wait_trunk_s,
        .wait_expert_s = a->wait_expert_s, .wait_embed_s = a->wait_embed_s,
        .drives = a->drives, .used_share = a->drive_share,
        .busiest_share = a->busy_share, .others_share = a->others_share,
        .any_share = a->any_share, .at_once = a->at_once,
        .cold = is_cold(a, report, part) };
    return cause_of(&in);
}

int advice_make(struct advice *a, const json_t *report)
{
    memset(a, 0, sizeof *a);
    a->decode = number(report, "decode", "tokens") > 0;
    const char *part = a->decode ? "decode" : "prefill";
    a->tokens = number(report, part, "tokens");
    double all_s = number(report, part, "seconds");
    if (!(a->tokens > 0) || !(all_s > 0))
        return -1;
    a->seconds = all_s / a->tokens;
    a->bytes = number(report, part, "read_bytes") / a->tokens;
    a->wait_trunk_s = number(report, part, "wait_trunk_s") / a->tokens;
    a->wait_expert_s = number(report, part, "wait_expert_s") / a->tokens;
    a->wait_embed_s = number(report, part, "wait_embed_s") / a->tokens;
    a->compute_s = a->seconds - a->wait_trunk_s - a->wait_expert_s -
                   a->wait_embed_s;
    a->rate = number(report, "io", "device_bytes_per_s");
    if (!(a->rate > 0))
        a->rate = number(report, "io", "raw_bytes_per_s");
    a->io_s = a->rate > 0 ? a->bytes / a->rate : 0;
    a->rest_s = a->seconds - longer(a->io_s, a->compute_s);
    a->rest_s = a->rest_s > 0 ? a->rest_s : 0;
    a->drive_share = a->io_s / a->seconds;
    double requests = number(report, "experts", "requests");
    a->hit_share = requests > 0 ? number(report, "experts", "hits") / requests
                                : 0;
    a->bound = a->io_s > 1.15 * a->compute_s   ? ADVICE_IO
               : a->compute_s > 1.15 * a->io_s ? ADVICE_COMPUTE
                                               : ADVICE_BOTH;
    a->any_share = 1 - number(report, part, "all_idle_s") / all_s;
    find_busiest(a, report);
    a->at_once = a->drives - number(report, part, "idle_s") / all_s;
    a->cause = find_cause(a, report, part);
    return 0;
}

/* The run that is simulated, and how long a token of it takes. */
struct run {
    struct simulate_options o;
    struct paced_drive drive[DRIVES_MAX + 1];
    bool   decode;
    double tokens, now_s;
};

/* Seconds a token of a simulated run, or -1 if it fails. */
static double simulated(const struct run *r, double *hits)
{
    struct simulate_result x;
    struct error error = { 0 };
    if (simulate_run(&x, &r->o, &error))
        return -1;
    *hits = x.experts.requests ? (double)x.experts.hits /
                                     (double)x.experts.requests
                               : 0;
    return (double)x.totals[r->decode ? K3_DECODE : K3_PREFILL].ns / 1e9 /
           r->tokens;
}

/* What the change to the options in *r saves a token; at least 0. */
static double saved(const struct run *r)
{
    double hits, then = simulated(r, &hits);
    return then >= 0 && then < r->now_s ? r->now_s - then : 0;
}

static uint32_t drives_of(const json_t *report, struct paced_drive *drive)
{
    const json_t *list = json_object_get(report, "drives");
    uint32_t n = 0;
    for (; n < json_array_size(list) && n < DRIVES_MAX; n++) {
        const json_t *o = json_array_get(list, n);
        double us = json_number_value(json_object_get(o, "paced_latency_us"));
        double rate = json_number_value(json_object_get(o,
                                                        "paced_bytes_per_s"));
        bool paced = rate > 0;
        if (!paced)
            rate = json_number_value(json_object_get(o, "raw_bytes_per_s"));
        if (!(rate > 0 && rate < RATE_MAX) || !(us >= 0 && us < US_MAX))
            return 0;
        drive[n] = (struct paced_drive){
            (uint64_t)rate, paced ? (int64_t)(us * 1e3) : LATENCY_NS };
    }
    return n;
}

static void try_memory(struct advice *a, struct run *r, const json_t *report)
{
    double hits = 0, streamed, budget = (double)r->o.k3.memory_bytes;
    streamed = number(report, "plan", "streamed_payload_bytes");
    if (streamed > 0 && streamed < RATE_MAX) {
        a->all_bytes = streamed;
        a->more_bytes = budget < streamed ? budget : streamed;
        r->o.k3.memory_bytes += (uint64_t)streamed;
        a->all_s = saved(r);
        r->o.k3.memory_bytes = (uint64_t)(budget + a->more_bytes);
        a->more_s = saved(r);
    } else {
        a->more_bytes = budget / MORE_SHARE;
        r->o.k3.memory_bytes = (uint64_t)(budget + a->more_bytes);
        double then = simulated(r, &hits);
        a->more_hits = then >= 0 ? hits : 0;
        a->more_s = then >= 0 && then < r->now_s ? r->now_s - then : 0;
    }
    r->o.k3.memory_bytes = (uint64_t)budget;
}

static void try_changes(struct advice *a, struct run *r,
                        struct simulate_cost *cost, const json_t *report)
{
    uint32_t n = r->o.k3.paced_count;
    try_memory(a, r, report);
    if (n < DRIVES_MAX) {
        r->drive[n] = r->drive[n - 1];
        r->o.k3.paced_count++;
        a->drive_s = saved(r);
        r->o.k3.paced_count--;
    }
    if (n > 1) {
        r->o.k3.layout = K3_PARTS;
        a->parts_s = saved(r);
        r->o.k3.layout = K3_SHARDS;
    }
    simulate_cost_scale(cost, 0.5);
    a->compute2_s = saved(r);
}

/* The coded weights that the run read, or none; false: they are not there. */
static bool find_coded(struct sidecars *out, const json_t *report,
                       const struct config *c)
{
    struct error error = { 0 };
    const json_t *setup = json_object_get(report, "setup");
    const char *folder = json_string_value(
        json_object_get(json_object_get(setup, "model"), "folder"));
    const char *packed = json_string_value(
        json_object_get(json_object_get(setup, "options"), "packed"));
    double files = number(report, "coded", "files");
    memset(out, 0, sizeof *out);
    if (!(files > 0))
        return true;
    return folder && packed && !packed_find(out, packed, folder, c, &error) &&
           out->used == files;
}

void advice_simulate(struct advice *a, const json_t *report,
                     const char *trace)
{
    struct simulate_meta meta;
    struct simulate_cost *cost = NULL;
    struct error error = { 0 };
    struct sidecars sidecars;
    double hits;
    if (simulate_meta_open(&meta, trace, NULL, &error))
        return;
    bool found = find_coded(&sidecars, report, &meta.config);
    struct run *r = calloc(1, sizeof *r);
    if (r) {
        r->o = (struct simulate_options){ .trace = trace,
                                          .config = &meta.config,
                                          .k3 = meta.k3, .frames = -1 };
        r->o.k3.policy = json_string_value(json_object_get(report, "policy"));
        r->o.k3.prefetch =
            json_string_value(json_object_get(report, "prefetch"));
        r->o.k3.paced = r->drive;
        r->o.k3.paced_count = drives_of(report, r->drive);
        r->decode = a->decode;
        r->tokens = a->tokens;
    }
    if (r && found && r->o.k3.policy && strcmp(r->o.k3.policy, "static-pin") &&
        r->o.k3.paced_count && r->o.k3.memory_bytes &&
        !simulate_cost_report(&cost, &meta.config, report, "", &error)) {
        r->o.cost = cost;
        r->o.k3.sidecars = &sidecars;
        r->o.k3.decode = simulate_cost_decode(cost);
        r->now_s = simulated(r, &hits);
        a->simulated = r->now_s >= 0;
        if (a->simulated)
            try_changes(a, r, cost, report);
    }
    simulate_cost_free(cost);
    sidecars_close(&sidecars);
    simulate_meta_close(&meta);
    free(r);
}

static void say_memory(const struct advice *a, FILE *f)
{
    if (a->more_hits > 0) {
        fprintf(f, "\nThe whole trunk is resident. %s more memory would hold "
                "more experts, raise their hits from %s to %s %% and save "
                "%s s a token.", figure_memory(a->more_bytes).text,
                figure_percent(a->hit_share).text,
                figure_percent(a->more_hits).text, figure(a->more_s).text);
        return;
    }
    if (a->all_bytes <= 0) {
        fprintf(f, "\nThe whole trunk is resident; more memory would hold more "
                "experts. %s %% of expert requests were hits.",
                figure_percent(a->hit_share).text);
        return;
    }
    fprintf(f, "\n%s more memory would save %s s a token",
            figure_memory(a->more_bytes).text, figure(a->more_s).text);
    if (a->more_bytes < a->all_bytes)
        fprintf(f, "; %s more would hold the whole trunk and save %s s",
                figure_memory(a->all_bytes).text, figure(a->all_s).text);
    else
        fputs(" and hold the whole trunk", f);
    fputc('.', f);
}

static void say_cause(const struct advice *a, char *bold, size_t size)
{
    static const char *const bound[] = { "I/O-bound", "Compute-bound",
                                         "Balanced" };
    struct figure waited = figure_percent(a->wait_expert_s / a->seconds);
    struct figure drive = figure_percent(a->drive_share);
    struct figure compute = figure_percent(a->compute_s / a->seconds);
    switch (a->cause) {
    case CAUSE_ONE_DRIVE:
        snprintf(bold, size, "One drive holds the others up: drive %u was "
                 "busy %s %% of the time, the others %s %%.", a->drive,
                 figure_percent(a->busy_share).text,
                 figure_percent(a->others_share).text);
        break;
    case CAUSE_EMBEDDING:
        snprintf(bold, size, "The embedding is waited for: %s %% of the "
                 "time went by until its rows had been read.",
                 figure_percent(a->wait_embed_s / a->seconds).text);
        break;
    case CAUSE_COLD:
        snprintf(bold, size, "The expert cache was cold: it had room left "
                 "at the end, and %s %% of the bytes were experts read into "
                 "it.", figure_percent(a->expert_share).text);
        break;
    case CAUSE_ROUTER:
        snprintf(bold, size, "The router is waited for: experts are known "
                 "only when it has run. Waiting for them took %s %% of the "
                 "time, at %s %% of the drive's rate.", waited.text,
                 drive.text);
        break;
    case CAUSE_BYTES:
        snprintf(bold, size, "I/O-bound by the bytes of a token: %s %% "
                 "of the drive's rate, compute busy %s %% of the time.",
                 drive.text, compute.text);
        break;
    case CAUSE_TURNS:
        snprintf(bold, size, "One drive at a time is at work: reads were "
                 "in flight %s %% of the time, at %s %% of the drives' "
                 "rates.", figure_percent(a->any_share).text, drive.text);
        break;
    case CAUSE_COMPUTE:
        snprintf(bold, size, "Compute-bound: compute busy %s %% of the "
                 "time, %s %% of the drive's rate.", compute.text, drive.text);
        break;
    case CAUSE_NONE:
        snprintf(bold, size, "%s: %s %% of the drive's rate, compute "
                 "busy %s %% of the time.", bound[a->bound], drive.text,
                 compute.text);
        break;
    }
}

void advice_words(const struct advice *a, char *bold, size_t bold_size,
                  char *text, size_t text_size)
{
    say_cause(a, bold, bold_size);
    FILE *f = fmemopen(text, text_size, "w");
    if (!f) {
        text[0] = 0;
        return;
    }
    fprintf(f, "A token takes %s s: reading takes %s s, computing %s s, "
            "and %s s of the shorter did not overlap with the longer.",
            figure(a->seconds).text, figure(a->io_s).text,
            figure(a->compute_s).text, figure(a->rest_s).text);
    if (a->simulated) {
        say_memory(a, f);
        fprintf(f, "\nAnother drive of the same rate would save %s s a "
                "token, compute twice as fast %s s.", figure(a->drive_s).text,
                figure(a->compute2_s).text);
        if (a->drives > 1)
            fprintf(f, " The model in parts over these drives would save "
                    "%s s.", figure(a->parts_s).text);
        fputs(" (Simulated on this run's routing.)", f);
    } else {
        fputs("\nWith the run's trace (--trace) this page says what more "
              "memory, drives and compute would save.", f);
    }
    fclose(f);
    text[text_size - 1] = 0;
}

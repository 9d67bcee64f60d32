#include "bin/advice.h"

#include <stdio.h>
#include <string.h>

#include "model/simulate.h"
#include "model/simulate_meta.h"

enum { MORE_SHARE = 4, LATENCY_NS = 100 * 1000 };

static double number(const json_t *o, const char *part, const char *name)
{
    return json_number_value(json_object_get(json_object_get(o, part), name));
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

static double saved(const struct advice *a, double io_s, double compute_s)
{
    double s = a->seconds - longer(io_s, compute_s) - a->rest_s;
    return s > 0 ? s : 0;
}

static void forecast(struct advice *a, const json_t *report, double passes)
{
    double drives = number(report, "io", "drives");
    double streamed = number(report, "plan", "streamed_payload_bytes");
    double budget = number(report, "plan", "budget_bytes");
    double a_pass = a->tokens / passes; /* tokens that share a pass's trunk */
    drives = drives > 0 ? drives : 1;
    a->drive_s = saved(a, a->io_s * drives / (drives + 1), a->compute_s);
    a->compute2_s = saved(a, a->io_s, a->compute_s / 2);
    if (streamed > 0) {
        a->all_bytes = streamed;
        a->all_s = saved(a, a->io_s - streamed / a_pass / a->rate,
                         a->compute_s);
        a->more_bytes = budget < streamed ? budget : streamed;
        a->more_s = saved(a, a->io_s - a->more_bytes / a_pass / a->rate,
                          a->compute_s);
    }
}

int advice_make(struct advice *a, const json_t *report)
{
    memset(a, 0, sizeof *a);
    a->decode = number(report, "decode", "tokens") > 0;
    const char *part = a->decode ? "decode" : "prefill";
    a->tokens = number(report, part, "tokens");
    double passes = number(report, part, "passes");
    double all_s = number(report, part, "seconds");
    if (!(a->tokens > 0) || !(passes > 0) || !(all_s > 0))
        return -1;
    a->seconds = all_s / a->tokens;
    a->bytes = number(report, part, "read_bytes") / a->tokens;
    a->wait_trunk_s = number(report, part, "wait_trunk_s") / a->tokens;
    a->wait_expert_s = number(report, part, "wait_expert_s") / a->tokens;
    a->compute_s = a->seconds - a->wait_trunk_s - a->wait_expert_s;
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
    if (a->rate > 0)
        forecast(a, report, passes);
    return 0;
}

/* One simulated run; -1 when it cannot be. */
static double simulated(const struct simulate_options *o, double tokens,
                        double *hits)
{
    struct simulate_result x;
    struct why why;
    if (simulate_run(&x, o, &why))
        return -1;
    *hits = x.experts.requests ? (double)x.experts.hits /
                                     (double)x.experts.requests
                               : 0;
    return (double)x.totals[K3_DECODE].ns / 1e9 / tokens;
}

static uint32_t drives_of(const json_t *report, struct paced_drive *drive)
{
    const json_t *list = json_object_get(report, "drives");
    uint32_t n = 0;
    for (; n < json_array_size(list) && n < PLAN_DRIVES_MAX; n++) {
        const json_t *o = json_array_get(list, n);
        double rate = json_number_value(json_object_get(o,
                                                        "paced_bytes_per_s"));
        if (!(rate > 0))
            rate = json_number_value(json_object_get(o, "raw_bytes_per_s"));
        if (!(rate > 0))
            return 0;
        drive[n] = (struct paced_drive){ (uint64_t)rate, LATENCY_NS };
    }
    return n;
}

void advice_simulate(struct advice *a, const json_t *report,
                     const char *trace)
{
    struct simulate_meta meta;
    struct simulate_cost *cost = NULL;
    struct paced_drive drive[PLAN_DRIVES_MAX];
    struct why why;
    double hits = 0, more_hits = 0;
    if (!a->decode || a->all_bytes > 0 ||
        simulate_meta_open(&meta, trace, NULL, &why))
        return;
    struct simulate_options o = { .trace = trace, .config = &meta.config,
                                  .k3 = meta.k3, .frames = -1 };
    o.k3.policy = json_string_value(json_object_get(report, "policy"));
    o.k3.prefetch = json_string_value(json_object_get(report, "prefetch"));
    o.k3.paced = drive;
    o.k3.paced_count = drives_of(report, drive);
    if (o.k3.policy && strcmp(o.k3.policy, "static-pin") &&
        o.k3.paced_count &&
        !simulate_cost_report(&cost, &meta.config, report, "", &why)) {
        o.cost = cost;
        double now = simulated(&o, a->tokens, &hits);
        a->more_bytes = (double)o.k3.memory_bytes / MORE_SHARE;
        o.k3.memory_bytes += o.k3.memory_bytes / MORE_SHARE;
        double then = simulated(&o, a->tokens, &more_hits);
        if (now >= 0 && then >= 0) {
            a->more_hits = more_hits;
            a->more_s = now > then ? now - then : 0;
        }
    }
    simulate_cost_free(cost);
    simulate_meta_close(&meta);
}

/* "12 GB", "350 MB". */
static const char *size(char out[24], double bytes)
{
    if (bytes >= 1e9)
        snprintf(out, 24, "%.3g GB", bytes / 1e9);
    else
        snprintf(out, 24, "%.3g MB", bytes / 1e6);
    return out;
}

static void say_memory(const struct advice *a, FILE *f)
{
    char more[24], all[24];
    if (a->more_hits > 0) {
        fprintf(f, "\nThe whole trunk is resident. %s more memory would hold "
                "more experts, raise their hits from %.0f to %.0f %% and save "
                "%.3g s a token (simulated on this run's routing).",
                size(more, a->more_bytes), 100 * a->hit_share,
                100 * a->more_hits, a->more_s);
        return;
    }
    if (a->all_bytes <= 0) {
        fprintf(f, "\nThe whole trunk is resident; more memory would hold more "
                "experts, of whose requests %.0f %% were hits.",
                100 * a->hit_share);
        return;
    }
    fprintf(f, "\n%s more memory would save %.3g s a token", size(more,
            a->more_bytes), a->more_s);
    if (a->more_bytes < a->all_bytes)
        fprintf(f, ", %s more, which is all of the trunk, %.3g s",
                size(all, a->all_bytes), a->all_s);
    else
        fputs(" and hold all of the trunk", f);
    fputc('.', f);
}

void advice_words(const struct advice *a, char *bold, size_t bold_size,
                  char *text, size_t text_size)
{
    static const char *const bound[] = { "I/O-bound", "Compute-bound",
                                         "Balanced" };
    snprintf(bold, bold_size, "%s: %.0f %% of the drive's rate, compute busy "
             "%.0f %% of the time.", bound[a->bound], 100 * a->drive_share,
             100 * a->compute_s / a->seconds);
    FILE *f = fmemopen(text, text_size, "w");
    if (!f) {
        text[0] = 0;
        return;
    }
    fprintf(f, "A token takes %.3g s. Its bytes need %.3g s of the drive, its "
            "arithmetic %.3g s; %.3g s of the shorter of the two did not fit "
            "beside the longer.", a->seconds, a->io_s, a->compute_s,
            a->rest_s);
    say_memory(a, f);
    fprintf(f, "\nAnother drive of the same rate would save %.3g s a token, "
            "compute twice as fast %.3g s.", a->drive_s, a->compute2_s);
    fclose(f);
    text[text_size - 1] = 0;
}

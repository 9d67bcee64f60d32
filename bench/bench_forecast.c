/* bench_forecast.c - does simulated time agree with the engine's?
 *
 * Points are budgets x one to four drives, some with a slower rate, with few
 * rows a pass, or with a prefetcher. At each the engine
 * runs on the simulated drive, traced; then the trace is simulated twice: with
 * the kernels of that very run, which judges the simulation alone, and with
 * those of the first point, which judges a forecast for a machine that was
 * measured once under another budget. Bytes must be equal, seconds within 5 %.
 * Rounds repeat a point; the median of the errors counts.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "bin/report/recorder.h"
#include "bin/report/report.h"
#include "model/decode/generate.h"
#include "model/sim/simulate.h"

enum { LIST_MAX = 8, ROUNDS_MAX = 9, PROMPT = 24, DRIVES = 4, POINTS = 256 };

static const char *const trace_path = "build/bench/forecast.trace";
static const double within = 0.05;

struct bench {
    const char *model;
    uint64_t rounds, tokens, threads;
    double budget[LIST_MAX], rate[LIST_MAX];
    uint32_t budgets, rates;
    struct config config;
    struct simulate_cost *first; /* of the first run */
    uint32_t points, missed;
    double   worst, error[POINTS]; /* errors of points, percent */
    json_t  *json;
};

struct point {
    struct k3_options o;
    struct paced_drive drive[DRIVES];
    uint32_t rows;
    uint64_t heap_bytes;
};

struct outcome {
    double engine_s, own_s, first_s; /* a token */
    double bytes;                    /* a token */
    bool   equal;
};

static int on_planned(void *recorder, const struct k3 *k, struct error *error)
{
    return recorder_planned(recorder, k, error);
}

/* Run the engine, traced; *report is its report. */
static int run_engine(const struct bench *b, struct point *p, json_t **report,
                      struct error *error)
{
    struct k3_options o = p->o;
    struct recorder *r;
    struct k3 *k = NULL;
    uint32_t prompt[PROMPT], ids[1024];
    struct generate_result result = { .ids = ids };
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (i * 37 + 11) % b->config.vocab;
    int err = recorder_open(&r, trace_path, b->model, &o, error);
    if (err)
        return err;
    p->heap_bytes = o.heap_bytes; /* with what the recorder takes */
    o.realtime = true;
    o.planned = on_planned;
    o.planned_arg = r;
    err = k3_open(&k, b->model, &o, error);
    struct generate_options g = { .prompt = prompt,
                                  .prompt_count = PROMPT,
                                  .max = (uint32_t)b->tokens,
                                  .ignore_end = true };
    if (!err)
        err = generate(k, &g, &result, error);
    if (!err) {
        struct report_input in = { .k = k, .prompt = prompt,
                                   .prompt_count = PROMPT, .generated = ids,
                                   .generated_count = result.count,
                                   .decode_tokens = result.count - 1 };
        *report = report_make(&in);
    }
    k3_close(k);
    int lost = recorder_close(r, error);
    return err ? err : lost;
}

static int forecast(const struct bench *b, const struct point *p,
                    const struct simulate_cost *cost,
                    struct simulate_result *out, struct error *error)
{
    struct simulate_options o = { .trace = trace_path, .config = &b->config,
                                  .cost = cost, .k3 = p->o, .frames = -1 };
    o.k3.heap_bytes = p->heap_bytes;
    return simulate_run(out, &o, error);
}

static double number(const json_t *o, const char *part, const char *name)
{
    return json_number_value(json_object_get(json_object_get(o, part), name));
}

static int measure(struct bench *b, struct point *p, struct outcome *out,
                   struct error *error)
{
    json_t *report = NULL;
    struct simulate_cost *own = NULL;
    struct simulate_result x, y;
    int err = run_engine(b, p, &report, error);
    if (err)
        return err;
    p->o.threads =
        (uint32_t)json_integer_value(json_object_get(report, "threads"));
    err = simulate_cost_report(&own, &b->config, report, "run", error);
    if (!err && !b->first)
        err = simulate_cost_report(&b->first, &b->config, report, "run", error);
    if (!err)
        err = forecast(b, p, own, &x, error);
    if (!err)
        err = forecast(b, p, b->first, &y, error);
    if (!err) {
        const struct k3_totals *t = &x.totals[K3_DECODE];
        double tokens = number(report, "decode", "tokens");
        out->engine_s = number(report, "decode", "seconds_per_token");
        out->own_s = (double)t->ns / 1e9 / tokens;
        out->first_s = (double)y.totals[K3_DECODE].ns / 1e9 / tokens;
        out->bytes = number(report, "decode", "read_bytes") / tokens;
        /* What a prefetch has read when its router runs is a matter of time. */
        out->equal = strcmp(p->o.prefetch, "none") ||
                     (double)(t->trunk_bytes + t->embed_bytes +
                              t->demand_bytes) ==
                     number(report, "decode", "read_bytes");
    }
    simulate_cost_free(own);
    json_decref(report);
    return err;
}

static int run_point(struct bench *b, struct point *p, struct error *error)
{
    double own[ROUNDS_MAX] = { 0 }, first[ROUNDS_MAX] = { 0 };
    double engine[ROUNDS_MAX] = { 0 };
    struct outcome o = { 0 };
    bool equal = true;
    for (uint32_t i = 0; i < b->rounds; i++) {
        int err = measure(b, p, &o, error);
        if (err)
            return err;
        equal = equal && o.equal;
        own[i] = 100 * (o.own_s / o.engine_s - 1);
        first[i] = 100 * (o.first_s / o.engine_s - 1);
        engine[i] = o.engine_s;
    }
    struct bench_spread s = bench_spread(own, b->rounds);
    struct bench_spread f = bench_spread(first, b->rounds);
    struct bench_spread e = bench_spread(engine, b->rounds);
    bool good = equal && fabs(s.median) <= 100 * within;
    if (b->points < POINTS)
        b->error[b->points] = fabs(s.median);
    b->points++;
    b->missed += !good;
    b->worst = fabs(s.median) > b->worst ? fabs(s.median) : b->worst;
    printf("%8.0f %6u %5u %-6s  %8.4f %8.3f %6s %+7.1f (%+.1f..%+.1f) %+7.1f "
           "(%+.1f..%+.1f)%s\n",
           (double)p->o.memory_bytes / 1e6, p->o.paced_count, p->rows,
           p->o.prefetch, e.median,
           o.bytes / 1e6, equal ? "equal" : "DIFFER", s.median, s.min, s.max,
           f.median, f.min, f.max, good ? "" : "  *");
    fflush(stdout);
    json_array_append_new(
        b->json,
        json_pack("{s:I, s:I, s:I, s:s, s:f, s:f, s:b, s:f, s:f, s:I}",
                  "budget_bytes", (json_int_t)p->o.memory_bytes,
                  "drives", (json_int_t)p->o.paced_count,
                  "rows", (json_int_t)p->rows, "prefetch", p->o.prefetch,
                  "seconds_per_token", e.median,
                  "read_bytes_per_token", o.bytes, "bytes_equal", equal,
                  "error_percent", s.median,
                  "error_percent_other_compute", f.median,
                  "rounds", (json_int_t)b->rounds));
    return 0;
}

/* Drives of one rate, but the second, which has half of it. */
static int run_one(struct bench *b, uint64_t bytes, double gbps, uint32_t n,
                   uint32_t rows, const char *prefetch, struct error *error)
{
    uint64_t rate = (uint64_t)(gbps * 1e9);
    struct point p = { .rows = rows };
    for (uint32_t d = 0; d < n; d++)
        p.drive[d] = (struct paced_drive){ d == 1 ? rate / 2 : rate,
                                           d == 1 ? 150000 : 80000 };
    p.o = (struct k3_options){
        .memory_bytes = bytes, .threads = (uint32_t)b->threads, .rows = rows,
        .logits = 1, .prefetch = prefetch, .paced = p.drive,
        .paced_count = n };
    return run_point(b, &p, error);
}

static int run_all(struct bench *b, struct error *error)
{
    static const uint32_t rows[] = { PROMPT, 5 };
    printf("%8s %6s %5s %-6s  %8s %8s %6s %20s %22s\n", "MB", "drives", "rows",
           "ahead", "s/token", "MB/token", "bytes", "error % own compute",
           "compute of first point");
    for (uint32_t m = 0; m < b->budgets; m++) {
        uint64_t bytes = (uint64_t)b->budget[m];
        int err = 0;
        for (uint32_t d = 0; d < b->rates && !err; d++) {
            for (uint32_t n = 1; n <= DRIVES && !err; n++)
                if (!d || n <= 2) /* all numbers at the first rate */
                    err = run_one(b, bytes, b->rate[d], n, rows[0], "none",
                                  error);
        }
        if (!err)
            err = run_one(b, bytes, b->rate[0], 1, rows[1], "none", error);
        for (uint32_t n = 1; n <= 2 && !err; n++)
            err = run_one(b, bytes, b->rate[0], n, rows[0], "prev", error);
        if (err)
            return err;
    }
    return 0;
}

static void keep(const struct bench *b)
{
    FILE *f = bench_results("forecast", "when commit\tpoints\twithin 5 % and "
                            "equal in bytes\tworst median error %\trounds");
    if (!f)
        return;
    fprintf(f, "%s\t%u\t%u\t%.1f\t%u\n", bench_stamp(), b->points,
            b->points - b->missed, b->worst, (unsigned)b->rounds);
    fclose(f);
}

static const char *take_list(double *list, uint32_t *count, const char *text,
                             double scale)
{
    char *copy = strdup(text), *rest = copy, *word, *end;
    const char *wrong = copy ? NULL : "does not fit in memory";
    *count = 0;
    while (!wrong && rest && (word = strsep(&rest, ","))) {
        double v = strtod(word, &end);
        if (*count == LIST_MAX || end == word || *end || !(v > 0))
            wrong = "is not a list of up to 8 numbers";
        else
            list[(*count)++] = v * scale;
    }
    free(copy);
    return wrong;
}

static const char *take_budgets(void *arg, const char *value)
{
    struct bench *b = arg;
    return take_list(b->budget, &b->budgets, value, 1e6);
}

static const char *take_rates(void *arg, const char *value)
{
    struct bench *b = arg;
    return take_list(b->rate, &b->rates, value, 1);
}

int main(int argc, char **argv)
{
    static struct bench b = { .model = "build/bench-small", .rounds = 3,
                              .tokens = 6 };
    const struct opt table[] = {
        { "model", 0, OPT_TEXT, &b.model, "DIR",
          "a `synth --preset small` checkpoint; made if missing", NULL },
        { "rounds", 0, OPT_UINT, &b.rounds, "N", "default 3", NULL },
        { "tokens", 0, OPT_UINT, &b.tokens, "N", "new tokens, default 6",
          NULL },
        { "threads", 't', OPT_UINT, &b.threads, "N", "default: cores", NULL },
        { "budgets", 0, OPT_CALL, &b, "LIST",
          "megabytes, default 330,90,150,260", take_budgets },
        { "rates", 0, OPT_CALL, &b, "LIST", "GB/s, default 0.2,0.4",
          take_rates },
    };
    const struct opt_command cmd = { "bench_forecast [options]", NULL, table,
                                     sizeof table / sizeof *table };
    int words = opt_parse(&cmd, argc, argv, NULL, 0);
    struct error error = { 0 };
    if (words < 0)
        return opt_status(words);
    if (b.rounds < 1 || b.rounds > ROUNDS_MAX || b.tokens < 2 ||
        b.tokens > 1024)
        return opt_usage_error(&cmd, "--rounds is 1 to %d, --tokens 2 to 1024",
                               ROUNDS_MAX);
    if (!b.budgets)
        take_budgets(&b, "330,90,150,260");
    if (!b.rates)
        take_rates(&b, "0.2,0.4");
    if (bench_model(
            &(struct synth_options){ .dir = b.model, .preset = "small" }) ||
        config_load(&b.config, b.model, &error))
        return 1;
    b.json = json_array();
    int err = run_all(&b, &error);
    if (err)
        fprintf(stderr, "bench: %s\n", error.text);
    else
        printf("%u of %u points within %.0f %% and equal in bytes; worst %.1f "
               "%%, median %.1f %%\n", b.points - b.missed, b.points,
               100 * within, b.worst,
               bench_spread(b.error, b.points < POINTS ? b.points : POINTS)
                   .median);
    if (!err)
        keep(&b);
    remove(trace_path);
    simulate_cost_free(b.first);
    config_free(&b.config);
    return bench_json("forecast", b.json) || err;
}

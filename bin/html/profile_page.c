#include "bin/html/profile_page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bin/html/page.h"
#include "bin/html/time_charts.h"
#include "bin/report/advice.h"
#include "bin/report/report.h"
#include "bin/report/report_detail.h"
#include "model/ckpt/figure.h"
#include "model/sluice.h"

enum {
    KERNELS_MAX = 64,
    KERNELS_SHOWN = 14,
    LAYERS_MAX = 4096,
    BUCKETS_MAX = 128,
    NAME_BYTES = 24,
    SERIES_MAX = 5
};

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* A number under its name, or under that of older versions. */
static double renamed(const json_t *o, const char *name, const char *old)
{
    return number(o, json_object_get(o, name) ? name : old);
}

static const double GIB = 1024.0 * 1024 * 1024;

static double part_number(const json_t *o, const char *part, const char *name)
{
    return number(json_object_get(o, part), name);
}

static struct figure count(double n, const char *noun)
{
    return figure_count(n > 0 && n < 1e15 ? (uint64_t)n : 0, noun);
}

/* ---- numbers at the top ---- */

static void tiles(FILE *f, const struct advice *a, const json_t *report)
{
    struct page_tile t[6];
    snprintf(t[0].value, sizeof t[0].value, "%s",
             figure_span(a->seconds).text);
    snprintf(t[0].label, sizeof t[0].label, "a %s token",
             a->decode ? "new" : "prompt");
    snprintf(t[1].value, sizeof t[1].value, "%s GB",
             figure(a->bytes / 1e9).text);
    snprintf(t[1].label, sizeof t[1].label, "read for a token");
    snprintf(t[2].value, sizeof t[2].value, "%s %%",
             figure_percent(a->drive_share).text);
    snprintf(t[2].label, sizeof t[2].label, "of the drive's %s GB/s",
             figure(a->rate / 1e9).text);
    snprintf(t[3].value, sizeof t[3].value, "%s",
             figure((a->seconds - a->rest_s) / a->seconds).text);
    snprintf(t[3].label, sizeof t[3].label,
             "overlap: max(reads, compute) / time");
    snprintf(t[4].value, sizeof t[4].value, "%s %%",
             figure_percent(a->hit_share).text);
    snprintf(t[4].label, sizeof t[4].label,
             "of expert requests were hits, in all passes");
    snprintf(t[5].value, sizeof t[5].value, "%s GiB",
             figure(number(report, "peak_rss_bytes") / GIB).text);
    snprintf(t[5].label, sizeof t[5].label, "of %s GiB memory used",
             figure(part_number(report, "plan", "budget_bytes") / GIB).text);
    page_tiles(f, t, 6);
}

/* ---- where the time went ---- */

static void phase_stack(FILE *f, const json_t *report, const char *phase,
                        const char *title)
{
    const json_t *o = json_object_get(report, phase);
    double tokens = number(o, "tokens"), s = number(o, "seconds");
    double trunk = number(o, "wait_trunk_s");
    double expert = number(o, "wait_expert_s");
    double embed = number(o, "wait_embed_s");
    char about[160];
    if (!(tokens > 0))
        return;
    struct page_part p[] = {
        { .name = "compute", .color = PAGE_BLUE,
          .value = s - trunk - expert - embed },
        { .name = "waiting for the trunk", .color = PAGE_AMBER,
          .value = trunk },
        { .name = "waiting for experts", .color = PAGE_RED, .value = expert },
        { .name = "waiting for the embedding", .color = PAGE_VIOLET,
          .value = embed },
    };
    for (int i = 0; i < 4; i++)
        snprintf(p[i].text, sizeof p[i].text, "%s",
                 figure_span(p[i].value / tokens).text);
    double passes = number(o, "passes");
    snprintf(about, sizeof about, "%s: %s a token, %s in %s", title,
             figure_span(s / tokens).text, count(tokens, "token").text,
             count(passes, "pass").text);
    page_stack(f, about, p, 4);
}

static void opening(FILE *f, const json_t *report)
{
    double s = number(report, "open_s"), probe = number(report, "probe_s");
    char about[160];
    if (!(s > 0)) /* a report of an older version */
        return;
    struct page_part p[] = {
        { .name = "measuring the drives", .color = PAGE_VIOLET,
          .value = probe },
        { .name = "headers, plan and resident weights", .color = PAGE_GREY,
          .value = s - probe },
    };
    for (int i = 0; i < 2; i++)
        snprintf(p[i].text, sizeof p[i].text, "%s",
                 figure_span(p[i].value).text);
    snprintf(about, sizeof about, "Before them, opening: %s",
             figure_span(s).text);
    page_stack(f, about, p, 2);
}

static int by_value(const void *a, const void *b)
{
    const struct page_part *x = a, *y = b;
    return (x->value < y->value) - (x->value > y->value);
}

static void kernels(FILE *f, const struct advice *a, const json_t *report,
                    const char *phase)
{
    struct page_part part[KERNELS_MAX] = { 0 };
    json_t *o = json_object_get(json_object_get(report, "kernels"), phase);
    json_t *value;
    const char *name;
    uint32_t n = 0;
    json_object_foreach(o, name, value) {
        if (n == KERNELS_MAX)
            break;
        part[n++] = (struct page_part){ .name = name, .color = PAGE_BLUE,
                                        .value = json_number_value(value) /
                                                 a->tokens };
    }
    qsort(part, n, sizeof *part, by_value);
    if (n > KERNELS_SHOWN) {
        struct page_part *rest = &part[KERNELS_SHOWN - 1];
        for (uint32_t i = KERNELS_SHOWN; i < n; i++)
            rest->value += part[i].value;
        rest->name = "all others";
        rest->color = PAGE_GREY;
        n = KERNELS_SHOWN;
    }
    for (uint32_t i = 0; i < n; i++)
        snprintf(part[i].text, sizeof part[i].text, "%s",
                 figure_span(part[i].value).text);
    page_bars(f, part, n);
}

/* ---- by layer ---- */

struct layers {
    uint32_t count;
    json_t  *list;
    char   (*name)[NAME_BYTES];
    const char **names;
    double *value[SERIES_MAX];
};

static bool layers_open(struct layers *l, const json_t *report,
                        const char *phase)
{
    *l = (struct layers){ 0 };
    l->list = json_object_get(json_object_get(report, "layers"), phase);
    l->count = (uint32_t)json_array_size(l->list);
    if (!l->count || l->count > LAYERS_MAX)
        return false;
    l->name = calloc(l->count, sizeof *l->name);
    l->names = calloc(l->count, sizeof *l->names);
    bool all = l->name && l->names;
    for (int i = 0; i < SERIES_MAX; i++) {
        l->value[i] = calloc(l->count, sizeof *l->value[i]);
        all = all && l->value[i];
    }
    for (uint32_t i = 0; all && i < l->count; i++) {
        snprintf(l->name[i], NAME_BYTES, "%u", i);
        if (i + 1 == l->count)
            snprintf(l->name[i], NAME_BYTES, "head");
        l->names[i] = l->name[i];
    }
    return all;
}

static void layers_close(struct layers *l)
{
    free(l->name);
    free(l->names);
    for (int i = 0; i < SERIES_MAX; i++)
        free(l->value[i]);
}

static void layer_times(FILE *f, struct layers *l, double tokens)
{
    static const char *const field[] = { "attention_s", "mlp_s",
                                         "wait_trunk_s", "wait_expert_s",
                                         "wait_embed_s" };
    double max = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        double sum = 0;
        for (int j = 0; j < SERIES_MAX; j++) {
            l->value[j][i] = 1e3 * number(json_array_get(l->list, i),
                                          field[j]) / tokens;
            sum += l->value[j][i];
        }
        max = sum > max ? sum : max;
    }
    bool micro = max < 1;
    for (uint32_t i = 0; micro && i < l->count; i++)
        for (int j = 0; j < SERIES_MAX; j++)
            l->value[j][i] *= 1e3;
    struct chart_series s[] = {
        chart_part("attention and router", PAGE_BLUE, l->value[0]),
        chart_part("experts or MLP", PAGE_GREEN, l->value[1]),
        chart_part("waiting for the trunk", PAGE_AMBER, l->value[2]),
        chart_part("waiting for experts", PAGE_RED, l->value[3]),
        chart_part("waiting for the embedding", PAGE_VIOLET, l->value[4]),
    };
    struct chart c = { .title = "Time by layer",
                       .y_unit = micro ? "µs a token" : "ms a token",
                       .x_unit = "layer", .height = 200, .points = l->count,
                       .x_names = l->names };
    chart_columns(f, &c, s, SERIES_MAX);
}

static void layer_experts(FILE *f, struct layers *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const json_t *o = json_array_get(l->list, i);
        double requests = number(o, "requests"), loads = number(o, "loads");
        double prefetched = renamed(o, "prefetch_hits", "guess_hits");
        double late = number(o, "late");
        if (!(requests > 0))
            continue;
        l->names[n] = l->name[i];
        l->value[0][n] = 100 * (requests - loads) / requests;
        l->value[1][n] = 100 * prefetched / requests;
        l->value[2][n] = 100 * late / requests;
        l->value[3][n] = 100 * (loads - prefetched - late) / requests;
        n++;
    }
    struct chart_series s[] = {
        chart_part("hits", PAGE_BLUE, l->value[0]),
        chart_part("prefetched in time", PAGE_GREEN, l->value[1]),
        chart_part("prefetched, late", PAGE_VIOLET, l->value[2]),
        chart_part("read on demand", PAGE_RED, l->value[3]),
    };
    struct chart c = { .title = "Where the experts were when they were chosen",
                       .y_unit = "% of requests",
                       .x_unit = "layer",
                       .height = 160,
                       .points = n,
                       .x_names = l->names,
                       .y_max = 100 };
    if (n)
        chart_columns(f, &c, s, 4);
}

/* ---- latency ---- */

static void percentiles(char *out, size_t n, const json_t *list)
{
    static const double share[] = { .5, .99, .999 };
    static const char *const name[] = { "p50", "p99", "p99.9" };
    size_t at = (size_t)snprintf(out, n, "%% of reads");
    for (int i = 0; i < 3 && at < n; i++) {
        double s = report_percentile(list, share[i]) / 1e6;
        at += (size_t)snprintf(out + at, n - at, "; %s up to %s", name[i],
                               figure_span(s).text);
    }
}

static void histogram(FILE *f, const json_t *list, const char *title,
                      enum page_color color)
{
    char unit[160];
    struct figure name[BUCKETS_MAX];
    const char *names[BUCKETS_MAX];
    double share[BUCKETS_MAX], all = 0;
    double first = 0, last = 0;
    size_t n = json_array_size(list);
    uint32_t points = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *b = json_array_get(list, i);
        double from = json_number_value(json_array_get(b, 0));
        all += json_number_value(json_array_get(b, 1));
        first = i ? first : from;
        last = from;
    }
    first = first < 1 ? 1 : first;
    for (double octave = 1; octave <= last; octave *= 2)
        for (int q = 0; q < 4 && points < BUCKETS_MAX; q++) {
            double from = octave * (4 + q) / 4;
            if (from < first || from > last)
                continue;
            share[points] = 0;
            for (size_t i = 0; i < n; i++) {
                const json_t *b = json_array_get(list, i);
                double at = json_number_value(json_array_get(b, 0));
                at = at < 1 ? 1 : at;
                if (at >= from && at < octave * (5 + q) / 4)
                    share[points] +=
                        100 * json_number_value(json_array_get(b, 1)) / all;
            }
            name[points] = figure_span(from / 1e6);
            names[points] = name[points].text;
            points++;
        }
    if (!points) { /* all within the first microsecond */
        share[0] = 100;
        names[points++] = "< 1 µs";
    }
    struct chart_series s = chart_part("reads", color, share);
    percentiles(unit, sizeof unit, list);
    struct chart c = { .title = title, .y_unit = unit, .height = 110,
                       .points = points, .x_names = names, .half = true };
    chart_columns(f, &c, &s, 1);
}

static void latencies(FILE *f, const json_t *report)
{
    static const struct { const char *class, *name; enum page_color color; }
    all[] = { { "demand", "Demanded experts", PAGE_RED },
              { "trunk", "Trunk", PAGE_AMBER },
              { "prefetch", "Prefetched experts", PAGE_VIOLET } };
    page_section(f, "How long reads took", "Left: from the request until the "
                 "kernel had it. Right: from then until the bytes had landed. "
                 "Trunk is read ahead, so its latency costs nothing while the "
                 "ring is filled.");
    fputs("<div class=\"pair\">\n", f);
    for (int i = 0; i < 3; i++) {
        const json_t *latency = json_object_get(report, "latency");
        const json_t *o = json_object_get(latency, all[i].class);
        if (!o) /* a report of an older version */
            o = json_object_get(latency, "guess");
        char title[96];
        if (!(number(o, "reads") > 0))
            continue;
        snprintf(title, sizeof title, "%s, queue", all[i].name);
        histogram(f, json_object_get(o, "queue_us"), title, all[i].color);
        snprintf(title, sizeof title, "%s, device", all[i].name);
        histogram(f, json_object_get(o, "device_us"), title, all[i].color);
    }
    fputs("</div>\n", f);
}

/* ---- all numbers ---- */

static void numbers(FILE *f, const json_t *report, const char *part,
                    const char *title)
{
    struct page_row row[64];
    uint32_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(report, part), name, value) {
        if (n == 64 || !(json_is_number(value) || json_is_string(value)) ||
            report_is_old_name(name))
            continue;
        row[n].name = name;
        if (json_is_string(value))
            snprintf(row[n].value, sizeof row[n].value, "%s",
                     json_string_value(value));
        else if (json_is_integer(value))
            snprintf(row[n].value, sizeof row[n].value, "%lld",
                     (long long)json_integer_value(value));
        else
            snprintf(row[n].value, sizeof row[n].value, "%s",
                     figure(json_real_value(value)).text);
        n++;
    }
    page_table(f, title, row, n);
}

static struct figure coded(const json_t *report, const char *name, double unit)
{
    return figure(part_number(report, "coded", name) / unit);
}

/* "; coded weights: of the trunk 76.2 GB for 111.2, an expert ..." */
static void coded_words(char *out, size_t n, const json_t *report)
{
    *out = '\0';
    if (part_number(report, "coded", "files") > 0)
        snprintf(out, n, "; coded weights: the trunk is %s GB for %s, an "
                 "expert %s MB for %s; a token’s bytes stand for %s GB",
                 coded(report, "trunk_stored_bytes", 1e9).text,
                 coded(report, "trunk_decoded_bytes", 1e9).text,
                 coded(report, "expert_stored_bytes", 1e6).text,
                 coded(report, "expert_decoded_bytes", 1e6).text,
                 figure(part_number(report, "decode", "tokens") > 0
                            ? part_number(report, "decode", "decoded_bytes") /
                                  1e9 / part_number(report, "decode", "tokens")
                            : 0).text);
}

static void subtitle(char *out, size_t n, const char *about,
                     const json_t *report, const struct advice *a)
{
    char words[320];
    coded_words(words, sizeof words, report);
    const char *isa = json_string_value(json_object_get(report, "isa"));
    const char *policy = json_string_value(json_object_get(report, "policy"));
    const char *prefetch =
        json_string_value(json_object_get(report, "prefetch"));
    snprintf(out, n,
             "%s: %.0f prompt and %s, %s GiB of memory, %s with %s GB/s, %s "
             "(%s), expert cache %s, prefetch %s%s",
             about, part_number(report, "prefill", "tokens"),
             count(a->decode ? a->tokens : 0, "new token").text,
             figure(part_number(report, "plan", "budget_bytes") / GIB).text,
             count(part_number(report, "io", "drives"), "drive").text,
             figure(a->rate / 1e9).text,
             count(number(report, "threads"), "thread").text, isa ? isa : "?",
             policy ? policy : "?",
             prefetch ? prefetch : "?", words);
}

int profile_page(FILE *f, const char *about, const json_t *report,
                 struct times *t, const char *trace, struct error *error)
{
    struct advice a;
    struct layers l;
    char bold[256], text[1024], sub[1024];
    if (advice_make(&a, report))
        return error_set(error, -EBADMSG,
                         "the report is not one of sluice run, or its "
                         "run had no pass");
    if (trace)
        advice_simulate(&a, report, trace);
    const char *phase = a.decode ? "decode" : "prefill";
    subtitle(sub, sizeof sub, about, report, &a);
    page_begin(f, "Where a token’s time went", sub);
    advice_words(&a, bold, sizeof bold, text, sizeof text);
    page_answer(f, bold, text);
    tiles(f, &a, report);
    page_section(f, "Compute and waiting", "Compute works or waits for "
                 "bytes, while the drives read. The trunk is the weights that "
                 "every token uses; experts are known only once the router "
                 "ran.");
    phase_stack(f, report, "decode", "New tokens");
    phase_stack(f, report, "prefill", "The prompt");
    opening(f, report);
    bool layered = layers_open(&l, report, phase);
    if (layered)
        layer_times(f, &l, a.tokens);
    page_section(f, "Compute by kernel",
                 a.decode ? "Time of a new token."
                          : "Time of a prompt token.");
    kernels(f, &a, report, phase);
    int err = t ? time_charts(f, a.decode, report, t, error) : 0;
    latencies(f, report);
    page_section(f, "Experts", "Where the experts were that the rows chose, by "
                 "layer. A hit needs no read: the expert is in the cache, or "
                 "another row of the pass chose it. All others are loads, "
                 "prefetched or not.");
    if (layered)
        layer_experts(f, &l);
    layers_close(&l);
    page_section(f, "Numbers", "The rest of the report.");
    numbers(f, report, "plan", "The plan");
    numbers(f, report, "io", "Reads");
    numbers(f, report, "prefill", "The prompt");
    numbers(f, report, "decode", "New tokens");
    numbers(f, report, "experts", "Experts");
    if (t && t->lost)
        page_section(f, "Incomplete", "The timeline lost some events, because "
                     "writing them took too long. The charts over time are too "
                     "low there.");
    page_end(f, "Written by sluice profile " SLUICE_VERSION ". The file needs "
             "no other.");
    return err;
}

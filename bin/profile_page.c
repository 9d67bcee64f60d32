#include "bin/profile_page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bin/advice.h"
#include "bin/cmd.h"
#include "bin/page.h"

enum { KERNELS_MOST = 64, KERNELS_SHOWN = 14, LAYERS_MOST = 4096,
       BUCKETS_MOST = 128, NAME_BYTES = 24, SERIES_MOST = 4 };

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static double part_number(const json_t *o, const char *part, const char *name)
{
    return number(json_object_get(o, part), name);
}

static const char *seconds_text(char out[48], double s)
{
    if (s >= 1)
        snprintf(out, 48, "%.3g s", s);
    else if (s >= 1e-3)
        snprintf(out, 48, "%.3g ms", s * 1e3);
    else
        snprintf(out, 48, "%.3g µs", s * 1e6);
    return out;
}

static void bytes_text(char *out, size_t n, double bytes)
{
    if (bytes >= 1e9)
        snprintf(out, n, "%.2f GB", bytes / 1e9);
    else if (bytes >= 1e6)
        snprintf(out, n, "%.1f MB", bytes / 1e6);
    else
        snprintf(out, n, "%.1f KB", bytes / 1e3);
}

/* ---- numbers at the top ---- */

static void tiles(FILE *f, const struct advice *a, const json_t *report)
{
    struct page_tile t[6];
    char text[48];
    snprintf(t[0].value, sizeof t[0].value, "%s",
             seconds_text(text, a->seconds));
    snprintf(t[0].label, sizeof t[0].label, "a %s token",
             a->decode ? "new" : "prompt");
    bytes_text(t[1].value, sizeof t[1].value, a->bytes);
    snprintf(t[1].label, sizeof t[1].label, "read for each");
    snprintf(t[2].value, sizeof t[2].value, "%.0f %%", 100 * a->drive_share);
    snprintf(t[2].label, sizeof t[2].label, "of the drive's %.2f GB/s",
             a->rate / 1e9);
    snprintf(t[3].value, sizeof t[3].value, "%.2f",
             (a->seconds - a->rest_s) / a->seconds);
    snprintf(t[3].label, sizeof t[3].label,
             "overlap: the longer side / time");
    snprintf(t[4].value, sizeof t[4].value, "%.0f %%", 100 * a->hit_share);
    snprintf(t[4].label, sizeof t[4].label, "of expert requests were hits");
    bytes_text(t[5].value, sizeof t[5].value,
               number(report, "peak_rss_bytes"));
    snprintf(t[5].label, sizeof t[5].label, "of %.2f GB memory used",
             part_number(report, "plan", "budget_bytes") / 1e9);
    page_tiles(f, t, 6);
}

/* ---- where the time went ---- */

static void phase_stack(FILE *f, const json_t *report, const char *phase,
                        const char *what)
{
    const json_t *o = json_object_get(report, phase);
    double tokens = number(o, "tokens"), s = number(o, "seconds");
    double trunk = number(o, "wait_trunk_s");
    double expert = number(o, "wait_expert_s");
    char about[128], text[48];
    if (!(tokens > 0))
        return;
    struct page_part p[] = {
        { .name = "compute", .color = PAGE_BLUE, .value = s - trunk - expert },
        { .name = "waiting for the trunk", .color = PAGE_AMBER,
          .value = trunk },
        { .name = "waiting for experts", .color = PAGE_RED, .value = expert },
    };
    for (int i = 0; i < 3; i++)
        seconds_text(p[i].text, p[i].value / tokens);
    double passes = number(o, "passes");
    snprintf(about, sizeof about, "%s: %s a token, %.0f tokens in %.0f %s",
             what, seconds_text(text, s / tokens), tokens, passes,
             passes > 1 ? "passes" : "pass");
    page_stack(f, about, p, 3);
}

static int by_value(const void *a, const void *b)
{
    const struct page_part *x = a, *y = b;
    return (x->value < y->value) - (x->value > y->value);
}

static void kernels(FILE *f, const struct advice *a, const json_t *report,
                    const char *phase)
{
    struct page_part part[KERNELS_MOST] = { 0 };
    json_t *o = json_object_get(json_object_get(report, "kernels"), phase);
    json_t *value;
    const char *name;
    uint32_t n = 0;
    json_object_foreach(o, name, value) {
        if (n == KERNELS_MOST)
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
        seconds_text(part[i].text, part[i].value);
    page_bars(f, part, n);
}

/* ---- by layer ---- */

struct layers {
    uint32_t count;
    json_t  *list;
    char   (*name)[NAME_BYTES];
    const char **names;
    double  *value[SERIES_MOST];
};

static bool layers_open(struct layers *l, const json_t *report,
                        const char *phase)
{
    *l = (struct layers){ 0 };
    l->list = json_object_get(json_object_get(report, "layers"), phase);
    l->count = (uint32_t)json_array_size(l->list);
    if (!l->count || l->count > LAYERS_MOST)
        return false;
    l->name = calloc(l->count, sizeof *l->name);
    l->names = calloc(l->count, sizeof *l->names);
    bool all = l->name && l->names;
    for (int i = 0; i < SERIES_MOST; i++) {
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
    for (int i = 0; i < SERIES_MOST; i++)
        free(l->value[i]);
}

static void layer_times(FILE *f, struct layers *l, double tokens)
{
    static const char *const field[] = { "attention_s", "mlp_s",
                                         "wait_trunk_s", "wait_expert_s" };
    double most = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        double sum = 0;
        for (int j = 0; j < SERIES_MOST; j++) {
            l->value[j][i] = 1e3 * number(json_array_get(l->list, i),
                                          field[j]) / tokens;
            sum += l->value[j][i];
        }
        most = sum > most ? sum : most;
    }
    bool micro = most < 1;
    for (uint32_t i = 0; micro && i < l->count; i++)
        for (int j = 0; j < SERIES_MOST; j++)
            l->value[j][i] *= 1e3;
    struct chart_series s[] = {
        chart_part("attention and router", PAGE_BLUE, l->value[0]),
        chart_part("experts or MLP", PAGE_GREEN, l->value[1]),
        chart_part("waiting for the trunk", PAGE_AMBER, l->value[2]),
        chart_part("waiting for experts", PAGE_RED, l->value[3]),
    };
    struct chart c = { .title = "Time by layer",
                       .y_unit = micro ? "µs a token" : "ms a token",
                       .x_unit = "layer", .height = 200, .points = l->count,
                       .x_names = l->names };
    chart_columns(f, &c, s, 4);
}

static void layer_experts(FILE *f, struct layers *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const json_t *o = json_array_get(l->list, i);
        double requests = number(o, "requests"), loads = number(o, "loads");
        double guessed = number(o, "guess_hits"), late = number(o, "late");
        if (!(requests > 0))
            continue;
        l->names[n] = l->name[i];
        l->value[0][n] = 100 * (requests - loads) / requests;
        l->value[1][n] = 100 * guessed / requests;
        l->value[2][n] = 100 * late / requests;
        l->value[3][n] = 100 * (loads - guessed - late) / requests;
        n++;
    }
    struct chart_series s[] = {
        chart_part("there already", PAGE_BLUE, l->value[0]),
        chart_part("read ahead, in time", PAGE_GREEN, l->value[1]),
        chart_part("read ahead, late", PAGE_VIOLET, l->value[2]),
        chart_part("read when asked for", PAGE_RED, l->value[3]),
    };
    struct chart c = { .title = "Where the experts were when they were wanted",
                       .y_unit = "% of requests", .x_unit = "layer",
                       .height = 160, .points = n, .x_names = l->names,
                       .y_most = 100 };
    if (n)
        chart_columns(f, &c, s, 4);
}

/* ---- over time ---- */

static void drive_chart(FILE *f, const struct times_window *w, uint32_t drive,
                        double rate, const char *unit, double scale)
{
    double value[READ_CLASSES][TIMES_BINS];
    char title[64], rule[64];
    for (int c = 0; c < READ_CLASSES; c++)
        for (int i = 0; i < TIMES_BINS; i++)
            value[c][i] = w->read[drive][c][i] / 1e9;
    struct chart_series s[] = {
        chart_part("trunk", PAGE_AMBER, value[READ_TRUNK]),
        chart_part("experts, demanded", PAGE_RED, value[READ_DEMAND]),
        chart_part("experts, guessed", PAGE_VIOLET, value[READ_GUESS]),
    };
    snprintf(title, sizeof title, "Drive %u", drive);
    snprintf(rule, sizeof rule, "its rate, %.3g GB/s", rate / 1e9);
    struct chart c = { .title = title, .y_unit = "GB/s", .x_unit = unit,
                       .height = 120, .points = TIMES_BINS,
                       .x_to = (w->to_us - w->from_us) * scale,
                       .line = rate / 1e9, .line_name = rule };
    chart_areas(f, &c, s, READ_CLASSES);
}

static void window(FILE *f, const struct times *t,
                   const struct times_window *w, const json_t *report)
{
    double value[3][TIMES_BINS], ring[TIMES_BINS];
    bool ms = w->to_us - w->from_us < 5e6;
    double scale = ms ? 1e-3 : 1e-6;
    const char *unit = ms ? "milliseconds" : "seconds";
    json_t *drives = json_object_get(report, "drives");
    for (uint32_t d = 0; d < t->drives; d++) {
        const json_t *o = json_array_get(drives, d);
        double rate = number(o, "paced_bytes_per_s");
        drive_chart(f, w, d, rate > 0 ? rate : number(o, "raw_bytes_per_s"),
                    unit, scale);
    }
    for (int i = 0; i < TIMES_BINS; i++) {
        value[0][i] = 100 * w->work[i];
        value[1][i] = 100 * w->wait_trunk[i];
        value[2][i] = 100 * w->wait_expert[i];
        ring[i] = 100 * w->ring[i];
    }
    struct chart_series s[] = {
        chart_part("computing", PAGE_BLUE, value[0]),
        chart_part("waiting for the trunk", PAGE_AMBER, value[1]),
        chart_part("waiting for experts", PAGE_RED, value[2]),
    };
    struct chart c = { .title = "Compute", .y_unit = "% of the time",
                       .x_unit = unit, .height = 90, .points = TIMES_BINS,
                       .x_to = (w->to_us - w->from_us) * scale,
                       .y_most = 100 };
    chart_areas(f, &c, s, 3);
    struct chart_series fill = chart_part("filled", PAGE_AMBER, ring);
    c.title = "Ring";
    c.y_unit = "% filled with trunk read ahead";
    if (t->ring_bytes > 0)
        chart_areas(f, &c, &fill, 1);
}

/* The pass whose length is the median of its kind. */
static const struct times_pass *typical(const struct times *t, bool decode)
{
    const struct times_pass *best = NULL;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < t->passes; i++) {
        const struct times_pass *p = &t->pass[i];
        uint32_t shorter = 0, longer = 0;
        if (p->decode != decode)
            continue;
        for (uint32_t j = 0; j < t->passes; j++) {
            double d = t->pass[j].to_us - t->pass[j].from_us -
                       (p->to_us - p->from_us);
            if (t->pass[j].decode == decode) {
                shorter += d < 0;
                longer += d > 0;
            }
        }
        uint32_t off = shorter > longer ? shorter - longer : longer - shorter;
        if (off < least) {
            least = off;
            best = p;
        }
    }
    return best;
}

static int over_time(FILE *f, const struct advice *a, const json_t *report,
                     struct times *t, struct why *why)
{
    struct times_window *w = malloc(sizeof *w);
    if (!w)
        return why_set(why, -ENOMEM, "no memory for the charts");
    page_section(f, "Over time", "What each drive delivered, by who asked for "
                 "it, and what compute did meanwhile. Below the dashed "
                 "line, a gap is time in which the drive could have read "
                 "more.");
    int err = times_fill(t, w, t->pass[0].from_us, t->pass[t->passes - 1].to_us,
                         why);
    if (!err)
        window(f, t, w, report);
    const struct times_pass *one = typical(t, a->decode);
    if (!err && one) {
        page_section(f, "One pass, close up", a->decode
                     ? "The decode pass of median length."
                     : "The prompt's pass of median length.");
        err = times_fill(t, w, one->from_us, one->to_us, why);
    }
    if (!err && one)
        window(f, t, w, report);
    free(w);
    return err;
}

/* ---- latency ---- */

static void histogram(FILE *f, const json_t *list, const char *title,
                      enum page_color color)
{
    char name[BUCKETS_MOST][NAME_BYTES];
    const char *names[BUCKETS_MOST];
    double share[BUCKETS_MOST], all = 0;
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
        for (int q = 0; q < 4 && points < BUCKETS_MOST; q++) {
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
            if (from < 1000)
                snprintf(name[points], NAME_BYTES, "%.3g µs", from);
            else
                snprintf(name[points], NAME_BYTES, "%.3g ms", from / 1e3);
            names[points] = name[points];
            points++;
        }
    if (!points) { /* all within the first microsecond */
        share[0] = 100;
        names[points++] = "< 1 µs";
    }
    struct chart_series s = chart_part("reads", color, share);
    struct chart c = { .title = title, .y_unit = "% of reads", .height = 110,
                       .points = points, .x_names = names, .half = true };
    chart_columns(f, &c, &s, 1);
}

static void latencies(FILE *f, const json_t *report)
{
    static const struct { const char *class, *name; enum page_color color; }
    all[] = { { "demand", "Demanded experts", PAGE_RED },
              { "trunk", "Trunk", PAGE_AMBER },
              { "guess", "Guessed experts", PAGE_VIOLET } };
    page_section(f, "How long reads took", "Left, from the moment a read was "
                 "handed to the reader until the kernel had it; right, until "
                 "its bytes were there. Trunk is read ahead, so its latency "
                 "costs nothing while the ring is filled.");
    fputs("<div class=\"pair\">\n", f);
    for (int i = 0; i < 3; i++) {
        const json_t *o = json_object_get(json_object_get(report, "latency"),
                                          all[i].class);
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
        if (n == 64 || !(json_is_number(value) || json_is_string(value)))
            continue;
        row[n].name = name;
        if (json_is_string(value))
            snprintf(row[n].value, sizeof row[n].value, "%s",
                     json_string_value(value));
        else if (json_is_integer(value))
            snprintf(row[n].value, sizeof row[n].value, "%lld",
                     (long long)json_integer_value(value));
        else
            snprintf(row[n].value, sizeof row[n].value, "%.6g",
                     json_real_value(value));
        n++;
    }
    page_table(f, title, row, n);
}

static void subtitle(char *out, size_t n, const char *about,
                     const json_t *report, const struct advice *a)
{
    const char *isa = json_string_value(json_object_get(report, "isa"));
    const char *policy = json_string_value(json_object_get(report, "policy"));
    const char *guess = json_string_value(json_object_get(report, "prefetch"));
    snprintf(out, n, "%s: %.0f prompt and %.0f new tokens, %.2f GB of memory, "
             "%.0f drive%s with %.3g GB/s, %.0f threads (%s), expert cache %s, "
             "guesses %s", about,
             part_number(report, "prefill", "tokens"),
             a->decode ? a->tokens : 0,
             part_number(report, "plan", "budget_bytes") / 1e9,
             part_number(report, "io", "drives"),
             part_number(report, "io", "drives") > 1 ? "s" : "",
             a->rate / 1e9, number(report, "threads"), isa ? isa : "?",
             policy ? policy : "?", guess ? guess : "?");
}

int profile_page(FILE *f, const char *about, const json_t *report,
                 struct times *t, const char *trace, struct why *why)
{
    struct advice a;
    struct layers l;
    char bold[256], text[1024], sub[1024];
    if (advice_make(&a, report))
        return why_set(why, -EBADMSG, "the report is not one of sluice run "
                       "with at least one pass");
    if (trace)
        advice_simulate(&a, report, trace);
    const char *phase = a.decode ? "decode" : "prefill";
    subtitle(sub, sizeof sub, about, report, &a);
    page_begin(f, "Where a token’s time went", sub);
    advice_words(&a, bold, sizeof bold, text, sizeof text);
    page_answer(f, bold, text);
    tiles(f, &a, report);
    page_section(f, "Compute and waiting", "Compute is busy or waits for "
                 "bytes; a drive reads beside it. Waiting for the trunk means "
                 "that the weights every token uses came too late, waiting for "
                 "experts that the router’s choice did.");
    phase_stack(f, report, "decode", "New tokens");
    phase_stack(f, report, "prefill", "The prompt");
    bool layered = layers_open(&l, report, phase);
    if (layered)
        layer_times(f, &l, a.tokens);
    page_section(f, "Compute by kernel",
                 a.decode ? "Time a new token takes in each."
                          : "Time a prompt token takes in each.");
    kernels(f, &a, report, phase);
    int err = t ? over_time(f, &a, report, t, why) : 0;
    latencies(f, report);
    page_section(f, "Experts", "Of the experts that the rows chose, layer by "
                 "layer. A hit was in a frame already or was read for another "
                 "row of the same pass.");
    if (layered)
        layer_experts(f, &l);
    layers_close(&l);
    page_section(f, "Numbers", "All of the report that is not drawn above.");
    numbers(f, report, "plan", "The plan");
    numbers(f, report, "io", "Reads");
    numbers(f, report, "prefill", "The prompt");
    numbers(f, report, "decode", "New tokens");
    numbers(f, report, "experts", "Experts");
    if (t && t->lost)
        page_section(f, "Incomplete", "The timeline could not keep up and lost "
                     "some events: the charts over time are too low there.");
    page_end(f, "Written by sluice profile " SLUICE_VERSION ". The file is "
             "complete in itself.");
    return err;
}

#include "bin/html/replay_page.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/outputs.h"
#include "bin/html/page.h"
#include "model/sluice.h"

enum { LINES_MAX = CHART_LINES_MAX, NAME_BYTES = 48 };

/* The distinct x values and the distinct lines of a trace. */
struct grid {
    double  *x;
    uint32_t xs;
    char name[LINES_MAX][NAME_BYTES];
    const struct replay_point *of[LINES_MAX]; /* one of its points */
    uint32_t lines;
    double  *value; /* [lines][xs] of the present metric */
};

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void name_of(const struct replay_point *p, char name[NAME_BYTES])
{
    if (!strcmp(p->prefetch, "none"))
        snprintf(name, NAME_BYTES, "%s", p->policy);
    else
        snprintf(name, NAME_BYTES, "%s, %s", p->policy, p->prefetch);
}

static uint32_t line_of(struct grid *g, const struct replay_point *p)
{
    char name[NAME_BYTES];
    name_of(p, name);
    for (uint32_t i = 0; i < g->lines; i++)
        if (!strcmp(g->name[i], name))
            return i;
    if (g->lines == LINES_MAX)
        return LINES_MAX; /* more lines than a reader can follow */
    memcpy(g->name[g->lines], name, NAME_BYTES);
    g->of[g->lines] = p;
    return g->lines++;
}

static bool grid_open(struct grid *g, const struct replay_curves *c)
{
    *g = (struct grid){ 0 };
    g->x = calloc(c->points + 1, sizeof *g->x);
    g->value = calloc((size_t)LINES_MAX * (c->points + 1), sizeof *g->value);
    if (!g->x || !g->value)
        return false;
    for (uint32_t i = 0; i < c->points; i++) {
        g->x[i] = c->point[i].x;
        line_of(g, &c->point[i]);
    }
    qsort(g->x, c->points, sizeof *g->x, rising);
    for (uint32_t i = 0; i < c->points; i++)
        if (!g->xs || g->x[i] > g->x[g->xs - 1])
            g->x[g->xs++] = g->x[i];
    return true;
}

static void grid_close(struct grid *g)
{
    free(g->x);
    free(g->value);
}

static void fill(struct grid *g, const struct replay_curves *c, uint32_t metric)
{
    for (uint32_t i = 0; i < g->lines * g->xs; i++)
        g->value[i] = NAN;
    for (uint32_t i = 0; i < c->points; i++) {
        uint32_t line = line_of(g, &c->point[i]), at = 0;
        while (at < g->xs && g->x[at] < c->point[i].x)
            at++;
        if (line < g->lines)
            g->value[line * g->xs + at] = c->point[i].metric[metric];
    }
}

/* The number of the line's policy, or prefetcher, in the order in which the
 * lines name them; prefetcher `none` is 0. */
static uint32_t number_of(const struct grid *g, uint32_t line, bool policy)
{
    uint32_t number = policy ? 0 : 1; /* 0: no prefetches */
    const struct replay_point *p = g->of[line];
    const char *name = policy ? p->policy : p->prefetch;
    if (!policy && !strcmp(name, "none"))
        return 0;
    for (uint32_t i = 0; i < line; i++) {
        const char *one = policy ? g->of[i]->policy : g->of[i]->prefetch;
        bool fresh = policy || strcmp(one, "none");
        if (!strcmp(one, name))
            break;
        for (uint32_t j = 0; j < i; j++)
            fresh = fresh && strcmp(one, policy ? g->of[j]->policy
                                                : g->of[j]->prefetch);
        number += fresh;
    }
    return number;
}

/* A colour and mark for each policy, a dash for each prefetcher. */
static void draw(FILE *f, struct grid *g, const struct replay_curves *c,
                 const struct replay_metric *m)
{
    struct chart_series s[LINES_MAX];
    for (uint32_t i = 0; i < g->lines; i++) {
        uint32_t policy = number_of(g, i, true);
        s[i] = (struct chart_series){
            .name = g->name[i], .value = g->value + i * g->xs,
            .color = (enum page_color)(policy % PAGE_COLORS),
            .mark = (uint8_t)(policy / PAGE_COLORS),
            .dash = (uint8_t)number_of(g, i, false) };
    }
    struct chart chart = { .title = m->title, .y_unit = m->unit,
                           .x_unit = c->x_unit, .height = 190,
                           .points = g->xs, .x = g->x, .ends = true,
                           .x_to = g->x[g->xs - 1] * 1.02, .half = true };
    chart_lines(f, &chart, s, g->lines);
}

int replay_page(const char *path, const char *about,
                const struct replay_curves *curves, uint32_t traces,
                const struct replay_metric *metrics, uint32_t count)
{
    struct output o;
    struct error error = { 0 };
    int err = output_open(&o, path, "the page", &error);
    FILE *f = o.f;
    bool good = !err;
    if (good)
        page_begin(f, "Cache policies on a trace", about);
    for (uint32_t t = 0; t < traces && good; t++) {
        struct grid g;
        good = grid_open(&g, &curves[t]);
        if (good && g.xs) {
            page_section(f, curves[t].trace, curves[t].about);
            fputs("<div class=\"pair\">\n", f);
            for (uint32_t m = 0; m < count; m++) {
                fill(&g, &curves[t], m);
                draw(f, &g, &curves[t], &metrics[m]);
            }
            fputs("</div>\n", f);
        }
        grid_close(&g);
    }
    if (good)
        page_end(f, "Written by sluice replay " SLUICE_VERSION
                    ". The file needs no other.");
    else if (!err)
        err = output_failed(&o, ENOMEM, &error);
    int other = output_close(&o, good, &error);
    err = err ? err : other;
    if (err)
        fprintf(stderr, "sluice: %s\n", error.text);
    else
        fprintf(stderr, "the curves are in %s\n", shown(path).text);
    return err ? 1 : 0;
}

static void counts_of(struct replay_curves *c, const char *trace,
                      const struct replay *r, struct replay_point *point)
{
    const struct passes_facts *f = &r->facts;
    bool decode = f->decode_passes > 0;
    double tokens = decode ? (double)f->tokens : (double)f->records;
    c->trace = trace;
    c->x_unit = "experts that fit";
    c->point = point;
    c->points = r->results;
    snprintf(c->about, sizeof c->about, "%u layers of %u experts, top %u; %u "
             "passes, %" PRIu64 " rows; counted over %s.", f->info.layers,
             f->info.experts, f->info.top_k, f->passes, f->records,
             decode ? "the decode passes" : "all passes");
    for (uint32_t i = 0; i < r->results; i++) {
        const struct replay_result *x = &r->result[i];
        const struct replay_count *n = decode ? &x->decode : &x->all;
        double reads = (double)(n->loads + n->prefetched - n->prefetch_hits);
        double all = n->requests ? (double)n->requests : 1;
        point[i] = (struct replay_point){
            .policy = x->policy,
            .prefetch = x->prefetch,
            .x = x->frames,
            .metric = { 100 * (double)(n->requests - n->loads) / all,
                        (double)n->loads / (tokens > 0 ? tokens : 1),
                        reads * (double)f->info.expert_bytes / 1e9 /
                            (tokens > 0 ? tokens : 1),
                        n->loads
                            ? 100 * (double)n->prefetch_hits / (double)n->loads
                            : 0 }
        };
    }
}

int replay_page_counts(const char *path, const char *const *traces,
                       struct replay *const *replays, uint32_t count)
{
    static const struct replay_metric metrics[] = {
        { "Hits", "% of requests" },
        { "Loads", "experts a token" },
        { "Expert bytes", "GB a token, with wrong prefetches" },
        { "Loads that were prefetched", "%" },
    };
    uint32_t all = 0, prefetches = 0, at = 0;
    for (uint32_t t = 0; t < count; t++)
        all += replays[t]->results;
    struct replay_curves *c = calloc(count + 1, sizeof *c);
    struct replay_point *point = calloc(all + 1, sizeof *point);
    int status = 1;
    if (c && point) {
        for (uint32_t t = 0; t < count; t++) {
            counts_of(&c[t], traces[t], replays[t], point + at);
            for (uint32_t i = 0; i < replays[t]->results; i++)
                prefetches += strcmp(point[at + i].prefetch, "none") != 0;
            at += replays[t]->results;
        }
        status = replay_page(path, "Counts of the cache, without a clock.", c,
                             count, metrics, prefetches ? 4 : 3);
    } else {
        fputs("sluice: no memory for the page\n", stderr);
    }
    free(c);
    free(point);
    return status;
}

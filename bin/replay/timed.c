#include "bin/cli/outputs.h"
#include "bin/replay/timed.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/json.h"
#include "bin/html/replay_page.h"
#include "bin/report/report.h"
#include "model/ckpt/figure.h"
#include "model/k3/rates.h"
#include "model/sim/simulate.h"
#include "model/sim/simulate_meta.h"
#include "model/sim/token_cost.h"

/* One trace: what its JSON says, unless the options say otherwise. */
struct scene {
    const char    *path;
    const struct timed_args     *a;
    const struct replay_options *r;
    struct simulate_meta  meta;
    struct sidecars       sidecars; /* of the model */
    struct parts         *parts;    /* or NULL */
    struct simulate_cost *cost;
    bool                  exact; /* the cost: seconds that were given */
    struct decode_time    decode; /* what decode_time_here says */
    struct passes_facts   facts;
};

/* One line of the result. */
struct line {
    const char *path;
    uint64_t memory;
    struct simulate_result x;
    int64_t  min_loads; /* of the policy `min`; negative: not known */
};

const char *timed_memory(void *arg, const char *value)
{
    struct timed_args *a = arg;
    char *copy = strdup(value), *rest = copy, *word;
    const char *wrong = copy ? NULL : "does not fit in memory";
    a->memories = 0;
    while (!wrong && rest && (word = strsep(&rest, ","))) {
        uint64_t bytes;
        uint32_t i = 0;
        if (a->memories == TIMED_MEMORIES_MAX) {
            wrong = "has more than 64 sizes";
        } else if (opt_size(&bytes, word)) {
            wrong = "is not a list of sizes like 8G,64G";
        } else {
            while (i < a->memories && a->memory[i] != bytes)
                i++;
            if (i == a->memories) /* not given before */
                a->memory[a->memories++] = bytes;
        }
    }
    free(copy);
    return wrong;
}

/* ---- what the trace says ---- */

static int read_cost(struct scene *s, struct error *error)
{
    const char *text = s->a->compute;
    char *end;
    double seconds = text ? strtod(text, &end) : 0;
    if (!text)
        return simulate_cost_seconds(&s->cost, &s->meta.config,
                                     token_compute_s(&s->meta.config), error);
    if (end != text && !*end) {
        if (!isfinite(seconds) || seconds < 0)
            return error_set(error, -EINVAL, "--compute %s: not a time", text);
        s->exact = true;
        return simulate_cost_seconds(&s->cost, &s->meta.config, seconds, error);
    }
    json_error_t where;
    json_t *report = json_load_file(text, 0, &where);
    if (!report)
        return error_set(error, -EBADMSG,
                         "%s: neither seconds nor a report: %s", text,
                         where.text);
    int err =
        simulate_cost_report(&s->cost, &s->meta.config, report, text, error);
    json_decref(report);
    return err;
}

/* With coded weights, products take longer or shorter than raw ones, as the
 * report says, or as measured here; seconds that are given are taken as they
 * are. */
static int find_decode_time(struct scene *s, struct error *error)
{
    const struct decode_time *t = simulate_cost_decode(s->cost);
    s->meta.k3.resident = s->a->s.resident;
    if (!s->sidecars.used || s->exact)
        return 0;
    int err = t ? 0 : decode_time_here(&s->decode, s->meta.k3.threads);
    s->meta.k3.decode = t ? t : &s->decode;
    return err ? error_set(error, err, "no memory to time the kernels") : 0;
}

static int open_scene(struct scene *s, const char *path,
                      const struct timed_args *a,
                      const struct replay_options *r, struct error *error)
{
    *s = (struct scene){ .path = path, .a = a, .r = r };
    struct passes *passes;
    int err = passes_open(&passes, path, r->repair, error);
    if (err)
        return err;
    s->facts = *passes_facts(passes);
    passes_close(passes);
    err = simulate_meta_open(&s->meta, path, a->model, error);
    if (err)
        return err;
    if (a->model)
        err = parts_find(&s->parts, &a->s.parts, &s->meta.config, error);
    if (a->model && !err && !s->parts)
        err = packed_find(&s->sidecars, a->s.packed ? a->s.packed : "auto",
                          a->model, &s->meta.config, error);
    if (err)
        return err;
    s->meta.k3.sidecars = &s->sidecars;
    s->meta.k3.parts = s->parts;
    s->meta.k3.paced = a->s.drive;
    s->meta.k3.paced_count = a->s.drives;
    s->meta.k3.pin_file = r->pin_file;
    if (!a->memories && !s->meta.k3.memory_bytes)
        return error_set(error, -EINVAL,
                         "%s: it does not say the memory of the run; "
                         "give --memory",
                         path);
    int bad = read_cost(s, error);
    return bad ? bad : find_decode_time(s, error);
}

static void close_scene(struct scene *s)
{
    simulate_cost_free(s->cost);
    sidecars_close(&s->sidecars);
    parts_close(s->parts);
    simulate_meta_close(&s->meta);
}

/* ---- running ---- */

/* The loads of `min` with that many frames: no policy has fewer. */
static int64_t loads_of_min(const struct scene *s, uint32_t frames)
{
    static const char *const min[] = { "min" }, *const none[] = { "none" };
    struct replay_options o = { .policy = min, .prefetch = none,
                                .frames = &frames, .policies = 1,
                                .prefetches = 1, .frame_counts = 1,
                                .repair = s->r->repair };
    struct replay *r;
    struct error error;
    if (s->facts.requests > 1u << 27 || replay_run(&r, s->path, &o, &error))
        return -1;
    int64_t loads = (int64_t)r->result[0].all.loads;
    replay_free(r);
    return loads;
}

static int run_line(const struct scene *s, struct line *line, uint64_t memory,
                    const char *policy, const char *prefetch, int64_t frames,
                    struct error *error)
{
    struct simulate_options o = { .trace = s->path, .repair = s->r->repair,
                                  .config = &s->meta.config, .cost = s->cost,
                                  .k3 = s->meta.k3, .frames = frames };
    o.k3.memory_bytes = memory;
    o.k3.policy = policy;
    o.k3.prefetch = prefetch;
    line->path = s->path;
    line->memory = memory;
    int err = simulate_run(&line->x, &o, error);
    if (!err)
        line->min_loads = loads_of_min(s, line->x.plan.expert_frames);
    return err;
}

static int run_scene(const struct scene *s, struct line *line, uint32_t *n,
                     struct error *error)
{
    const struct replay_options *r = s->r;
    uint64_t own = s->meta.k3.memory_bytes;
    const uint64_t *memory = s->a->memories ? s->a->memory : &own;
    uint32_t memories = s->a->memories ? s->a->memories : 1;
    uint32_t frames = r->frame_counts ? r->frame_counts : 1;
    for (uint32_t p = 0; p < r->policies; p++)
        for (uint32_t j = 0; j < r->prefetches; j++)
            for (uint32_t m = 0; m < memories; m++)
                for (uint32_t f = 0; f < frames; f++) {
                    if (!strcmp(r->policy[p], "min"))
                        continue;
                    int err = run_line(
                        s, &line[*n], memory[m], r->policy[p], r->prefetch[j],
                        r->frame_counts ? (int64_t)r->frames[f] : -1, error);
                    if (err)
                        return err;
                    ++*n;
                }
    return 0;
}

/* ---- numbers ---- */

struct figures {
    double tokens, seconds, bytes, io_s, compute_s, wait_trunk, wait_expert;
    double idle_share, floor_s;
};

/* The figures of decode, or of prefill if the trace has no decode. */
static const struct k3_totals *figures_of(const struct line *l,
                                          struct figures *f)
{
    const struct simulate_result *x = &l->x;
    enum k3_phase phase = x->totals[K3_DECODE].passes ? K3_DECODE : K3_PREFILL;
    const struct k3_totals *t = &x->totals[phase];
    double tokens = phase == K3_DECODE ? (double)x->tokens : (double)t->rows;
    *f = (struct figures){
        .tokens = tokens > 0 ? tokens : 1,
        .seconds = (double)t->ns / 1e9,
        .bytes = (double)k3_read_bytes(t),
        .compute_s = x->compute_s[phase],
        .wait_trunk = (double)t->wait_trunk_ns / 1e9,
        .wait_expert = (double)t->wait_expert_ns / 1e9,
    };
    f->io_s = x->io_s[phase];
    f->floor_s = f->io_s > f->compute_s ? f->io_s : f->compute_s;
    f->idle_share = t->ns ? (double)t->idle_ns / (double)t->ns / x->drives : 0;
    return t;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static json_t *json_of(const struct line *l)
{
    struct figures f;
    const struct k3_totals *t = figures_of(l, &f);
    const struct fetch_counts *e = &l->x.experts;
    json_t *o = json_pack(
        "{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "trace",
        json_bytes(l->path), "policy", l->x.policy, "prefetch", l->x.prefetch,
        "memory_bytes", (json_int_t)l->memory, "frames",
        (json_int_t)l->x.plan.expert_frames, "requests",
        (json_int_t)e->requests, "hits", (json_int_t)e->hits, "loads",
        (json_int_t)e->loads, "prefetched", (json_int_t)e->prefetched,
        "prefetch_hits", (json_int_t)e->prefetch_hits, "late",
        (json_int_t)e->late, "min_loads", (json_int_t)l->min_loads);
    json_t *more = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "seconds_per_token", share(f.seconds, f.tokens),
        "read_bytes_per_token", share(f.bytes, f.tokens),
        "wait_share", share(f.wait_trunk + f.wait_expert, f.seconds),
        "wait_trunk_s", f.wait_trunk, "wait_expert_s", f.wait_expert,
        "compute_s", f.compute_s, "io_s", f.io_s,
        "disk_idle_share", f.idle_share, "floor_s", f.floor_s,
        "seconds", f.seconds);
    json_t *bytes = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I}", "tokens",
        (json_int_t)f.tokens, "passes", (json_int_t)t->passes, "trunk_bytes",
        (json_int_t)t->trunk_bytes, "embed_bytes", (json_int_t)t->embed_bytes,
        "expert_demand_bytes", (json_int_t)t->demand_bytes,
        "expert_prefetch_bytes", (json_int_t)t->prefetch_bytes, "wasted_bytes",
        (json_int_t)t->wasted_bytes, "prefill_seconds",
        (double)l->x.totals[K3_PREFILL].ns / 1e9, "prefill_demand_bytes",
        (json_int_t)l->x.totals[K3_PREFILL].demand_bytes, "drives",
        (json_int_t)l->x.drives);
    enum k3_phase phase = l->x.totals[K3_DECODE].passes ? K3_DECODE
                                                        : K3_PREFILL;
    set_real(o, "decoded_bytes_per_token",
             share((double)l->x.decoded_bytes[phase], f.tokens));
    json_object_update_new(o, more);
    json_object_update_new(o, bytes);
    report_set_old_names(o);
    return o;
}

/* ---- printing ---- */

static int print_json(const struct line *line, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(all, json_of(&line[i]));
    return json_print(all, JSON_COMPACT);
}

/* The same names and values as JSON; a trace's name is quoted. */
static void print_csv(const struct line *line, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        json_t *o = json_of(&line[i]), *value;
        const char *name, *comma = "";
        if (!i)
            json_object_foreach(o, name, value) {
                printf("%s%s", comma, name);
                comma = ",";
            }
        comma = i ? "" : "\n";
        json_object_foreach(o, name, value) {
            char *text = json_dumps(value, JSON_ENCODE_ANY);
            printf("%s%s", comma, text);
            free(text);
            comma = ",";
        }
        putchar('\n');
        json_decref(o);
    }
}

static void print_name(const struct line *l)
{
    printf("%-10s %-7s %7s %6" PRIu32, l->x.policy, l->x.prefetch,
           figure((double)l->memory / 0x1p30).text, l->x.plan.expert_frames);
}

static void print_times(const struct line *l)
{
    struct figures f;
    figures_of(l, &f);
    print_name(l);
    printf(" %8s %8s %7s %6s %6s %5s\n", figure(f.seconds / f.tokens).text,
           figure(f.bytes / f.tokens / 1e9).text,
           figure(share(f.seconds, f.floor_s)).text,
           figure_points(share(f.wait_trunk, f.seconds)).text,
           figure_points(share(f.wait_expert, f.seconds)).text,
           figure_points(f.idle_share).text);
}

static void print_experts(const struct line *l)
{
    const struct fetch_counts *e = &l->x.experts;
    double loads = (double)e->loads, prefetches = (double)e->prefetched;
    double used = (double)(e->prefetch_hits + e->late);
    print_name(l);
    printf(" %6s %6s %6s %6s",
           figure_points(share((double)e->hits, (double)e->requests)).text,
           figure_points(share((double)e->prefetch_hits, loads)).text,
           figure_points(share(used, loads)).text,
           figure_points(share(prefetches - used, prefetches)).text);
    if (l->min_loads > 0)
        printf(" %7s\n", figure(loads / (double)l->min_loads).text);
    else
        printf(" %7s\n", "-");
}

/* Two tables, as one would be wider than a terminal: where the time went, and
 * where the experts came from. */
static void print_tables(const struct scene *s, const struct line *line,
                         uint32_t n)
{
    const struct passes_facts *f = &s->facts;
    double rate = 0;
    for (uint32_t d = 0; d < s->a->s.drives; d++)
        rate += (double)s->a->s.drive[d].bytes_per_s / 1e9;
    printf("%s\n%s, %s; %s, %s GB/s in all\ntimes and bytes are of %s\n",
           shown(s->path).text, figure_count(f->passes, "pass").text,
           figure_count(f->records, "row").text,
           figure_count(s->a->s.drives, "drive").text,
           figure_chosen(rate).text,
           f->decode_passes ? "the decode passes" : "all passes");
    if (!s->a->compute)
        printf("compute takes %s s a pass: its weights at %s GB/s "
               "(--compute)\n", figure(token_compute_s(&s->meta.config)).text,
               figure_chosen(TOKEN_MEMORY_BYTES / 1e9).text);
    printf("%-10s %-8s%7s %6s %8s %8s %7s %6s %6s %5s\n", "policy",
           "prefetch", "GiB", "frames", "s/token", "GB/token", "x floor",
           "trunk%", "exprt%", "idle%");
    for (uint32_t i = 0; i < n; i++)
        print_times(&line[i]);
    printf("\n%-10s %-8s%7s %6s %6s %6s %6s %6s %7s\n", "policy", "prefetch",
           "GiB", "frames", "hits%", "ahead%", "cover%", "waste%", "x min");
    for (uint32_t i = 0; i < n; i++)
        print_experts(&line[i]);
}

/* The metrics of one line, as replay_page draws them. */
static struct replay_point point_of(const struct line *l, bool by_memory)
{
    struct figures f;
    const struct fetch_counts *e = &l->x.experts;
    figures_of(l, &f);
    return (struct replay_point){
        .policy = l->x.policy, .prefetch = l->x.prefetch,
        .x = by_memory ? (double)l->memory / 0x1p30
                       : (double)l->x.plan.expert_frames,
        .metric = { f.seconds / f.tokens, f.bytes / f.tokens / 1e9,
                    100 * share((double)e->hits, (double)e->requests),
                    100 * share(f.wait_trunk, f.seconds),
                    100 * share(f.wait_expert, f.seconds),
                    100 * f.idle_share } };
}

static int draw(const struct timed_args *a, const struct line *line,
                uint32_t n, bool by_memory)
{
    static const struct replay_metric metrics[] = {
        { "Time", "s a token" }, { "Bytes read", "GB a token" },
        { "Hits", "% of expert requests" },
        { "Waiting for the trunk", "% of the time" },
        { "Waiting for experts", "% of the time" },
        { "Drives idle", "% of the time" },
    };
    struct replay_curves *c = calloc(n + 1, sizeof *c);
    struct replay_point *point = calloc(n + 1, sizeof *point);
    uint32_t traces = 0;
    char about[160];
    double rate = 0;
    for (uint32_t d = 0; d < a->s.drives; d++)
        rate += (double)a->s.drive[d].bytes_per_s / 1e9;
    snprintf(about, sizeof about, "Simulated on a virtual clock: %s with %s "
             "GB/s, compute %s", figure_count(a->s.drives, "drive").text,
             figure_chosen(rate).text,
             a->compute ? a->compute : "at 100 GB/s of weights");
    for (uint32_t i = 0; c && point && i < n; i++) {
        if (!i || strcmp(line[i].path, line[i - 1].path))
            c[traces++] = (struct replay_curves){
                .trace = line[i].path, .point = point + i,
                .x_unit = by_memory ? "GiB of memory" : "experts that fit",
                .about = "New tokens, or all if the trace has none." };
        c[traces - 1].points++;
        point[i] = point_of(&line[i], by_memory);
    }
    int status = c && point
                     ? replay_page(a->html, about, c, traces, metrics, 6)
                     : 1;
    free(c);
    free(point);
    return status;
}

static int failed(const struct error *error)
{
    fprintf(stderr, "sluice: %s\n", error->text);
    return 1;
}

int replay_timed(const struct timed_args *a, const struct replay_options *r,
                 const char *const *paths, int count)
{
    struct error error = { 0 };
    uint32_t each = r->policies * r->prefetches *
                    (a->memories ? a->memories : 1) *
                    (r->frame_counts ? r->frame_counts : 1);
    struct line *line = calloc((size_t)each * (size_t)count + 1, sizeof *line);
    uint32_t n = 0;
    int err =
        line ? 0 : error_set(&error, -ENOMEM, "no memory for the results");
    for (int t = 0; t < count && !err; t++) {
        struct scene s;
        uint32_t first = n;
        err = open_scene(&s, paths[t], a, r, &error);
        if (!err)
            err = run_scene(&s, line, &n, &error);
        if (!err && !a->json && !a->csv)
            print_tables(&s, line + first, n - first);
        close_scene(&s);
    }
    int status = err ? failed(&error) : 0;
    if (!err && a->html)
        status = draw(a, line, n, !r->frame_counts);
    if (!err && a->json)
        status |= print_json(line, n);
    else if (!err && a->csv)
        print_csv(line, n);
    free(line);
    return status;
}

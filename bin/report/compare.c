#include "bin/report/compare.h"
#include "bin/cli/json.h"
#include "model/ckpt/figure.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { PATH_BYTES = 128, VALUE_BYTES = 96, COLUMN = 24 };

/* The results that are compared, in the order of the table. */
static const struct metric {
    const char *label, *unit;
    double      scale; /* of the number in the report */
    const char *path, *over; /* over: divide by it, NULL: nothing */
} metrics[] = {
    { "time a token", "s", 1, "decode.seconds_per_token", NULL },
    { "ids a second", "/s", 1, "batch.ids_per_s", NULL },
    { "requests a second", "/s", 1, "batch.requests_per_s", NULL },
    { "time a new token", "s", 1, "batch.seconds_per_token", NULL },
    { "CPU a new token", "s", 1, "batch.cpu_seconds_per_token", NULL },
    { "read a new token", "GB", 1e-9, "batch.bytes_per_token", NULL },
    { "read a token", "GB", 1e-9, "decode.read_bytes_per_token", NULL },
    { "prefill", "s", 1, "prefill.seconds", NULL },
    { "read in prefill", "GB", 1e-9, "prefill.read_bytes", NULL },
    { "wait for the trunk", "s", 1, "decode.wait_trunk_s", NULL },
    { "wait for experts", "s", 1, "decode.wait_expert_s", NULL },
    { "compute", "s", 1, "decode.compute_s", NULL },
    { "overlap", "", 1, "decode.overlap", NULL },
    { "drive idle", "%", 100, "decode.disk_idle_share", NULL },
    { "expert hits", "%", 100, "experts.hits", "experts.requests" },
    { "read and not used", "GB", 1e-9, "decode.wasted_bytes", NULL },
    { "drive's own rate", "GB/s", 1e-9, "io.raw_bytes_per_s", NULL },
    { "opening", "s", 1, "open_s", NULL },
    { "measuring drives", "s", 1, "probe_s", NULL },
    { "whole run", "s", 1, "wall_seconds", NULL },
    { "CPU time", "s", 1, "cpu_seconds", NULL },
    { "peak memory", "GiB", 1.0 / (1 << 30), "peak_rss_bytes", NULL },
};
enum { METRICS = sizeof metrics / sizeof *metrics };

/* Set-up of a report without a `setup` object, and what is not in one. A name
 * that `setup` has too is shown once. */
static const struct field {
    const char *path, *name;
} set_up[] = {
    { "policy", "policy" },
    { "prefetch", "prefetch" },
    { "isa", "isa" },
    { "threads", "threads" },
    { "version", "version" },
    { "plan.budget_bytes", "memory_bytes" },
    { "plan.rows", "rows" },
    { "plan.sequences", "sequences" },
    { "io.method", "io" },
    { "io.direct", "direct reads" },
    { "prompt_ids", "prompt_ids" },
};

/* These may differ between two runs of one set-up. */
static const char *const incidental[] = { "run", "date", "command",
                                          "model.folder" };

/* The name of a field of `setup`. */
static const char *name_of(const char *path)
{
    const char *name = path + strlen("setup.");
    return strncmp(name, "options.", 8) ? name : name + 8;
}

static const json_t *find(const json_t *o, const char *path)
{
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s", path);
    for (char *part = name, *dot; o && part; part = dot ? dot + 1 : NULL) {
        dot = strchr(part, '.');
        if (dot)
            *dot = '\0';
        o = json_object_get(o, part);
    }
    return o;
}

int compare_add(struct compare *c, int group, const char *path,
                struct error *error)
{
    assert(group == 0 || group == 1);
    if (c->n[group] == STATS_RUNS_MAX)
        return error_set(error, -EINVAL, "%s: more than %d reports in a group",
                         path, STATS_RUNS_MAX);
    json_error_t where;
    json_t *o = json_load_file(path, 0, &where);
    if (!o)
        return error_set(error, -EBADMSG, "%s: not a report: %s", path,
                         where.text);
    if (!json_is_object(find(o, "decode")) ||
        !json_is_object(find(o, "plan"))) {
        json_decref(o);
        return error_set(error, -EBADMSG, "%s: not the report of a run or of "
                         "a batch", path);
    }
    c->report[group][c->n[group]++] = o;
    return 0;
}

void compare_free(struct compare *c)
{
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < c->n[g]; i++)
            json_decref(c->report[g][i]);
    *c = (struct compare){ 0 };
}

/* ---- set-up ---- */

static void show_value(char out[VALUE_BYTES], const json_t *v)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT |
                                       JSON_REAL_PRECISION(6))
                   : NULL;
    if (json_is_string(v))
        snprintf(out, VALUE_BYTES, "%s", json_string_value(v));
    else
        snprintf(out, VALUE_BYTES, "%s", text ? text : "not in the report");
    free(text);
}

/* What a group says of a field: its value, or NULL and `mixed`. */
static const json_t *group_value(const struct compare *c, int g,
                                 const char *path, bool *mixed)
{
    const json_t *first = find(c->report[g][0], path);
    for (size_t i = 1; i < c->n[g]; i++) {
        const json_t *v = find(c->report[g][i], path);
        if ((v || first) && !json_equal(v, first))
            *mixed = true;
    }
    return first;
}

/* Add to `list` the field if the groups differ in it, or a group in itself. */
static void compare_field(const struct compare *c, const char *path,
                          const char *name, json_t *list)
{
    bool mixed[2] = { false, false };
    char text[2][VALUE_BYTES];
    const json_t *v[2], *entry;
    size_t at;
    json_array_foreach(list, at, entry)
        if (!strcmp(json_string_value(json_object_get(entry, "field")), name))
            return;
    for (size_t i = 0; i < sizeof incidental / sizeof *incidental; i++)
        if (!strcmp(name, incidental[i]))
            return;
    for (int g = 0; g < 2; g++) {
        v[g] = group_value(c, g, path, &mixed[g]);
        if (mixed[g])
            snprintf(text[g], VALUE_BYTES, "not the same in all");
        else
            show_value(text[g], v[g]);
    }
    bool same = !v[0] && !v[1];
    same = same || (v[0] && v[1] && json_equal(v[0], v[1]));
    if (same && !mixed[0] && !mixed[1])
        return;
    json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "field",
                                          json_bytes(name), "a",
                                          json_bytes(text[0]), "b",
                                          json_bytes(text[1])));
}

static void compare_tree(const struct compare *c, const json_t *object,
                         const char *prefix, json_t *list)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s.%s", prefix, key);
        if (json_is_object(value))
            compare_tree(c, value, path, list);
        else
            compare_field(c, path, name_of(path), list);
    }
}

static json_t *set_up_of(const struct compare *c)
{
    json_t *list = json_array();
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < c->n[g]; i++)
            compare_tree(c, find(c->report[g][i], "setup"), "setup", list);
    for (size_t i = 0; i < sizeof set_up / sizeof *set_up; i++)
        compare_field(c, set_up[i].path, set_up[i].name, list);
    return list;
}

/* ---- result ---- */

static bool metric_value(const json_t *report, const struct metric *m,
                         double *out)
{
    const json_t *v = find(report, m->path);
    if (!json_is_number(v))
        return false;
    *out = json_number_value(v) * m->scale;
    if (m->over) {
        double over = json_number_value(find(report, m->over));
        if (!(over > 0))
            return false;
        *out /= over;
    }
    return isfinite(*out);
}

static bool metric_group(const struct compare *c, int g,
                         const struct metric *m, struct stats_group *out)
{
    out->n = 0;
    for (size_t i = 0; i < c->n[g]; i++)
        if (metric_value(c->report[g][i], m, &out->value[out->n]))
            out->n++;
    return out->n == c->n[g];
}

static double widest(const struct stats_group *g)
{
    double low = g->value[0], high = low;
    for (size_t i = 1; i < g->n; i++) {
        low = fmin(low, g->value[i]);
        high = fmax(high, g->value[i]);
    }
    return high - low;
}

/* One false "differs" in twenty comparisons of the whole table. */
static json_t *results_of(const struct compare *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < METRICS; i++) {
        const struct metric *m = &metrics[i];
        struct stats_group a, b;
        if (!metric_group(c, 0, m, &a) || !metric_group(c, 1, m, &b))
            continue;
        struct stats_result r = stats_compare(&a, &b, 0.05 / METRICS);
        if (r.mean_a == 0 && r.mean_b == 0)
            continue;
        json_t *o = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:b, s:b}",
                              "name", m->label, "unit", m->unit, "a",
                              r.mean_a, "b", r.mean_b, "spread_a", widest(&a),
                              "spread_b", widest(&b), "noise_known", r.known,
                              "differs", r.differs);
        if (r.mean_a > 0)
            set_real(o, "ratio", r.mean_b / r.mean_a);
        if (r.mean_a > 0 && r.known) {
            set_real(o, "ratio_low", fmax(0, 1 + r.low / r.mean_a));
            set_real(o, "ratio_high", 1 + r.high / r.mean_a);
        }
        json_array_append_new(list, o);
    }
    return list;
}

json_t *compare_json(const struct compare *c)
{
    assert(c->n[0] && c->n[1]);
    return json_pack("{s:I, s:I, s:o, s:o}", "runs_a", (json_int_t)c->n[0],
                     "runs_b", (json_int_t)c->n[1], "setup", set_up_of(c),
                     "result", results_of(c));
}

/* ---- for people ---- */

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static double number_of(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static void show_number(char out[VALUE_BYTES], double v, const char *unit)
{
    snprintf(out, VALUE_BYTES, "%s %s", figure(v).text, unit);
}

static void print_results(FILE *out, const json_t *results)
{
    size_t i;
    json_t *o;
    fprintf(out, "\n%-20s %14s %14s %8s  %s\n", "result", "A", "B", "B / A",
            "range of B / A");
    json_array_foreach(results, i, o) {
        char a[VALUE_BYTES], b[VALUE_BYTES];
        show_number(a, number_of(o, "a"), text_of(o, "unit"));
        show_number(b, number_of(o, "b"), text_of(o, "unit"));
        fprintf(out, "%-20s %14s %14s", text_of(o, "name"), a, b);
        if (json_object_get(o, "ratio"))
            fprintf(out, " %8s", figure(number_of(o, "ratio")).text);
        else
            fprintf(out, " %8s", "");
        bool known = json_is_true(json_object_get(o, "noise_known"));
        bool differs = json_is_true(json_object_get(o, "differs"));
        if (known && json_object_get(o, "ratio"))
            fprintf(out, "  %s .. %s%s", figure(number_of(o, "ratio_low")).text,
                    figure(number_of(o, "ratio_high")).text,
                    differs ? "  differs" : "");
        fputc('\n', out);
    }
}

static void print_set_up(FILE *out, const json_t *list)
{
    size_t i;
    json_t *o;
    if (!json_array_size(list)) {
        fputs("\nset-up: the same\n", out);
        return;
    }
    fprintf(out, "\n%-24s %-*s %s\n", "set-up", COLUMN, "A", "B");
    json_array_foreach(list, i, o)
        fprintf(out, "%-24s %-*s %s\n", text_of(o, "field"), COLUMN,
                text_of(o, "a"), text_of(o, "b"));
}

/* The first sentence: what changed, and what that did. */
static void print_verdict(FILE *out, const json_t *whole)
{
    const json_t *list = json_object_get(whole, "setup");
    const json_t *results = json_object_get(whole, "result");
    size_t fields = json_array_size(list), i, differing = 0;
    bool known = false;
    json_t *o;
    json_array_foreach(results, i, o) {
        known |= json_is_true(json_object_get(o, "noise_known"));
        differing += json_is_true(json_object_get(o, "differs"));
    }
    if (!fields)
        fputs("The set-up is the same: ", out);
    else if (fields == 1)
        fprintf(out, "%s differs: ",
                text_of(json_array_get(list, 0), "field"));
    else
        fprintf(out, "%zu things differ in the set-up: ", fields);
    if (!known)
        fputs("one run in a group says nothing about noise; give several of "
              "each (A*.json -- B*.json).\n", out);
    else if (!differing)
        fputs("no difference beyond noise.\n", out);
    else {
        const char *comma = "";
        json_array_foreach(results, i, o) {
            if (!json_is_true(json_object_get(o, "differs")))
                continue;
            if (json_object_get(o, "ratio"))
                fprintf(out, "%s%s x %s (%s to %s)", comma, text_of(o, "name"),
                        figure(number_of(o, "ratio")).text,
                        figure(number_of(o, "ratio_low")).text,
                        figure(number_of(o, "ratio_high")).text);
            else
                fprintf(out, "%s%s 0 to %s", comma, text_of(o, "name"),
                        figure(number_of(o, "b")).text);
            comma = ", ";
        }
        fputs(".\n", out);
    }
}

void compare_print(FILE *out, const struct compare *c)
{
    json_t *whole = compare_json(c);
    fprintf(out, "A: %zu run%s, B: %zu run%s.\n", c->n[0],
            c->n[0] == 1 ? "" : "s", c->n[1], c->n[1] == 1 ? "" : "s");
    print_verdict(out, whole);
    print_set_up(out, json_object_get(whole, "setup"));
    print_results(out, json_object_get(whole, "result"));
    json_decref(whole);
}

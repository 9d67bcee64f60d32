/* cmd_replay.c - sluice replay: cache and prefetch policies on a trace. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/json.h"
#include "bin/cli/names.h"
#include "bin/cli/opt.h"
#include "bin/cli/outputs.h"
#include "bin/cli/session.h"
#include "bin/cmd.h"
#include "bin/html/replay_page.h"
#include "bin/replay/accepted.h"
#include "bin/replay/timed.h"
#include "bin/report/report.h"
#include "model/ckpt/figure.h"
#include "model/sim/replay.h"
#include "sched/cache/cache.h"
#include "sched/prefetch/governor.h"
#include "sched/prefetch/prefetcher.h"

#define LIST_MAX 64 /* entries of a list option */
#define TRACES_MAX 64

struct options {
    const char *policy[LIST_MAX], *prefetch[LIST_MAX];
    uint32_t frames[LIST_MAX];
    uint32_t policies, prefetches, frame_counts;
    char *policy_words, *prefetch_words; /* behind policy and prefetch */
    const char *pin_file;
    uint64_t width;
    double acceptance; /* 0: not asked for */
    bool json, csv, repair;
};

/* -- lists --------------------------------------------------------------- */

/* The next word of a comma-separated list, or NULL. */
static char *next_word(char **rest)
{
    return *rest ? strsep(rest, ",") : NULL;
}

static bool is_policy(const char *word)
{
    const char *name;
    for (uint32_t i = 0; (name = cache_policy_name(i, NULL, NULL)); i++)
        if (!strcmp(name, word))
            return true;
    return false;
}

static bool is_prefetch(const char *word)
{
    const char *name;
    for (uint32_t i = 0; (name = prefetcher_name(i, NULL)); i++)
        if (!strcmp(name, word))
            return true;
    return !strcmp(word, "perfect") || !strcmp(word, "auto");
}

/* Those that need more than a trace. */
static bool needs_clock(const char *word)
{
    return !strcmp(word, "gate") || !strcmp(word, "auto");
}

/* Returns "", what is wrong, or NULL for an unknown word. */
static const char *read_names(const char **list, uint32_t *count, char **words,
                              bool (*known)(const char *), const char *value)
{
    free(*words);
    *words = strdup(value);
    char *rest = *words, *word;
    *count = 0;
    if (!rest)
        return "does not fit in memory";
    while ((word = next_word(&rest))) {
        if (*count == LIST_MAX)
            return "has more than 64 names";
        if (!known(word))
            return NULL;
        bool twice = false;
        for (uint32_t i = 0; i < *count; i++)
            twice |= !strcmp(list[i], word);
        if (!twice)
            list[(*count)++] = word;
    }
    return "";
}

/* What is wrong with an unknown name, in a static buffer. */
static const char *unknown(const char *kind, bool policies)
{
    static char text[320];
    snprintf(text, sizeof text, "names no %s; the names are %s", kind,
             names_list(policies));
    return text;
}

static const char *read_policies(void *arg, const char *value)
{
    struct options *o = arg;
    const char *wrong = read_names(o->policy, &o->policies, &o->policy_words,
                                   is_policy, value);
    if (!wrong)
        return unknown("policy", true);
    return *wrong ? wrong : NULL;
}

static const char *read_prefetches(void *arg, const char *value)
{
    struct options *o = arg;
    const char *wrong = read_names(o->prefetch, &o->prefetches,
                                   &o->prefetch_words, is_prefetch, value);
    if (!wrong)
        return unknown("prefetcher", false);
    return *wrong ? wrong : NULL;
}

static void add_once(uint32_t *list, uint32_t *count, uint32_t value)
{
    for (uint32_t i = 0; i < *count; i++)
        if (list[i] == value)
            return;
    list[(*count)++] = value;
}

static const char *read_frames(void *arg, const char *value)
{
    struct options *o = arg;
    char *rest = strdup(value), *list = rest, *word;
    const char *wrong = rest ? NULL : "does not fit in memory";
    o->frame_counts = 0;
    while (!wrong && (word = next_word(&rest))) {
        char *end;
        errno = 0;
        unsigned long long n = strtoull(word, &end, 10);
        if (o->frame_counts == LIST_MAX)
            wrong = "has more than 64 numbers";
        else if (word[0] < '0' || word[0] > '9' || *end || errno ||
                 n > INT32_MAX)
            wrong = "is not a list of numbers of frames";
        else
            add_once(o->frames, &o->frame_counts, (uint32_t)n);
    }
    free(list);
    return wrong;
}

/* -- numbers ------------------------------------------------------------- */

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

/* The counts of the decode passes, or of all if there are none: a prompt's
 * first pass finds nothing in any cache. */
static const struct replay_count *counts_of(const struct replay *r,
                                         const struct replay_result *x)
{
    return r->facts.decode_passes ? &x->decode : &x->all;
}

static double tokens_of(const struct replay *r)
{
    return (double)(r->facts.decode_passes ? r->facts.tokens
                                           : r->facts.records);
}

/* Expert bytes read a token: loads and wrong prefetches. */
static double bytes_per_token(const struct replay *r,
                              const struct replay_result *x)
{
    const struct replay_count *c = counts_of(r, x);
    uint64_t reads = c->loads + c->prefetched - c->prefetch_hits;
    return tokens_of(r) > 0 ? (double)reads *
                                  (double)r->facts.info.expert_bytes /
                                  tokens_of(r)
                            : 0;
}

/* The result of `min` with as many frames and no prefetch, or NULL. */
static const struct replay_result *min_of(const struct replay *r,
                                          uint32_t frames)
{
    for (uint32_t i = 0; i < r->results; i++)
        if (!strcmp(r->result[i].policy, "min") &&
            r->result[i].frames == frames)
            return &r->result[i];
    return NULL;
}

/* -- printing ------------------------------------------------------------ */

static json_t *json_of(const char *path, const struct replay *r,
                       const struct replay_result *x)
{
    json_t *loads = json_array(), *hits = json_array();
    for (uint32_t i = 0; i < r->facts.passes; i++) {
        json_array_append_new(loads, json_integer(x->step_loads[i]));
        json_array_append_new(hits, json_integer((json_int_t)x->step_hits[i]));
    }
    const struct replay_count *a = &x->all, *d = &x->decode;
    json_t *o = json_pack(
        "{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I,"
        " s:I, s:I, s:I, s:f}",
        "trace", json_bytes(path), "policy", x->policy, "prefetch", x->prefetch,
        "frames", (json_int_t)x->frames, "requests",
        (json_int_t)a->requests, "hits",
        (json_int_t)(a->requests - a->loads), "loads", (json_int_t)a->loads,
        "step_loads", loads, "step_hits", hits, "decode_requests",
        (json_int_t)d->requests, "decode_hits",
        (json_int_t)(d->requests - d->loads), "decode_loads",
        (json_int_t)d->loads, "evictions", (json_int_t)x->evictions, "bypassed",
        (json_int_t)x->bypassed, "prefetched", (json_int_t)a->prefetched,
        "prefetch_hits", (json_int_t)a->prefetch_hits,
        "expert_bytes_per_token", bytes_per_token(r, x));
    report_set_old_names(o);
    return o;
}

static int print_json(char **paths, struct replay **replays, int count)
{
    json_t *all = json_array();
    for (int t = 0; t < count; t++)
        for (uint32_t i = 0; i < replays[t]->results; i++)
            json_array_append_new(all, json_of(paths[t], replays[t],
                                               &replays[t]->result[i]));
    return json_print(all, JSON_COMPACT);
}

static void print_csv(char **paths, struct replay **replays, int count)
{
    puts("trace,policy,prefetch,frames,requests,hits,loads,decode_requests,"
         "decode_hits,decode_loads,evictions,bypassed,prefetched,prefetch_hits,"
         "expert_bytes_per_token");
    for (int t = 0; t < count; t++) {
        for (uint32_t i = 0; i < replays[t]->results; i++) {
            const struct replay_result *x = &replays[t]->result[i];
            const struct replay_count *a = &x->all, *d = &x->decode;
            putchar('"');
            for (const char *c = paths[t]; *c; c++)
                printf(*c == '"' ? "\"\"" : "%c", *c);
            printf("\",%s,%s,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                   ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                   ",%" PRIu64 ",%.0f\n",
                   x->policy, x->prefetch, x->frames, a->requests,
                   a->requests - a->loads, a->loads, d->requests,
                   d->requests - d->loads, d->loads, x->evictions, x->bypassed,
                   a->prefetched, a->prefetch_hits,
                   bytes_per_token(replays[t], x));
        }
    }
}

static void print_row(const struct replay *r, const struct replay_result *x,
                      bool prefetches)
{
    const struct replay_count *c = counts_of(r, x);
    const struct replay_result *min = min_of(r, x->frames);
    uint64_t hits = c->requests - c->loads;
    uint64_t pool = (uint64_t)r->facts.info.layers * r->facts.info.experts;
    printf("%-10s %-7s %7u %6s %6s %9s", x->policy, x->prefetch,
           x->frames,
           figure_points(share(x->frames < pool ? x->frames : pool, pool)).text,
           figure_points(share(hits, c->requests)).text,
           figure((double)c->loads / tokens_of(r)).text);
    if (r->facts.info.expert_bytes)
        printf(" %7s", figure(bytes_per_token(r, x) / 1e9).text);
    else
        printf(" %7s", "-");
    if (min)
        printf(" %6s", figure_points(share(counts_of(r, min)->requests -
                                               counts_of(r, min)->loads,
                                           c->requests) -
                                     share(hits, c->requests)).text);
    else
        printf(" %6s", "-");
    if (prefetches && strcmp(x->prefetch, "none"))
        printf(" %6s %6s",
               figure_points(share(c->prefetch_hits, c->loads)).text,
               figure_points(share(c->prefetched - c->prefetch_hits,
                                  c->prefetched)).text);
    putchar('\n');
}

static void print_table(const char *path, const struct replay *r)
{
    const struct passes_facts *f = &r->facts;
    bool prefetches = false;
    for (uint32_t i = 0; i < r->results; i++)
        prefetches |= strcmp(r->result[i].prefetch, "none") != 0;
    printf("%s\n%s of %s, top %u; %s, %s\n%s; counted over %s\n",
           shown(path).text,
           figure_count(f->info.layers, "layer").text,
           figure_count(f->info.experts, "expert").text, f->info.top_k,
           figure_count(f->passes, "pass").text,
           figure_count(f->records, "row").text,
           figure_count(f->requests, "request").text,
           f->decode_passes ? "the decode passes" : "all passes");
    printf("%-10s %-8s%7s %6s %6s %9s %7s %6s%s\n", "policy", "prefetch",
           "frames", "% pool", "hits %", "loads/tok", "GB/tok", "to min",
           prefetches ? " cover% waste%" : "");
    for (uint32_t i = 0; i < r->results; i++)
        print_row(r, &r->result[i], prefetches);
}

/* -- running ------------------------------------------------------------- */

/* 1, 2, 5, 10 and 20 % of all experts, or how many of them differ. */
static uint32_t default_frames(uint32_t frames[5], const struct trace_info *i)
{
    static const uint32_t percent[5] = { 1, 2, 5, 10, 20 };
    uint32_t n = 0;
    for (int k = 0; k < 5; k++)
        add_once(frames, &n, (uint32_t)((uint64_t)i->layers * i->experts *
                                        percent[k] / 100));
    return n;
}

static struct replay_options options_of(const struct options *o)
{
    return (struct replay_options){
        .policy = o->policy,
        .prefetch = o->prefetch,
        .frames = o->frames,
        .policies = o->policies,
        .prefetches = o->prefetches,
        .frame_counts = o->frame_counts,
        .pin_file = o->pin_file,
        .width = (uint32_t)o->width,
        .repair = o->repair,
    };
}

static int replay(struct replay **out, const char *path,
                  const struct options *o)
{
    struct error error = { 0 };
    uint32_t frames[5] = { 0 };
    struct replay_options ro = options_of(o);
    if (!ro.frame_counts) {
        struct trace *t;
        struct trace_fault fault;
        if (!trace_open(&t, path, o->repair, &fault)) {
            ro.frame_counts = default_frames(frames, trace_info(t));
            trace_close(t);
        } else { /* replay_run says why not */
            ro.frame_counts = 1;
        }
        ro.frames = frames;
    }
    if (replay_run(out, path, &ro, &error)) {
        fprintf(stderr, "sluice: %s\n", error.text);
        return 1;
    }
    const struct passes_facts *f = &(*out)->facts;
    if (f->tail_bytes || f->missing)
        fprintf(stderr, "sluice: %s: the end was repaired: %" PRIu64 " bytes "
                "left out, %" PRIu64 " records missing, %" PRIu64 " used\n",
                shown(path).text, f->tail_bytes, f->missing, f->records);
    return 0;
}

static int print_all(const struct options *o, char **paths,
                     struct replay **replays, int count)
{
    if (o->json)
        return print_json(paths, replays, count);
    if (o->csv) {
        print_csv(paths, replays, count);
        return 0;
    }
    for (int t = 0; t < count; t++) {
        if (t > 0)
            putchar('\n');
        print_table(paths[t], replays[t]);
    }
    return 0;
}

/* Without a clock: every trace, then what to print of them. */
static int replay_all(const struct options *o, const char *html,
                      const char *const *paths, int count)
{
    struct replay *replays[TRACES_MAX];
    int done = 0, status = 0;
    while (done < count && !(status = replay(&replays[done], paths[done], o)))
        done++;
    if (!status)
        status = print_all(o, (char **)paths, replays, count);
    if (!status && html)
        status = replay_page_counts(html, paths, replays, (uint32_t)count);
    for (int t = 0; t < done; t++)
        replay_free(replays[t]);
    return status;
}

/* The page is none of the files that are read, and can be written. */
static int check(const struct options *o, const struct timed_args *t,
                 const char *const *paths, int count)
{
    struct error error = { 0 };
    int err = outputs_writable(t->html, "the page", &error);
    for (int i = 0; i < count && !err; i++) {
        const struct output_file files[] = {
            { .option = "the trace", .path = paths[i], .read = true },
            { .option = "--pin", .path = o->pin_file, .read = true },
            { .option = "--compute", .path = t->compute, .read = true },
            { .option = "stdout", .path = OUTPUTS_STDOUT },
            { .option = "--html", .path = t->html } };
        err = outputs_check(files, sizeof files / sizeof *files, t->model,
                            &error);
    }
    return err ? session_failed(NULL, &error) : 0;
}

/* 0, or the status of a usage error. */
static int usage(const struct opt_command *command, const struct options *o,
                 const struct timed_args *t, int count)
{
    if (count == 0)
        return opt_usage_error(command, "replay needs a trace");
    if (o->width > GOVERNOR_WIDTH_MAX)
        return opt_usage_error(command, "--width is at most 16");
    if (!(o->acceptance >= 0 && o->acceptance <= 1))
        return opt_usage_error(command, "--acceptance is from 0 to 1");
    if (o->acceptance > 0 && (t->s.drives || o->csv || t->html))
        return opt_usage_error(command, "--acceptance goes with --json and "
                               "--repair alone");
    if (o->json && o->csv)
        return opt_usage_error(command, "--json or --csv, not both");
    for (uint32_t i = 0; i < o->policies; i++)
        if (!strcmp(o->policy[i], "static-pin") && !o->pin_file)
            return opt_usage_error(command, "static-pin needs --pin TRACE");
    if (t->s.drives && o->policies == 1 && !strcmp(o->policy[0], "min"))
        return opt_usage_error(command, "the policy min knows the future and "
                               "has no time: with --simulate-drive name "
                               "another, whose loads are told beside its");
    if (!t->s.drives && (t->memories || t->compute || t->model))
        return opt_usage_error(command, "--memory, --compute and --model need "
                               "--simulate-drive");
    return 0;
}

/* A trace that was named twice is read once. */
static int drop_twins(const char **paths, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        int j = 0;
        while (j < n && strcmp(paths[j], paths[i]))
            j++;
        if (j == n)
            paths[n++] = paths[i];
    }
    return n;
}

/* Check what was asked for, and do it. */
static int start(const struct opt_command *command, struct options *o,
                 struct timed_args *timed, const char **paths, int count)
{
    count = drop_twins(paths, count);
    int misused = usage(command, o, timed, count);
    if (misused)
        return misused;
    if (check(o, timed, paths, count))
        return 1;
    if (o->acceptance > 0)
        return replay_accepted(o->acceptance, paths, count, o->repair, o->json);
    if (timed->s.drives) {
        struct replay_options ro = options_of(o);
        for (uint32_t i = 0; i < o->policies && o->policy_words; i++)
            if (!strcmp(o->policy[i], "min"))
                fputs("sluice: min knows the future and has no time; its loads "
                      "are the column x min, or min_loads\n", stderr);
        timed->json = o->json;
        timed->csv = o->csv;
        return replay_timed(timed, &ro, paths, count);
    }
    for (uint32_t i = 0; i < o->prefetches; i++)
        if (needs_clock(o->prefetch[i]))
            return opt_usage_error(command, "--prefetch %s needs a "
                                   "--simulate-drive: a trace alone does not "
                                   "have what it reads", o->prefetch[i]);
    return replay_all(o, timed->html, paths, count);
}

int cmd_replay(int argc, char **argv)
{
    static struct options o = {
        .policy = { "dhd", "lru", "min" },
        .policies = 3,
        .prefetch = { "none" },
        .prefetches = 1,
        .width = GOVERNOR_WIDTH_MAX,
    };
    static struct timed_args timed;
    static const struct opt table[] = {
        { "policy", 0, OPT_CALL, &o, "A,B",
          "cache policies; default dhd,lru,min", read_policies },
        { "prefetch", 0, OPT_CALL, &o, "C,D",
          "prefetchers; gate and auto need --simulate-drive; default none",
          read_prefetches },
        { "frames", 0, OPT_CALL, &o, "N,M",
          "experts that the cache holds; default: 1, 2, 5, 10 and 20 % of all",
          read_frames },
        { "pin", 0, OPT_TEXT, &o.pin_file, "TRACE",
          "the trace whose most used experts static-pin keeps", NULL },
        { "width", 0, OPT_UINT, &o.width, "N",
          "prefetches in a layer, at most 16; default 16", NULL },
        { "acceptance", 0, OPT_REAL, &o.acceptance, "P",
          "instead: ids and experts of a pass, had it had 1 to 7 drafts that "
          "are each right with chance P", NULL },
        { "repair", 0, OPT_FLAG, &o.repair, NULL,
          "read a truncated trace up to its last whole record", NULL },
        { "json", 0, OPT_FLAG, &o.json, NULL, "print JSON", NULL },
        { "csv", 0, OPT_FLAG, &o.csv, NULL, "print CSV", NULL },
        { "html", 0, OPT_TEXT, &timed.html, "FILE",
          "also write a page with charts", NULL },
        TIMED_OPTIONS(&timed),
        NAMES_REPLAY,
    };
    static const struct opt_command command = {
        "sluice replay TRACE... [--policy A,B] [--prefetch C,D] [--frames N,M]",
        "Compare cache policies and prefetchers on recorded routing traces. "
        "With --simulate-drive, also compute the time that a machine with that "
        "drive, --memory and --compute would take.\n\n"
        "The columns. to min: percentage points of hits below the policy min, "
        "which knows the future. x min: loads as a multiple of the loads of "
        "min. ahead: loads that a prefetch had read in time; cover: or had "
        "begun to read. waste: prefetches that no router chose. trunk, exprt: "
        "share of the time that compute waited for them. x floor: time as a "
        "multiple of the longer of reads and compute.",
        table, sizeof table / sizeof *table,
    };
    const char *paths[TRACES_MAX];
    int count = opt_parse(&command, argc, argv, paths, TRACES_MAX);
    if (count < 0)
        return opt_status(count);
    return start(&command, &o, &timed, paths, count);
}

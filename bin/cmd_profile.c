/* cmd_profile.c - sluice profile: a run, or the files of one, as a page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cli/opt.h"
#include "bin/cli/outputs.h"
#include "bin/cli/session.h"
#include "bin/cmd.h"
#include "bin/html/profile_page.h"
#include "model/sim/trace_error.h"

static const char *const default_out = "profile.html";

struct profile_args {
    const char *report, *timeline, *trace, *out;
};

/* Take `--name VALUE`, `--name=VALUE` or `-o VALUE` out of the words. */
static const char *take(int *argc, char **argv, const char *name)
{
    size_t n = strlen(name);
    const char *value = NULL;
    for (int i = 1; i < *argc && strcmp(argv[i], "--");) {
        bool joined = !strncmp(argv[i], name, n) && argv[i][n] == '=';
        bool alone = !strcmp(argv[i], name) && i + 1 < *argc;
        if (!joined && !alone) {
            i++;
            continue;
        }
        value = joined ? argv[i] + n + 1 : argv[i + 1];
        int gone = joined ? 1 : 2;
        memmove(&argv[i], &argv[i + gone],
                (size_t)(*argc - i - gone + 1) * sizeof *argv);
        *argc -= gone;
    }
    return value;
}

static int failed(const struct error *error)
{
    fprintf(stderr, "sluice: %s\n", error->text);
    return 1;
}

/* The folder among the words, or NULL. */
static const char *model_of(int argc, char **argv)
{
    struct stat st;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-' && !stat(argv[i], &st) && S_ISDIR(st.st_mode))
            return argv[i];
    return NULL;
}

/* Check first that the page can be written: the run may take hours. It is none
 * of the files that the run's own words name. */
static int check(const struct profile_args *a, int argc, char **argv,
                 struct error *error)
{
    const struct output_file files[] = {
        { .option = "--report", .path = a->report, .read = true },
        { .option = "--timeline", .path = a->timeline, .read = true },
        { .option = "--trace", .path = a->trace, .read = true },
        { .option = "--output", .path = a->out },
    };
    int err = outputs_check(files, sizeof files / sizeof *files,
                            model_of(argc, argv), error);
    for (int i = 2; i < argc && !err; i++) {
        const char *word = argv[i], *value = strchr(word, '=');
        if (!strcmp(argv[i - 1], "-p") || !strcmp(argv[i - 1], "--prompt"))
            continue;
        const struct output_file two[] = {
            { .option = argv[i - 1], .path = value ? value + 1 : word,
              .read = true },
            { .option = "--output", .path = a->out },
        };
        err = outputs_check(two, 2, NULL, error);
    }
    return err ? err : outputs_writable(a->out, "the page", error);
}

/* Files of older versions do not say of which run they are. */
static int check_run(const struct profile_args *a, const json_t *report,
                     const struct times *t, struct error *error)
{
    const char *run = json_string_value(
        json_object_get(json_object_get(report, "setup"), "run"));
    if (!run || !t || !t->run[0] || !strcmp(run, t->run))
        return 0;
    return error_set(error, -EINVAL, "%s and %s are of different runs",
                     a->report, a->timeline);
}

/* What it says is used where it is enough; that it is one is sure. */
static int check_trace(const char *path, struct error *error)
{
    struct trace *t;
    struct trace_fault fault;
    int err = trace_open(&t, path, true, &fault);
    if (err)
        return trace_error(error, err, path, &fault);
    trace_close(t);
    return 0;
}

static int render(const struct profile_args *a, const char *about)
{
    struct error error = { 0 };
    struct times *t = NULL;
    json_error_t where;
    struct output o = { .f = NULL };
    json_t *report = json_load_file(a->report, 0, &where);
    int err = 0;
    if (!report)
        err = error_set(&error, -EBADMSG, "%s: not a report: %s", a->report,
                        where.text);
    if (!err && a->timeline)
        err = times_open(&t, a->timeline, &error);
    if (!err && a->trace)
        err = check_trace(a->trace, &error);
    if (!err)
        err = check_run(a, report, t, &error);
    if (!err)
        err = output_open(&o, a->out, "the page", &error);
    if (!err)
        err = profile_page(o.f, about, report, t, a->trace, &error);
    int other = output_close(&o, !err, &error);
    err = err ? err : other;
    times_close(t);
    json_decref(report);
    if (err)
        return failed(&error);
    fprintf(stderr, "the profile is in %s\n", shown(a->out).text);
    return 0;
}

/* Run, with those of the three files that have no name in a temporary folder;
 * draw them; remove the folder. */
static int run_and_render(struct profile_args *a, int argc, char **argv)
{
    char folder[4096], report[4200], timeline[4200], trace[4200];
    char **words = calloc((size_t)argc + 7, sizeof *words);
    const char *about = "sluice run";
    bool own = !a->report || !a->timeline || !a->trace;
    int status = 1;
    snprintf(folder, sizeof folder, "%s/sluice-profile-XXXXXX",
             outputs_temporary());
    if (!words || (own && !mkdtemp(folder))) {
        fprintf(stderr, "sluice: %s: %s\n", folder, strerror(errno));
        free(words);
        return 1;
    }
    snprintf(report, sizeof report, "%s/report", folder);
    snprintf(timeline, sizeof timeline, "%s/timeline", folder);
    snprintf(trace, sizeof trace, "%s/trace", folder);
    a->trace = a->trace ? a->trace : trace;
    a->report = a->report ? a->report : report;
    a->timeline = a->timeline ? a->timeline : timeline;
    memcpy(words, argv, (size_t)argc * sizeof *words);
    words[argc] = (char *)"--report";
    words[argc + 1] = (char *)a->report;
    words[argc + 2] = (char *)"--timeline";
    words[argc + 3] = (char *)a->timeline;
    words[argc + 4] = (char *)"--trace";
    words[argc + 5] = (char *)a->trace;
    if (model_of(argc, argv))
        about = model_of(argc, argv);
    status = cmd_run(argc + 6, words);
    session_catch(NULL); /* the folder goes in any case */
    if (!status)
        status = render(a, about);
    if (own) {
        unlink(report);
        unlink(timeline);
        unlink(trace);
        rmdir(folder);
    }
    session_release();
    if (session_signal())
        status = 128 + session_signal();
    free(words);
    return status;
}

static int help(FILE *to)
{
    fputs("usage: sluice profile MODEL [-o FILE] [options of sluice run]\n"
          "       sluice profile --report FILE [--timeline FILE] "
          "[--trace FILE] [-o FILE]\n"
          "Draw where a token's time went, as an HTML page that needs no "
          "other file. With\nMODEL, run first; without, draw the files that a "
          "run has written.\n\n"
          "      --report FILE           the report to draw; with MODEL, where "
          "to keep it\n"
          "      --timeline FILE         the timeline, likewise\n"
          "      --trace FILE            the trace, likewise; adds what more "
          "memory saves\n"
          "  -o, --output FILE           the page; default profile.html\n\n"
          "sluice run --help shows the options of a run.\n", to);
    return to == stderr ? 2 : 0;
}

int cmd_profile(int argc, char **argv)
{
    struct profile_args a = { .out = default_out };
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return help(stdout);
    a.report = take(&argc, argv, "--report");
    a.timeline = take(&argc, argv, "--timeline");
    a.trace = take(&argc, argv, "--trace");
    const char *out = take(&argc, argv, "--output");
    const char *letter = take(&argc, argv, "-o");
    a.out = letter ? letter : out ? out : a.out;
    static const char *const names[] = { "--report", "--timeline", "--trace",
                                         "--output", "-o" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (argc > 1 && !strcmp(argv[argc - 1], names[i])) {
            fprintf(stderr, "sluice: %s needs a value\n", names[i]);
            return help(stderr);
        }
    if (argc < 2 && !a.report) {
        fputs("sluice: profile needs a model, or a --report\n", stderr);
        return help(stderr);
    }
    const char *const paths[] = { a.report, a.timeline, a.trace, a.out };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] && !strcmp(paths[i], "-")) {
            fprintf(stderr, "sluice: %s: - %s\n", names[i], opt_no_stream);
            return help(stderr);
        }
    struct error error = { 0 };
    if (check(&a, argc, argv, &error))
        return failed(&error);
    return argc > 1 ? run_and_render(&a, argc, argv) : render(&a, a.report);
}

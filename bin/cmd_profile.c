/* cmd_profile.c - sluice profile: a run, or the files of one, as a page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cmd.h"
#include "bin/opt.h"
#include "bin/outputs.h"
#include "bin/profile_page.h"

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

static int failed(const struct why *why)
{
    fprintf(stderr, "sluice: %s\n", why->text);
    return 1;
}

/* A run of hours must not end at a page that cannot be written. */
static int check(const struct profile_args *a, struct why *why)
{
    const struct output_file files[] = {
        { "--report", a->report, true },
        { "--timeline", a->timeline, true },
        { "--trace", a->trace, true },
        { "--output", a->out, false },
    };
    int err = outputs_check(files, sizeof files / sizeof *files, NULL, why);
    return err ? err : outputs_writable(a->out, "the page", why);
}

static int render(const struct profile_args *a, const char *about)
{
    struct why why = { 0 };
    struct times *t = NULL;
    json_error_t where;
    FILE *f = NULL;
    json_t *report = json_load_file(a->report, 0, &where);
    int err = 0;
    if (!report)
        err = why_set(&why, -EBADMSG, "%s: not a report: %s", a->report,
                      where.text);
    if (!err && a->timeline)
        err = times_open(&t, a->timeline, &why);
    if (!err && !(f = fopen(a->out, "we")))
        err = why_set(&why, -errno, "%s: %s", a->out, strerror(errno));
    if (!err)
        err = profile_page(f, about, report, t, a->trace, &why);
    bool bad = f && ferror(f);
    if (f && (fclose(f) || bad) && !err)
        err = why_set(&why, -EIO, "%s: the page could not be written", a->out);
    if (err && f)
        unlink(a->out);
    times_close(t);
    json_decref(report);
    if (err)
        return failed(&why);
    fprintf(stderr, "the profile is in %s\n", a->out);
    return 0;
}

/* Run with the three files in a folder of their own, unless they were asked for
 * by name; draw them; remove the folder. */
static int run_and_render(struct profile_args *a, int argc, char **argv)
{
    char folder[] = "/tmp/sluice-profile-XXXXXX";
    char report[64], timeline[64], trace[64];
    char **words = calloc((size_t)argc + 7, sizeof *words);
    const char *about = "sluice run";
    bool own = !a->report || !a->timeline || !a->trace;
    int status = 1;
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
    for (int i = argc; --i > 0;) { /* the model is the folder among them */
        struct stat st;
        if (argv[i][0] != '-' && !stat(argv[i], &st) && S_ISDIR(st.st_mode))
            about = argv[i];
    }
    status = cmd_run(argc + 6, words);
    if (!status)
        status = render(a, about);
    if (own) {
        unlink(report);
        unlink(timeline);
        unlink(trace);
        rmdir(folder);
    }
    free(words);
    return status;
}

static int help(FILE *to)
{
    fputs("usage: sluice profile MODEL [-o FILE] [options of sluice run]\n"
          "       sluice profile --report FILE [--timeline FILE] "
          "[--trace FILE] [-o FILE]\n"
          "Draw where a token's time went: run and draw, or draw the files "
          "that a run has\nwritten. The page is complete in itself.\n\n"
          "      --report FILE           of the run, to read or to keep\n"
          "      --timeline FILE         the same\n"
          "      --trace FILE            the same, for what more memory would "
          "save\n"
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
    struct why why = { 0 };
    if (check(&a, &why))
        return failed(&why);
    return argc > 1 ? run_and_render(&a, argc, argv) : render(&a, a.report);
}

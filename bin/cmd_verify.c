/* cmd_verify.c - sluice verify: read everything, check everything. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/cmd.h"
#include "bin/session.h"
#include "compute/team.h"
#include "model/verify.h"
#include "sched/stream.h"

enum { PROGRESS_NS = 200 * 1000 * 1000 };

struct verify_args {
    const char *io;
    uint64_t threads, most; /* problems that are told */
    bool     json, progress;
    json_t  *problems;
    uint64_t told;
    int64_t  begin_ns, shown_ns;
};

static void problem(void *arg, const char *file, const char *tensor,
                    const char *text)
{
    struct verify_args *a = arg;
    if (a->told++ >= a->most)
        return;
    if (a->json) {
        json_t *o = json_object();
        if (file)
            json_object_set_new(o, "file", json_string(file));
        if (tensor)
            json_object_set_new(o, "tensor", json_string(tensor));
        json_object_set_new(o, "text", json_string(text));
        json_array_append_new(a->problems, o);
        return;
    }
    if (a->progress)
        fputs("\r\033[K", stderr);
    if (tensor)
        printf("%s: tensor %s: %s\n", file, tensor, text);
    else if (file)
        printf("%s: %s\n", file, text);
    else
        puts(text);
    fflush(stdout);
}

static void progress(void *arg, uint64_t done, uint64_t all)
{
    struct verify_args *a = arg;
    int64_t now = stream_clock_ns();
    if (!a->progress || now - a->shown_ns < PROGRESS_NS)
        return;
    if (!a->begin_ns)
        a->begin_ns = now;
    a->shown_ns = now;
    double s = (double)(now - a->begin_ns) / 1e9;
    double rate = s > 0 ? (double)done / s : 0;
    fprintf(stderr, "\r\033[K%.1f of %.1f GB, %.2f GB/s", (double)done / 1e9,
            (double)all / 1e9, rate / 1e9);
    if (rate > 0)
        fprintf(stderr, ", %.0f s to go", (double)(all - done) / rate);
    fflush(stderr);
}

static void print_json(struct verify_args *a, const struct verify_facts *f)
{
    json_t *root = json_object();
    json_object_set_new(root, "files", json_integer(f->files));
    json_object_set_new(root, "tensors",
                        json_integer((json_int_t)f->tensors));
    json_object_set_new(root, "read_bytes",
                        json_integer((json_int_t)f->bytes));
    json_object_set_new(root, "seconds", json_real(f->seconds));
    json_object_set_new(root, "problem_count",
                        json_integer((json_int_t)f->problems));
    json_object_set_new(root, "problems", json_incref(a->problems));
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

static void print_end(const struct verify_args *a,
                      const struct verify_facts *f)
{
    if (f->problems > a->most)
        printf("and %" PRIu64 " more (see --most)\n", f->problems - a->most);
    printf("%" PRIu32 " files, %" PRIu64 " tensors, %.3f GB in %.2f s: "
           "%.2f GB/s; ", f->files, f->tensors, (double)f->bytes / 1e9,
           f->seconds, f->seconds > 0 ? (double)f->bytes / f->seconds / 1e9
                                      : 0);
    if (f->problems)
        printf("%" PRIu64 " problem%s\n", f->problems,
               f->problems > 1 ? "s" : "");
    else
        puts("no problem");
}

static int verify(struct verify_args *a, const char *model)
{
    struct verify_facts facts;
    struct why why = { 0 };
    struct team *team;
    if (!a->threads && !team_open(&team, 0)) {
        a->threads = team_threads(team);
        team_close(team);
    }
    struct verify_options o = {
        .dir = model, .io = a->io,
        .threads = a->threads ? (uint32_t)a->threads : 1,
        .problem = problem, .progress = progress, .arg = a,
    };
    a->progress = isatty(STDERR_FILENO);
    a->problems = json_array();
    int err = verify_run(&facts, &o, &why);
    if (a->progress)
        fputs("\r\033[K", stderr);
    if (!err && a->json)
        print_json(a, &facts);
    else if (!err)
        print_end(a, &facts);
    json_decref(a->problems);
    if (err)
        return session_failed(model, &why);
    if (!facts.problems)
        return 0;
    fflush(stdout);
    fprintf(stderr, "sluice: %s: %" PRIu64 " problem%s found\n", model,
            facts.problems, facts.problems > 1 ? "s" : "");
    return 1;
}

int cmd_verify(int argc, char **argv)
{
    struct verify_args a = { .io = "auto", .most = 100 };
    const struct opt table[] = {
        { "threads", 't', OPT_UINT, &a.threads, "N",
          "threads that check; default: the physical cores", NULL },
        { "io", 0, OPT_TEXT, &a.io, "METHOD",
          "how to read: auto, uring or pread", NULL },
        { "most", 0, OPT_UINT, &a.most, "N",
          "problems that are named one by one; default 100", NULL },
        { "json", 0, OPT_FLAG, &a.json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice verify MODEL [options]",
        "Read everything once and check everything that can be checked.",
        table, sizeof table / sizeof *table };
    const char *model = NULL;
    int words = opt_parse(&cmd, argc, argv, &model, 1);
    if (words < 0)
        return opt_status(words);
    if (words != 1)
        return opt_usage_error(&cmd, "verify needs the folder of a model");
    if (a.threads > TEAM_THREADS_MAX)
        return opt_usage_error(&cmd, "--threads is at most %d",
                               TEAM_THREADS_MAX);
    if (strcmp(a.io, "auto") && strcmp(a.io, "uring") && strcmp(a.io, "pread"))
        return opt_usage_error(&cmd, "--io is auto, uring or pread");
    return verify(&a, model);
}

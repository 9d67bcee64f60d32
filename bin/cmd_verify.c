/* cmd_verify.c - sluice verify: read everything, check everything. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/cli/drafter.h"
#include "bin/cli/json.h"
#include "bin/cli/session.h"
#include "bin/cli/terminal.h"
#include "bin/cmd.h"
#include "compute/team.h"
#include "io/host.h"
#include "model/ckpt/figure.h"
#include "model/dspark/inspect.h"
#include "model/k3/threads.h"
#include "model/tools/verified.h"
#include "model/tools/verify.h"

#define VERIFY_MEMORY_USUAL ((uint64_t)1 << 30)

struct verify_args {
    const char *io, *packed;
    struct parts_args parts;
    uint64_t threads, max; /* max: problems to print */
    uint64_t memory_bytes;
    bool     json, again;
    json_t  *problems;
    uint64_t found; /* problems so far */
    struct terminal_meter meter;
};

static void problem(void *arg, const char *file, const char *tensor,
                    const char *text)
{
    struct verify_args *a = arg;
    if (a->found++ >= a->max)
        return;
    if (a->json) {
        json_t *o = json_object();
        if (file)
            json_object_set_new(o, "file", json_bytes(file));
        if (tensor)
            json_object_set_new(o, "tensor", json_bytes(tensor));
        json_object_set_new(o, "text", json_bytes(text));
        json_array_append_new(a->problems, o);
        return;
    }
    terminal_meter_clear(&a->meter);
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
    terminal_meter_show(&a->meter, done, all);
}

static int print_json(struct verify_args *a, const struct verify_facts *f)
{
    json_t *root = json_object();
    json_object_set_new(root, "files", json_integer(f->files));
    set_int(root, "tensors", f->tensors);
    set_int(root, "read_bytes", f->bytes);
    json_object_set_new(root, "packed_files", json_integer(f->packed_files));
    set_int(root, "packed_compared_bytes", f->packed_bytes);
    json_object_set_new(root, "unchanged_files", json_integer(f->unchanged));
    json_object_set_new(root, "files_with_digest", json_integer(f->summed));
    set_real(root, "seconds", f->seconds);
    set_int(root, "problem_count", f->problems);
    json_object_set_new(root, "problems", json_incref(a->problems));
    return json_print(root, JSON_INDENT(1));
}

static void print_end(const struct verify_args *a,
                      const struct verify_facts *f)
{
    if (f->problems > a->max)
        printf("and %" PRIu64 " more (see --max-problems)\n",
               f->problems - a->max);
    printf("%s, %s, %s GB in %s s: "
           "%s GB/s; ", figure_count(f->files, "file").text,
           figure_count(f->tensors, "tensor").text,
           figure((double)f->bytes / 1e9).text, figure(f->seconds).text,
           figure(f->seconds > 0 ? (double)f->bytes / f->seconds / 1e9
                                 : 0).text);
    if (f->unchanged)
        printf("%s unchanged since found sound (--again reads all); ",
               figure_count(f->unchanged, "file").text);
    if (a->parts.count)
        printf("every checksum of the parts compared; ");
    else if (f->summed)
        printf("%s compared; ", figure_count(f->summed, "digest").text);
    else
        printf("no digests to compare: neither the download's metadata nor "
               "SHA256SUMS; ");
    if (f->packed_files)
        printf("%" PRIu32 " coded files decoded and compared; ",
               f->packed_files);
    if (f->problems)
        printf("%" PRIu64 " problem%s\n", f->problems,
               f->problems > 1 ? "s" : "");
    else
        puts("no problems");
}

/* Without -m as much as serves, or what there is if that is less. */
static uint64_t memory_bytes(const struct verify_args *a)
{
    struct host host;
    if (a->memory_bytes)
        return a->memory_bytes;
    host_read(&host, "");
    uint64_t bytes = host_budget(&host);
    return bytes < VERIFY_MEMORY_USUAL ? bytes : VERIFY_MEMORY_USUAL;
}

static int verify(struct verify_args *a, const char *model)
{
    struct verify_facts facts;
    struct error error = { 0 };
    struct verify_options o = {
        .dir = model, .io = a->io, .packed = a->packed,
        .threads = k3_threads_or_default((uint32_t)a->threads),
        .memory_bytes = memory_bytes(a), .keep_list = true,
        .again = a->again,
        .problem = problem, .progress = progress, .arg = a,
    };
    terminal_meter_begin(&a->meter, NULL);
    a->problems = json_array();
    int bad = 0;
    int err = a->parts.count ? verify_parts(&facts, &o, a->parts.path,
                                            a->parts.count, &error)
                             : verify_run(&facts, &o, &error);
    terminal_meter_clear(&a->meter);
    if (!err && a->json)
        bad = print_json(a, &facts);
    else if (!err)
        print_end(a, &facts);
    json_decref(a->problems);
    if (err)
        return session_failed(model, &error);
    if (facts.list_error)
        fprintf(stderr, "sluice: %s/" VERIFIED_NAME " cannot be continued "
                "(%s): the next verify reads everything again\n", model,
                strerror(-facts.list_error));
    if (!facts.problems)
        return bad;
    fflush(stdout);
    fprintf(stderr, "sluice: %s: %" PRIu64 " problem%s found\n", model,
            facts.problems, facts.problems > 1 ? "s" : "");
    return 1;
}

int cmd_verify(int argc, char **argv)
{
    struct verify_args a = { .io = "auto", .max = 100 };
    const struct opt table[] = {
        { "memory", 'm', OPT_SIZE, &a.memory_bytes, "SIZE",
          "memory to stay below, like 512M; default: 1G, or what is free",
          NULL },
        { "again", 0, OPT_FLAG, &a.again, NULL,
          "also read the files that an earlier verify found sound and that "
          "have not changed since", NULL },
        { "threads", 't', OPT_UINT, &a.threads, "N",
          "threads; default: one a physical core", NULL },
        { "io", 0, OPT_TEXT, &a.io, "METHOD",
          "how to read: auto, uring or pread; default auto", NULL },
        { "packed", 0, OPT_TEXT, &a.packed, "auto|off|require|DIR",
          "coded weights to compare with their shards: those beside the model "
          "if there are any, none, all, or those of a folder; default auto",
          NULL },
        PARTS_OPTION(&a.parts),
        { "max-problems", 0, OPT_UINT, &a.max, "N",
          "problems to print, the rest is counted; default 100", NULL },
        { "most", 0, OPT_UINT, &a.max, "N", NULL, NULL }, /* its old name */
        { "json", 0, OPT_FLAG, &a.json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice verify MODEL [options]",
        "Read every byte of the model once and check files, headers, shapes, "
        "values and digests. MODEL/" VERIFIED_NAME " lists the files without "
        "problems, which are not read again until they change. So a verify "
        "that was interrupted continues where it stopped.",
        table, sizeof table / sizeof *table };
    const char *model = NULL;
    int ended = opt_parse_one(&cmd, argc, argv, &model,
                              "verify needs the folder of a model");
    if (ended >= 0)
        return ended;
    if (a.threads > TEAM_THREADS_MAX)
        return opt_usage_error(&cmd, "--threads is at most %d",
                               TEAM_THREADS_MAX);
    if (strcmp(a.io, "auto") && strcmp(a.io, "uring") && strcmp(a.io, "pread"))
        return opt_usage_error(&cmd, "--io is auto, uring or pread");
    if (!a.json && dspark_is_drafter(model))
        return drafter_verify(model);
    return verify(&a, model);
}

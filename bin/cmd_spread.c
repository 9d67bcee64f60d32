/* cmd_spread.c - sluice spread: the parts of a model on several drives, and
 * back. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cli/json.h"
#include "bin/cli/outputs.h"
#include "bin/cli/parts.h"
#include "bin/cli/session.h"
#include "bin/cli/terminal.h"
#include "bin/cmd.h"
#include "bin/spread/rates.h"
#include "compute/kern.h"
#include "model/ckpt/figure.h"
#include "model/k3/threads.h"
#include "model/parts/parts.h"
#include "model/parts/spread.h"

struct spread_args {
    char    *dir[CUTS_PARTS_MAX]; /* ours */
    double   weight[CUTS_PARTS_MAX]; /* 0: not said */
    uint32_t dirs;
    const char *join;
    struct parts_args parts;
    uint64_t only, of, jobs;
    bool     one; /* --only was given */
    bool     move, raw, json;
};

static const char *take_to(void *arg, const char *value)
{
    struct spread_args *a = arg;
    const char *equals = strrchr(value, '=');
    char *end;
    if (a->dirs == CUTS_PARTS_MAX)
        return "is one part too many";
    double weight = 0;
    if (equals) {
        weight = strtod(equals + 1, &end);
        if (end == equals + 1 || *end || !(weight > 0) || !(weight < 1e12))
            return "is not DIR[=WEIGHT]";
    }
    size_t length = equals ? (size_t)(equals - value) : strlen(value);
    if (!length)
        return "is not DIR[=WEIGHT]";
    a->dir[a->dirs] = strndup(value, length);
    if (!a->dir[a->dirs])
        return "has no memory";
    a->weight[a->dirs++] = weight;
    return NULL;
}

static const char *take_only(void *arg, const char *value)
{
    struct spread_args *a = arg;
    char *end;
    a->only = strtoul(value, &end, 10);
    a->one = true;
    return *end || *value < '0' || *value > '9' ? "is not a number" : NULL;
}

static const char *check(const struct spread_args *a)
{
    uint32_t said = 0;
    for (uint32_t i = 0; i < a->dirs; i++)
        said += a->weight[i] > 0;
    if (a->join)
        return a->dirs || a->one || a->of || a->move || a->raw
                   ? "--join goes with --parts, and with nothing of --to"
               : a->parts.count ? NULL
                                : "--join needs --parts";
    if (a->parts.count)
        return "--parts goes with --join";
    if (!a->dirs)
        return "spread needs a folder for each part: --to DIR";
    if (said && said < a->dirs)
        return "either each --to has a weight or none has";
    if (a->of && (!a->one || a->dirs != 1 || a->of > CUTS_PARTS_MAX))
        return "--of goes with --only and one --to, and is at most 16";
    if (a->of && said)
        return "with weights, name a --to for each part: those that --only "
               "does not write may be any words";
    if (a->one && a->only >= (a->of ? a->of : a->dirs))
        return "--only is the number of a part, from 0; --of says how many";
    if (a->one && a->move)
        return "--move needs all parts: it cannot go with --only";
    return NULL;
}

/* What the weights are, and which folders are written. */
static int choose(struct spread_options *o, const struct spread_args *a,
                  const struct config *c, struct error *error)
{
    double rate[CUTS_PARTS_MAX];
    uint32_t parts = a->of ? (uint32_t)a->of : a->dirs;
    for (uint32_t r = 0; r < parts; r++) {
        bool written = !a->one || a->only == r;
        o->dir[r] = written ? a->dir[a->of ? 0 : r] : NULL;
        rate[r] = a->weight[a->of ? 0 : r] > 0 ? a->weight[r] : 1;
    }
    if (a->weight[0] <= 0 && rates_of_parts(&o->cuts, o->dir, parts, c))
        return 0; /* an earlier spread decided */
    if (a->weight[0] <= 0 && !a->one) {
        int err = rates_measure(rate, o->dir, parts, error);
        if (err)
            return err;
    }
    return cuts_weigh(&o->cuts, parts, rate)
               ? 0
               : error_set(error, -EINVAL, "a weight is less than a millionth "
                           "of the largest");
}

static void print_text(const struct spread_args *a,
                       const struct spread_options *o,
                       const struct spread_facts *f)
{
    uint64_t all = 0;
    for (uint32_t r = 0; r < o->cuts.parts; r++)
        all += o->cuts.weight[r];
    for (uint32_t r = 0; r < o->cuts.parts && !a->join; r++)
        if (o->dir[r])
            printf("part %" PRIu32 " of %" PRIu32 ": %s %% of the rows, "
                   "%s GB in %s\n", r, o->cuts.parts,
                   figure_chosen(100.0 * o->cuts.weight[r] / (double)all).text,
                   figure((double)f->part_bytes[r] / 1e9).text,
                   shown(o->dir[r]).text);
    printf("%s made, %" PRIu32 " kept", figure_count(f->made, "file").text,
           f->kept);
    if (a->move)
        printf(", %s removed", figure_count(f->removed, "shard").text);
    printf("; %s GB %s in %s s", figure((double)f->read_bytes / 1e9).text,
           a->join ? "written" : "read", figure(f->seconds).text);
    if (f->read_bytes && f->seconds > 0)
        printf(", %s GB/s",
               figure((double)f->read_bytes / 1e9 / f->seconds).text);
    printf("; %s GB on disk\n", figure((double)f->file_bytes / 1e9).text);
}

static int print_json(const struct spread_args *a,
                      const struct spread_options *o,
                      const struct spread_facts *f)
{
    json_t *root = json_object(), *parts = json_array();
    for (uint32_t r = 0; r < o->cuts.parts && !a->join; r++)
        json_array_append_new(
            parts, json_pack("{s:o, s:i, s:I}", "folder", json_bytes(o->dir[r]),
                             "weight", (int)o->cuts.weight[r], "bytes",
                             (json_int_t)f->part_bytes[r]));
    json_object_set_new(root, "parts", parts);
    json_object_set_new(root, "shards", json_integer(f->shards));
    json_object_set_new(root, "made", json_integer(f->made));
    json_object_set_new(root, "kept", json_integer(f->kept));
    json_object_set_new(root, "removed", json_integer(f->removed));
    set_int(root, "bytes", f->read_bytes);
    set_int(root, "file_bytes", f->file_bytes);
    set_real(root, "seconds", f->seconds);
    return json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

static int join(struct spread_facts *facts, const struct spread_options *o,
                const struct spread_args *a, const struct config *c,
                struct error *error)
{
    struct parts *p;
    int err = parts_open(&p, a->parts.path, a->parts.count, NULL, c, error);
    if (err)
        return err;
    err = spread_join(facts, p, a->join, o, error);
    parts_close(p);
    return err;
}

static int spread(struct spread_args *a, const char *model)
{
    struct error error = { 0 };
    struct spread_facts facts = { 0 };
    struct config c;
    struct kern kern;
    struct terminal_meter meter;
    kern_init(&kern, ISA_COUNT - 1);
    struct spread_options o = {
        .model = model, .jobs = (uint32_t)a->jobs, .raw = a->raw,
        .move = a->move, .kern = &kern, .progress = terminal_meter_show,
        .arg = &meter };
    if (config_load(&c, model, &error))
        return session_failed(model, &error);
    terminal_meter_begin(&meter, a->join ? "join" : "spread");
    int bad = 0, err = a->join ? 0 : choose(&o, a, &c, &error);
    if (!err)
        err = a->join ? join(&facts, &o, a, &c, &error)
                      : spread_run(&facts, &o, &c, &error);
    terminal_meter_clear(&meter);
    config_free(&c);
    if (!err && a->json)
        bad = print_json(a, &o, &facts);
    else if (!err)
        print_text(a, &o, &facts);
    return err ? session_failed(NULL, &error) : bad;
}

int cmd_spread(int argc, char **argv)
{
    struct spread_args a = { 0 };
    const struct opt table[] = {
        { "to", 0, OPT_CALL, &a, "DIR[=WEIGHT]",
          "the folder of the next part, and its share of the rows; without "
          "weights, shares follow from how fast the drives read; repeat",
          take_to },
        { "only", 0, OPT_CALL, &a, "R",
          "write only part R, from 0, for another machine", take_only },
        { "of", 0, OPT_UINT, &a.of, "N",
          "with --only and one --to: of N equal parts", NULL },
        { "move", 0, OPT_FLAG, &a.move, NULL,
          "remove each shard when its parts are written and read back; --join "
          "makes it again", NULL },
        { "raw", 0, OPT_FLAG, &a.raw, NULL,
          "code nothing: for processors that decode slowly", NULL },
        { "join", 0, OPT_TEXT, &a.join, "DIR",
          "write the shards again, byte by byte, from --parts into DIR", NULL },
        PARTS_OPTION(&a.parts),
        { "jobs", 'j', OPT_UINT, &a.jobs, "N",
          "threads; default: two a physical core", NULL },
        { "json", 0, OPT_FLAG, &a.json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice spread MODEL --to DIR[=WEIGHT] --to DIR[=WEIGHT]... | "
        "sluice spread MODEL --join DIR --parts DIR --parts DIR...",
        "Divide the model over several drives: each gets some rows of every "
        "matrix and expert, coded without loss, so that all drives read at "
        "once whatever is read. Run it with --parts DIR for each; of MODEL "
        "only config and tokenizer are then needed. A spread that was "
        "interrupted continues where it stopped.",
        table, sizeof table / sizeof *table };
    const char *model = NULL, *wrong;
    int status = opt_parse_one(&cmd, argc, argv, &model,
                               "spread needs the folder of a model");
    if (status < 0 && (wrong = check(&a)))
        status = opt_usage_error(&cmd, "%s", wrong);
    if (status < 0 && a.jobs > WORK_JOBS_MAX)
        status = opt_usage_error(&cmd, "--jobs is at most %d", WORK_JOBS_MAX);
    if (status < 0) {
        if (!a.jobs)
            a.jobs = 2 * k3_threads_or_default(0);
        a.jobs = a.jobs > WORK_JOBS_MAX ? WORK_JOBS_MAX : a.jobs;
        status = spread(&a, model);
    }
    for (uint32_t i = 0; i < a.dirs; i++)
        free(a.dir[i]);
    return status;
}

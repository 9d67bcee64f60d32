/* cmd_pack.c - sluice pack: coded weights beside the shards. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/cli/json.h"
#include "bin/cli/session.h"
#include "bin/cli/terminal.h"
#include "bin/cmd.h"
#include "compute/kern.h"
#include "model/ckpt/figure.h"
#include "model/k3/threads.h"
#include "model/pack/pack.h"

struct pack_args {
    const char *to, *only;
    uint64_t jobs;
    bool     json;
};

/* "self_attn.q_proj", "lm_head", "expert scales". */
static void kind_name(char *out, size_t size, int role)
{
    const char *name = role == T_COUNT
                           ? "expert scales"
                           : tensor_suffix((enum tensor_role)role);
    const char *dot = strstr(name, ".weight");
    int length = dot ? (int)(dot - name) : (int)strlen(name);
    if (!strncmp(name, "language_model.", 15)) {
        name += 15;
        length -= 15;
    }
    snprintf(out, size, "%.*s", length, name);
}

/* Values of a kind: bf16 or scales. */
static double patched(const struct pack_kind *k, int role)
{
    double values = (double)k->raw_bytes / (role == T_COUNT ? 1 : 2);
    return values > 0 ? (double)k->patches / values : 0;
}

static double ratio(const struct pack_kind *k)
{
    return k->raw_bytes ? (double)k->stored_bytes / (double)k->raw_bytes : 0;
}

static void print_table(const struct pack_facts *f)
{
    struct pack_kind all = { 0 };
    printf("%-42s %6s %10s %10s %6s %8s\n", "", "number", "raw, MB",
           "coded, MB", "ratio", "patched");
    for (int r = 0; r <= T_COUNT; r++) {
        const struct pack_kind *k = &f->kind[r];
        char name[80];
        if (!k->count)
            continue;
        kind_name(name, sizeof name, r);
        printf("%-42s %6" PRIu64 " %10s %10s %6s %7s%%\n", name, k->count,
               figure((double)k->raw_bytes / 1e6).text,
               figure((double)k->stored_bytes / 1e6).text,
               figure(ratio(k)).text, figure(100 * patched(k, r)).text);
        all.raw_bytes += k->raw_bytes;
        all.stored_bytes += k->stored_bytes;
    }
    printf("%-42s %6s %10s %10s %6s\n", "all", "",
           figure((double)all.raw_bytes / 1e6).text,
           figure((double)all.stored_bytes / 1e6).text,
           figure(ratio(&all)).text);
    printf("%s made, %" PRIu32 " kept; %s GB read in %s s",
           figure_count(f->made, "file").text, f->kept,
           figure((double)f->read_bytes / 1e9).text, figure(f->seconds).text);
    if (f->read_bytes && f->seconds > 0)
        printf(", %s GB/s",
               figure((double)f->read_bytes / 1e9 / f->seconds).text);
    printf("; %s GB on disk\n", figure((double)f->file_bytes / 1e9).text);
}

static int print_json(const struct pack_facts *f)
{
    json_t *root = json_object(), *kinds = json_array();
    for (int r = 0; r <= T_COUNT; r++) {
        const struct pack_kind *k = &f->kind[r];
        char name[80];
        if (!k->count)
            continue;
        kind_name(name, sizeof name, r);
        json_array_append_new(
            kinds, json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "kind", name,
                             "count", (json_int_t)k->count, "raw_bytes",
                             (json_int_t)k->raw_bytes, "stored_bytes",
                             (json_int_t)k->stored_bytes, "patches",
                             (json_int_t)k->patches, "ratio", ratio(k)));
    }
    json_object_set_new(root, "kinds", kinds);
    json_object_set_new(root, "made", json_integer(f->made));
    json_object_set_new(root, "kept", json_integer(f->kept));
    set_int(root, "read_bytes", f->read_bytes);
    set_int(root, "stored_bytes", f->stored_bytes);
    set_int(root, "file_bytes", f->file_bytes);
    set_real(root, "seconds", f->seconds);
    return json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

static int pack(struct pack_args *a, const char *model, uint32_t what)
{
    struct error error = { 0 };
    struct pack_facts facts = { 0 };
    struct config c;
    struct ckpt *k = NULL;
    struct kern kern;
    char *beside = sidecar_folder(model);
    struct terminal_meter meter;
    terminal_meter_begin(&meter, "pack");
    kern_init(&kern, ISA_COUNT - 1);
    int err = config_load(&c, model, &error);
    if (err) {
        free(beside);
        return session_failed(model, &error);
    }
    struct pack_options o = {
        .model = model, .to = a->to ? a->to : beside, .what = what,
        .jobs = (uint32_t)a->jobs, .kern = &kern,
        .progress = terminal_meter_show, .arg = &meter };
    int bad = 0;
    err = o.to ? ckpt_open(&k, model, &c, &error) : -ENOMEM;
    if (!err)
        err = pack_run(&facts, &o, &c, k, &error);
    terminal_meter_clear(&meter);
    ckpt_close(k);
    config_free(&c);
    if (!err && a->json)
        bad = print_json(&facts);
    else if (!err)
        print_table(&facts);
    free(beside);
    return err ? session_failed(NULL, &error) : bad;
}

int cmd_pack(int argc, char **argv)
{
    struct pack_args a = { 0 };
    const struct opt table[] = {
        { "to", 0, OPT_TEXT, &a.to, "DIR",
          "where the coded files go; default: MODEL.packed", NULL },
        { "jobs", 'j', OPT_UINT, &a.jobs, "N",
          "threads; default: two a physical core, since half of them wait for "
          "drives", NULL },
        { "only", 0, OPT_TEXT, &a.only, "trunk|scales",
          "code only the matrices of the trunk, or only the scales of experts",
          NULL },
        { "json", 0, OPT_FLAG, &a.json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice pack MODEL [--to DIR] [--jobs N] [--only trunk|scales]",
        "Compress the trunk and the scales of the experts without loss into a "
        "folder beside the model. A token then reads a quarter less, and what "
        "is read is checked. The shards do not change and are still needed. A "
        "pack that was interrupted continues where it stopped.",
        table, sizeof table / sizeof *table };
    const char *model = NULL;
    int ended = opt_parse_one(&cmd, argc, argv, &model,
                              "pack needs the folder of a model");
    if (ended >= 0)
        return ended;
    uint32_t what = SIDECAR_TRUNK | SIDECAR_SCALES;
    if (a.only && !strcmp(a.only, "trunk"))
        what = SIDECAR_TRUNK;
    else if (a.only && !strcmp(a.only, "scales"))
        what = SIDECAR_SCALES;
    else if (a.only)
        return opt_usage_error(&cmd, "--only is trunk or scales");
    if (a.jobs > WORK_JOBS_MAX)
        return opt_usage_error(&cmd, "--jobs is at most %d", WORK_JOBS_MAX);
    if (!a.jobs)
        a.jobs = 2 * k3_threads_or_default(0);
    a.jobs = a.jobs > WORK_JOBS_MAX ? WORK_JOBS_MAX : a.jobs;
    return pack(&a, model, what);
}

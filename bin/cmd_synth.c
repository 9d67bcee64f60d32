/* cmd_synth.c - sluice synth: write a random checkpoint. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bin/cli/opt.h"
#include "bin/cli/terminal.h"
#include "bin/cmd.h"
#include "io/clock.h"
#include "model/ckpt/figure.h"
#include "model/tools/synth.h"
#include "model/tools/synth_drafter.h"

#define BENCH_SIZE_BYTES (UINT64_C(8) << 30)

enum { OWN_OPTIONS = 8, FIELDS_MAX = 64 };

/* One field of the config on the command line. */
struct field_slot {
    size_t      index;
    char        option[64]; /* the field's name with dashes */
    const char *value;      /* NULL: not given */
};

struct synth_args {
    struct synth_options o;
    struct field_slot slot[FIELDS_MAX];
    size_t      fields;
    uint64_t    echo;
    const char *weights, *like;
};

static const char *take_field(void *arg, const char *value)
{
    struct field_slot *slot = arg;
    const char *wrong = synth_field_wrong(slot->index, value);
    if (!wrong)
        slot->value = value;
    return wrong;
}

/* One option for each field; returns how many. */
static size_t field_options(struct opt *table, struct field_slot *slots)
{
    size_t i;
    for (i = 0; i < FIELDS_MAX && synth_field(i); i++) {
        struct field_slot *slot = &slots[i];
        *slot = (struct field_slot){ .index = i };
        snprintf(slot->option, sizeof slot->option, "%s", synth_field(i));
        for (char *c = slot->option; *c; c++)
            if (*c == '_')
                *c = '-';
        table[i] = (struct opt){ slot->option, 0, OPT_CALL, slot,
                                 synth_field_metavar(i), "", take_field };
    }
    return i;
}

struct meter {
    bool    on; /* stderr is a terminal */
    int64_t start_ns, last_ns;
};

static double seconds_since(int64_t start_ns)
{
    return (double)(clock_ns() - start_ns) / 1e9;
}

static void show_progress(void *arg, uint64_t done, uint64_t all)
{
    struct meter *m = arg;
    if (!m->on || (done < all && seconds_since(m->last_ns) < 0.2))
        return;
    m->last_ns = clock_ns();
    double seconds = seconds_since(m->start_ns), gb = (double)done / 1e9;
    terminal_line("synth: %s of %s GB, %s GB/s", figure(gb).text,
                  figure((double)all / 1e9).text,
                  figure(seconds > 0 ? gb / seconds : 0).text);
    if (done == all)
        fputc('\n', stderr);
}

static int write_it(struct synth_options *o)
{
    struct meter meter = { .on = terminal_has_line(),
                           .start_ns = clock_ns() };
    struct synth_facts facts;
    struct error error = { 0 };
    o->progress = show_progress;
    o->progress_arg = &meter;
    if (synth_plan(o, &facts, &error)) {
        fprintf(stderr, "sluice: %s\n", error.text);
        return 1;
    }
    if (facts.above_size)
        fprintf(stderr,
                "sluice: the smallest %s checkpoint is %s GB (%u experts a "
                "layer), more than --size\n",
                o->preset, figure((double)facts.bytes / 1e9).text,
                facts.experts);
    if (synth_write(o, &facts, &error)) {
        fprintf(stderr, "%ssluice: %s\n", meter.on ? "\r\033[K" : "",
                error.text);
        return 1;
    }
    return 0;
}

/* "drafter" and "drafter-mla": RadixArk's and Inferact's layout. */
static bool is_drafter(const char *preset)
{
    return !strcmp(preset, "drafter") || !strcmp(preset, "drafter-mla");
}

static int write_drafter(const struct synth_options *o, const char *like)
{
    const struct synth_drafter_options d = {
        .dir = o->dir, .like = like, .sparse = o->sparse, .seed = o->seed,
        .size_bytes = o->size_bytes,
        .kind = strcmp(o->preset, "drafter") ? DSPARK_MLA : DSPARK_GQA };
    struct error error = { 0 };
    uint64_t bytes;
    if (!synth_drafter(&d, &bytes, &error))
        return 0;
    fprintf(stderr, "sluice: %s\n", error.text);
    return 1;
}

static bool has_value(const struct field_slot *slots, size_t count,
                      const char *field)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i].value && !strcmp(synth_field(slots[i].index), field))
            return true;
    return false;
}

/* Check what was asked for, and write it. */
static int start(const struct opt_command *cmd, struct synth_args *a)
{
    struct synth_options *o = &a->o;
    struct synth_setting settings[FIELDS_MAX];
    if (is_drafter(o->preset) != (a->like != NULL))
        return opt_usage_error(cmd, "--preset drafter and drafter-mla need "
                                     "--like, others do not take it");
    if (a->like)
        return write_drafter(o, a->like);
    if (!synth_is_preset(o->preset))
        return opt_usage_error(cmd, "--preset: %s is not one of %s", o->preset,
                               synth_presets());
    bool chosen = has_value(a->slot, a->fields, "num_experts");
    if (o->size_bytes && chosen)
        return opt_usage_error(cmd, "give --size or --num-experts, not both");
    if (!o->size_bytes && !chosen && !strcmp(o->preset, "bench"))
        o->size_bytes = BENCH_SIZE_BYTES;
    o->llm = !strcmp(a->weights, "llm");
    if (!o->llm && strcmp(a->weights, "uniform"))
        return opt_usage_error(cmd, "--weights is uniform or llm");
    if (a->echo > UINT32_MAX)
        return opt_usage_error(cmd, "--echo: too many ids");
    o->echo = (uint32_t)a->echo;
    o->setting = settings;
    for (size_t i = 0; i < a->fields; i++)
        if (a->slot[i].value)
            settings[o->settings++] = (struct synth_setting){
                synth_field(a->slot[i].index), a->slot[i].value
            };
    return write_it(o);
}

int cmd_synth(int argc, char **argv)
{
    struct synth_args a = { .weights = "uniform" };
    struct opt table[OWN_OPTIONS + FIELDS_MAX] = {
        { "preset", 0, OPT_TEXT, &a.o.preset, synth_presets(),
          "the model's shape, which the options below change", NULL },
        { "sparse", 0, OPT_FLAG, &a.o.sparse, NULL,
          "leave holes for the big matrices: full size, little disk", NULL },
        { "packed", 0, OPT_FLAG, &a.o.packed, NULL,
          "with --sparse: coded weights too, holes of an assumed .683 of the "
          "trunk and a fifth of the scales", NULL },
        { "weights", 0, OPT_TEXT, &a.weights, "uniform|llm",
          "uniform, or spread as in trained models: normal, a scale a row of "
          "exp(0.3 N), one column in 20 four times as wide; default uniform",
          NULL },
        { "size", 0, OPT_SIZE, &a.o.size_bytes, "SIZE",
          "as many experts as fit in this size; default 8G for bench; of a "
          "drafter, the most it takes", NULL },
        { "seed", 0, OPT_UINT, &a.o.seed, "N", "seed of the weights; default 0",
          NULL },
        { "echo", 0, OPT_UINT, &a.echo, "P",
          "weights whose greedy output repeats itself every P ids", NULL },
        { "like", 0, OPT_TEXT, &a.like, "MODEL",
          "the model that --preset drafter (RadixArk's layout) or drafter-mla "
          "(Inferact's) is for", NULL },
    };
    a.fields = field_options(table + OWN_OPTIONS, a.slot);
    const struct opt_command cmd = {
        "sluice synth DIR --preset NAME [--sparse] [--size SIZE] [--seed N]",
        "Write a checkpoint with random weights in the layout of the published "
        "one, for tests and measurements. The options after --echo set fields "
        "of config.json.",
        table, OWN_OPTIONS + a.fields
    };
    int ended = opt_parse_one(&cmd, argc, argv, &a.o.dir,
                              "synth needs a folder to write to");
    if (ended >= 0)
        return ended;
    if (!a.o.preset)
        return opt_usage_error(&cmd, "synth needs --preset %s",
                               synth_presets());
    return start(&cmd, &a);
}

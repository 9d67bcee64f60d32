/* cmd_synth.c - sluice synth: write a random checkpoint. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bin/cmd.h"
#include "bin/opt.h"
#include "model/synth.h"

#define BENCH_SIZE_BYTES (UINT64_C(8) << 30)

enum { OWN_OPTIONS = 5, FIELDS_MAX = 64 };

/* One field of the config on the command line. */
struct field_slot {
    size_t      index;
    char        option[64]; /* the field's name with dashes */
    const char *value;      /* NULL: not given */
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
    bool            on;
    struct timespec start, last;
};

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) +
           (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static void show_progress(void *arg, uint64_t done, uint64_t all)
{
    struct meter *m = arg;
    if (!m->on || (done < all && seconds_since(&m->last) < 0.2))
        return;
    clock_gettime(CLOCK_MONOTONIC, &m->last);
    double seconds = seconds_since(&m->start);
    fprintf(stderr, "\rsynth: %.2f of %.2f GB, %.2f GB/s\033[K%s",
            (double)done / 1e9, (double)all / 1e9,
            seconds > 0 ? (double)done / 1e9 / seconds : 0.0,
            done < all ? "" : "\n");
}

static int write_it(struct synth_options *o)
{
    struct meter meter = { .on = isatty(STDERR_FILENO) };
    struct synth_facts facts;
    struct why why = { 0 };
    clock_gettime(CLOCK_MONOTONIC, &meter.start);
    o->progress = show_progress;
    o->progress_arg = &meter;
    if (synth_plan(o, &facts, &why)) {
        fprintf(stderr, "sluice: %s\n", why.text);
        return 1;
    }
    if (facts.above_size)
        fprintf(stderr,
                "sluice: the least %s checkpoint is %.2f GB (%u experts a "
                "layer), more than --size\n",
                o->preset, (double)facts.bytes / 1e9, facts.experts);
    if (synth_write(o, &facts, &why)) {
        fprintf(stderr, "%ssluice: %s\n", meter.on ? "\r\033[K" : "", why.text);
        return 1;
    }
    return 0;
}

static bool has_value(const struct field_slot *slots, size_t count,
                      const char *field)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i].value && !strcmp(synth_field(slots[i].index), field))
            return true;
    return false;
}

int cmd_synth(int argc, char **argv)
{
    struct synth_options o = { 0 };
    struct field_slot slots[FIELDS_MAX];
    struct synth_setting settings[FIELDS_MAX];
    uint64_t echo = 0;
    struct opt table[OWN_OPTIONS + FIELDS_MAX] = {
        { "preset", 0, OPT_TEXT, &o.preset, synth_presets(),
          "the shape to start from", NULL },
        { "sparse", 0, OPT_FLAG, &o.sparse, NULL,
          "holes for the big matrices: real sizes, little disk", NULL },
        { "size", 0, OPT_SIZE, &o.size_bytes, "SIZE",
          "as many experts as fit (bench: 8G)", NULL },
        { "seed", 0, OPT_UINT, &o.seed, "N", "another seed, other weights",
          NULL },
        { "echo", 0, OPT_UINT, &echo, "P",
          "greedy output is a cycle of P ids", NULL },
    };
    size_t fields = field_options(table + OWN_OPTIONS, slots);
    const struct opt_command cmd = {
        "sluice synth DIR --preset NAME [--sparse] [--size SIZE] [--seed N]",
        "Write a random checkpoint in the official layout. Every field of the "
        "config can be set.",
        table, OWN_OPTIONS + fields
    };
    const char *words[1];
    int n = opt_parse(&cmd, argc, argv, words, 1);
    if (n < 0)
        return opt_status(n);
    if (n < 1)
        return opt_usage_error(&cmd, "synth needs a folder to write to");
    if (!o.preset)
        return opt_usage_error(&cmd, "synth needs --preset %s",
                               synth_presets());
    if (!synth_is_preset(o.preset))
        return opt_usage_error(&cmd, "--preset: %s is not one of %s", o.preset,
                               synth_presets());
    bool chosen = has_value(slots, fields, "num_experts");
    if (o.size_bytes && chosen)
        return opt_usage_error(&cmd, "--size chooses --num-experts: give one");
    if (!o.size_bytes && !chosen && !strcmp(o.preset, "bench"))
        o.size_bytes = BENCH_SIZE_BYTES;
    if (echo > UINT32_MAX)
        return opt_usage_error(&cmd, "--echo: too many ids");
    o.dir = words[0];
    o.echo = (uint32_t)echo;
    o.setting = settings;
    for (size_t i = 0; i < fields; i++)
        if (slots[i].value)
            settings[o.settings++] = (struct synth_setting){
                synth_field(slots[i].index), slots[i].value
            };
    return write_it(&o);
}

/* cmd_doctor.c - sluice doctor: can this machine run it, and what to type
 * next. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/drafter.h"
#include "bin/cli/json.h"
#include "bin/cli/opt.h"
#include "bin/cmd.h"
#include "bin/doctor/doctor.h"
#include "model/ckpt/figure.h"
#include "model/dspark/inspect.h"
#include "model/sim/machine.h"

enum {
    NEXT_BYTES = 4600,
    IN_MIB_BELOW_GIB = 4,
    KERNELS_SHARE = 4, /* of the memory, to time kernels in */
};

/* Quote a word for the shell, if it needs that. */
static const char *quoted(char *out, size_t size, const char *word)
{
    size_t n = 0;
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789/._-+,:=@";
    if (!word[strspn(word, plain)])
        return word;
    out[n++] = '\'';
    for (; *word && n + 6 < size; word++)
        if (*word == '\'')
            n += (size_t)snprintf(out + n, size - n, "'\\''");
        else
            out[n++] = *word;
    out[n++] = '\'';
    out[n] = 0;
    return out;
}

static void say_run(char *out, const struct doctor *d)
{
    char word[4200], parts[4200], size[32];
    size_t n = 0;
    parts[0] = 0;
    for (uint32_t i = 0; i < d->parts.count && n < sizeof parts; i++)
        n += (size_t)snprintf(parts + n, sizeof parts - n, " --parts %s",
                              quoted(word, sizeof word, d->parts.path[i]));
    uint64_t gib = d->budget_bytes >> 30;
    if (gib >= IN_MIB_BELOW_GIB)
        snprintf(size, sizeof size, "%lluG", (unsigned long long)gib);
    else
        snprintf(size, sizeof size, "%lluM",
                 (unsigned long long)(d->budget_bytes >> 20));
    snprintf(out, NEXT_BYTES, "%s run %s%s -m %s %s", opt_program,
             quoted(word, sizeof word, d->model), parts, size,
             d->has_tokenizer ? "-p 'The capital of France is' -n 8"
                              : "--ids 1,2,3 -n 8");
}

/* The command that a fix begins with; false: it is words. */
static bool command_of(char *out, const char *fix)
{
    static const char *const first[] = { "hf ", "df ", "free ", "ls ", "chmod ",
                                         "dmesg", "ulimit ", "echo ", "sudo " };
    bool is = !strncmp(fix, opt_program, strlen(opt_program));
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        is |= !strncmp(fix, first[i], strlen(first[i]));
    size_t n = 0;
    for (bool in = false; fix[n]; n++) { /* what follows is words */
        in ^= fix[n] == '\'';
        if (!in && (fix[n] == ';' || !strncmp(fix + n, " (", 2)))
            break;
    }
    snprintf(out, NEXT_BYTES, "%.*s", (int)n, fix);
    return is && !strstr(out, " ... ");
}

static void say_next(char *out, const struct doctor *d)
{
    if (!d->model) {
        snprintf(out, NEXT_BYTES, "%s synth /tmp/k3 --preset small && "
                 "%s run /tmp/k3 -p Hello -n 8", opt_program, opt_program);
        return;
    }
    for (uint32_t i = 0; i < d->lines; i++)
        if (d->line[i].verdict == DOCTOR_FAIL &&
            command_of(out, d->line[i].fix))
            return;
    if (d->count[DOCTOR_FAIL] || !d->complete)
        snprintf(out, NEXT_BYTES, "find ~ -name '*.safetensors.index.json'");
    else
        say_run(out, d);
}

/* A token of the proposed run, on the simulated clock of sluice plan, with the
 * rates of this machine's drives and kernels. 0 seconds: not known. */
static struct pass_times forecast(const struct doctor *d,
                                  enum k3_layout layout)
{
    struct pass_times t = { 0 };
    struct pass_clock *clock = NULL;
    struct simulate_cost *cost = NULL;
    struct forecast_machine m = { 0 };
    struct k3_options o = {
        .memory_bytes = d->budget_bytes, .logits = 1, .threads = d->threads,
        .policy = "none", .prefetch = "none", .paced = d->drive,
        .paced_count = d->drives, .parts = d->opened,
        .layout = d->opened ? K3_PARTS : layout };
    if (d->complete && d->drives &&
        !machine_kernels(&m, d->threads, d->budget_bytes / KERNELS_SHARE,
                         d->opened != NULL, NULL) &&
        !pass_clock_open(&clock, &d->config, 1, 1, 1, NULL) &&
        !simulate_cost_machine(&cost, &d->config, &m, 1, d->config.top_k,
                               NULL) &&
        pass_clock_run(&t, clock, &o, cost, NULL))
        t.seconds = 0;
    simulate_cost_free(cost);
    pass_clock_close(clock);
    return t;
}

static int print_json(const struct doctor *d, const char *next)
{
    static const char *const names[] = { "ok", "warn", "fail" };
    struct pass_times t = forecast(d, K3_SHARDS);
    json_t *rates = json_array();
    json_t *root = json_object(), *checks = json_array();
    for (uint32_t i = 0; i < d->lines; i++) {
        const struct doctor_line *l = &d->line[i];
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(l->name));
        json_object_set_new(o, "verdict", json_string(names[l->verdict]));
        json_object_set_new(o, "text", json_bytes(l->text));
        if (l->fix[0])
            json_object_set_new(o, "fix", json_bytes(l->fix));
        json_array_append_new(checks, o);
    }
    json_object_set_new(root, "checks", checks);
    json_object_set_new(root, "ok", json_integer(d->count[DOCTOR_OK]));
    json_object_set_new(root, "warn", json_integer(d->count[DOCTOR_WARN]));
    json_object_set_new(root, "fail", json_integer(d->count[DOCTOR_FAIL]));
    set_int(root, "budget_bytes", d->budget_bytes);
    for (uint32_t i = 0; i < d->drives; i++)
        json_array_append_new(
            rates, json_integer((json_int_t)d->drive[i].bytes_per_s));
    json_object_set_new(root, "drives_bytes_per_s", rates);
    if (t.seconds > 0) {
        set_real(root, "seconds_per_token", t.seconds);
        json_object_set_new(root, "cause",
                            json_string(cause_name(pass_cause(&t))));
    }
    json_object_set_new(root, "next", json_bytes(next));
    return json_print(root, JSON_INDENT(1));
}

static void print_end(const struct doctor *d, const char *next)
{
    struct pass_times t = forecast(d, K3_SHARDS);
    printf("\n%u ok, %u warn, %u fail\n", d->count[DOCTOR_OK],
           d->count[DOCTOR_WARN], d->count[DOCTOR_FAIL]);
    if (t.seconds > 0)
        printf("forecast: %s s a token, which reads %s GB and computes %s s;\n"
               "          what takes the time: %s\n", figure(t.seconds).text,
               figure(t.read_bytes / 1e9).text, figure(t.compute_s).text,
               cause_name(pass_cause(&t)));
    if (t.seconds > 0 && d->drives > 1 && !d->opened)
        printf("          in parts over these drives (sluice spread) %s s, "
               "with a copy on each\n          (--mirror) %s s; md RAID 0 of "
               "equal drives, chunk 512K, is as parts\n",
               figure(forecast(d, K3_PARTS).seconds).text,
               figure(forecast(d, K3_MIRRORS).seconds).text);
    printf("next: %s\n", next);
}

int cmd_doctor(int argc, char **argv)
{
    struct doctor *d = calloc(1, sizeof *d);
    char *next = calloc(1, NEXT_BYTES);
    bool json = false;
    const struct opt table[] = {
        PARTS_OPTION(&d->parts),
        { "json", 0, OPT_FLAG, &json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice doctor [MODEL] [--parts PATH]... [--json]",
        "Check the machine, its drives and the folder of a model, or that of a "
        "drafter. Says what to do about each problem, how fast a run would be, "
        "what to type next.",
        table, sizeof table / sizeof *table };
    if (!d || !next) {
        fputs("sluice: no memory\n", stderr);
        free(next);
        free(d);
        return 1;
    }
    int words = opt_parse(&cmd, argc, argv, &d->model, 1), status;
    if (words < 0) {
        status = opt_status(words);
    } else if (d->model && !json && dspark_is_drafter(d->model)) {
        status = drafter_doctor(d->model);
    } else {
        d->quiet = json;
        doctor_system(d);
        if (d->model) {
            doctor_folder(d);
            doctor_drives(d);
        }
        say_next(next, d);
        status = json ? print_json(d, next) : 0;
        if (!json)
            print_end(d, next);
        status |= d->count[DOCTOR_FAIL] ? 1 : 0;
    }
    doctor_free(d);
    free(next);
    free(d);
    return status;
}

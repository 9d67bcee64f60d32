/* cmd_doctor.c - sluice doctor: can this machine run it, and what to type. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cmd.h"
#include "bin/doctor.h"
#include "bin/opt.h"
#include "model/token_cost.h"

enum { NEXT_BYTES = 4600, IN_MIB_BELOW_GIB = 4 };

/* Quote a word for a shell where it needs it. */
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
    char word[4200], size[32];
    uint64_t gib = d->budget_bytes >> 30;
    if (gib >= IN_MIB_BELOW_GIB)
        snprintf(size, sizeof size, "%lluG", (unsigned long long)gib);
    else
        snprintf(size, sizeof size, "%lluM",
                 (unsigned long long)(d->budget_bytes >> 20));
    snprintf(out, NEXT_BYTES, "%s run %s -m %s %s", opt_program,
             quoted(word, sizeof word, d->model), size,
             d->has_tokenizer ? "-p 'The capital of France is' -n 8"
                              : "--ids 1,2,3 -n 8");
}

static void say_next(char *out, const struct doctor *d)
{
    if (!d->model) {
        snprintf(out, NEXT_BYTES, "%s synth /tmp/k3 --preset small && "
                 "%s run /tmp/k3 -p Hello -n 8", opt_program, opt_program);
        return;
    }
    for (uint32_t i = 0; i < d->lines; i++)
        if (d->line[i].verdict == DOCTOR_FAIL && d->line[i].fix[0]) {
            snprintf(out, NEXT_BYTES, "%s", d->line[i].fix);
            return;
        }
    if (d->count[DOCTOR_FAIL] || !d->complete)
        snprintf(out, NEXT_BYTES, "%s doctor DIR, with the folder that has "
                 "config.json and the shards", opt_program);
    else
        say_run(out, d);
}

/* Seconds a token at the least, of the run that is proposed; 0: not known. */
static double forecast(const struct doctor *d, double *gb)
{
    struct token_cost t;
    struct k3_options o = { .memory_bytes = d->budget_bytes, .logits = 1,
                            .threads = d->threads };
    *gb = 0;
    if (!d->complete || !d->bytes_per_s ||
        token_cost(&t, &d->config, &o, NULL))
        return 0;
    *gb = (double)t.read_bytes / 1e9;
    return (double)t.read_bytes / (double)d->bytes_per_s;
}

static void print_json(const struct doctor *d, const char *next)
{
    static const char *const names[] = { "ok", "warn", "fail" };
    double gb, s = forecast(d, &gb);
    json_t *root = json_object(), *checks = json_array();
    for (uint32_t i = 0; i < d->lines; i++) {
        const struct doctor_line *l = &d->line[i];
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(l->name));
        json_object_set_new(o, "verdict", json_string(names[l->verdict]));
        json_object_set_new(o, "text", json_string(l->text));
        if (l->fix[0])
            json_object_set_new(o, "fix", json_string(l->fix));
        json_array_append_new(checks, o);
    }
    json_object_set_new(root, "checks", checks);
    json_object_set_new(root, "ok", json_integer(d->count[DOCTOR_OK]));
    json_object_set_new(root, "warn", json_integer(d->count[DOCTOR_WARN]));
    json_object_set_new(root, "fail", json_integer(d->count[DOCTOR_FAIL]));
    json_object_set_new(root, "budget_bytes",
                        json_integer((json_int_t)d->budget_bytes));
    json_object_set_new(root, "drive_bytes_per_s",
                        json_integer((json_int_t)d->bytes_per_s));
    if (s > 0)
        json_object_set_new(root, "seconds_per_token", json_real(s));
    json_object_set_new(root, "next", json_string(next));
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

static void print_end(const struct doctor *d, const char *next)
{
    double gb, s = forecast(d, &gb);
    printf("\n%u ok, %u warn, %u fail\n", d->count[DOCTOR_OK],
           d->count[DOCTOR_WARN], d->count[DOCTOR_FAIL]);
    if (s > 0)
        printf("forecast: %.3g s a token, %.3f GB at %.2f GB/s, if compute "
               "keeps up\n", s, gb, (double)d->bytes_per_s / 1e9);
    printf("next: %s\n", next);
}

int cmd_doctor(int argc, char **argv)
{
    struct doctor *d = calloc(1, sizeof *d);
    char *next = calloc(1, NEXT_BYTES);
    bool json = false;
    const struct opt table[] = {
        { "json", 0, OPT_FLAG, &json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice doctor [MODEL] [--json]",
        "Can this machine run it, how fast is its storage, what to type next.",
        table, sizeof table / sizeof *table };
    if (!d || !next) {
        fputs("sluice: no memory for a doctor\n", stderr);
        free(next);
        free(d);
        return 1;
    }
    int words = opt_parse(&cmd, argc, argv, &d->model, 1), status;
    if (words < 0) {
        status = opt_status(words);
    } else {
        d->quiet = json;
        doctor_system(d);
        if (d->model) {
            doctor_folder(d);
            doctor_drives(d);
        }
        say_next(next, d);
        if (json)
            print_json(d, next);
        else
            print_end(d, next);
        status = d->count[DOCTOR_FAIL] ? 1 : 0;
    }
    doctor_free(d);
    free(next);
    free(d);
    return status;
}

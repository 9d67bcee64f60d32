#include "bin/batch_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bin/opt.h"
#include "sched/stream.h"

enum { SHOW_NS = 200 * 1000 * 1000 };

/* ---- the progress line ---- */

static void say_time(double seconds)
{
    if (seconds < 100)
        fprintf(stderr, "%.0f s", seconds);
    else if (seconds < 6000)
        fprintf(stderr, "%.0f min", seconds / 60);
    else
        fprintf(stderr, "%.1f h", seconds / 3600);
}

static void show(struct batch_show *s)
{
    int64_t now = stream_clock_ns();
    if (!s->on || now - s->shown_ns < SHOW_NS)
        return;
    s->shown_ns = now;
    double seconds = (double)(now - s->begin_ns) / 1e9;
    fprintf(stderr, "\r\033[K%" PRIu64 " done, %" PRIu32 " running", s->done,
            s->running);
    if (s->lines)
        fprintf(stderr, ", %" PRIu64 " waiting",
                s->lines - s->done - s->running);
    fprintf(stderr, "; layer %" PRIu32 "/%" PRIu32, s->layer + 1, s->layers);
    if (s->ids)
        fprintf(stderr, ", %.3g tokens/s, %.3g GB a token",
                (double)s->ids / seconds,
                (double)s->bytes / 1e9 / (double)s->ids);
    if (s->lines && s->done > s->before) {
        fputs(", ", stderr);
        say_time(seconds * (double)(s->lines - s->done) /
                 (double)(s->done - s->before));
        fputs(" left", stderr);
    }
    fflush(stderr);
}

void batch_show_begin(struct batch_show *s, struct k3 *k)
{
    memset(s, 0, sizeof *s);
    s->on = isatty(STDERR_FILENO);
    s->begin_ns = stream_clock_ns();
    s->k = k;
}

static uint64_t read_bytes(struct k3 *k)
{
    struct k3_facts f;
    uint64_t bytes = 0;
    k3_facts(k, &f);
    for (int i = 0; i < K3_PHASES; i++)
        bytes += k3_read_bytes(&f.totals[i]);
    return bytes;
}

void batch_show_pass(struct batch_show *s, const struct batch_feed *f,
                     const struct batch_counts *counts)
{
    if (!s->on)
        return;
    s->lines = f->in.lines;
    s->before = f->before + f->refused + f->blank;
    s->done = s->before + f->answered;
    if (s->lines && s->lines < s->done + counts->running)
        s->lines = s->done + counts->running; /* the file has grown */
    s->running = counts->running;
    s->ids = counts->ids;
    s->bytes = read_bytes(s->k);
    show(s);
}

void batch_show_layer(void *arg, uint32_t layer, uint32_t layers)
{
    struct batch_show *s = arg;
    s->layer = layer;
    s->layers = layers;
    show(s);
}

void batch_show_end(struct batch_show *s)
{
    if (s->on)
        fputs("\r\033[K", stderr);
    s->on = false;
}

/* ---- at the end ---- */

static json_t *forecast_object(const struct forecast *f)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "sequences",
                     (int)f->sequences, "tokens_per_s", f->ids_per_s,
                     "bytes_per_token", f->bytes_per_id, "pass_seconds",
                     f->pass_s, "io_s", f->io_s, "compute_s", f->compute_s,
                     "experts_per_layer", f->distinct);
}

json_t *batch_show_report(const struct batch_feed *f, uint64_t given,
                          const struct batch_counts *counts,
                          const struct forecast *forecast, struct k3 *k,
                          double wall_seconds)
{
    struct k3_facts facts;
    k3_facts(k, &facts);
    const struct k3_totals *t = &facts.totals[K3_DECODE];
    double ids = (double)counts->ids, decoded = (double)counts->decode_ids;
    double bytes = (double)k3_read_bytes(t);
    double passes = t->passes ? (double)t->passes : 1;
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "answered",
        (json_int_t)f->answered, "errors", (json_int_t)f->refused,
        "duplicates", (json_int_t)f->duplicates, "finished_before",
        (json_int_t)f->before, "prompt_tokens",
        (json_int_t)counts->prompt_ids, "tokens", (json_int_t)counts->ids,
        "tokens_per_s", wall_seconds > 0 ? ids / wall_seconds : 0,
        "bytes_per_token",
        ids > 0 ? (double)read_bytes(k) / ids : 0);
    json_object_set_new(o, "tokens_found_before",
                        json_integer((json_int_t)given));
    json_object_set_new(o, "forecast", forecast_object(forecast));
    json_object_set_new(
        o, "measured",
        json_pack("{s:i, s:f, s:f, s:f, s:f}", "sequences",
                  (int)k3_plan_of(k)->sequences, "tokens_per_s",
                  t->ns ? decoded / ((double)t->ns / 1e9) : 0.0,
                  "bytes_per_token", decoded > 0 ? bytes / decoded : 0.0,
                  "pass_seconds", (double)t->ns / 1e9 / passes,
                  "sequences_per_pass", decoded / passes));
    return o;
}

void batch_show_summary(const struct batch_feed *f, bool cut)
{
    fprintf(stderr, "%s%" PRIu64 " answered, %" PRIu64 " error%s",
            cut ? "so far: " : "", f->answered, f->refused,
            f->refused == 1 ? "" : "s");
    if (f->duplicates)
        fprintf(stderr, " (%" PRIu64 " with the custom_id of another line)",
                f->duplicates);
    if (f->before)
        fprintf(stderr, ", %" PRIu64 " finished before", f->before);
    if (f->in.lines)
        fprintf(stderr, " of %" PRIu64 " lines", f->in.lines - f->blank);
    fputc('\n', stderr);
}

static void say_quoted(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789/._-+,:=@";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, stderr);
        return;
    }
    fputc('\'', stderr);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stderr);
        else
            fputc(*word, stderr);
    fputc('\'', stderr);
}

void batch_show_again(int argc, char **argv)
{
    fprintf(stderr, "sluice: interrupted; the same command goes on:\n  %s",
            opt_program);
    for (int i = 0; i < argc; i++) {
        fputc(' ', stderr);
        say_quoted(argv[i]);
    }
    fputc('\n', stderr);
}

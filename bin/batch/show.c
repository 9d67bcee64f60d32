#include "bin/batch/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bin/cli/json.h"
#include "bin/cli/opt.h"
#include "bin/cli/terminal.h"
#include "io/clock.h"
#include "model/ckpt/figure.h"

enum {
    TERMINAL_NS = 200 * 1000 * 1000,
    LINE_BYTES = 256,
    SECONDS_MAX = 1000 * 1000,
};

static const int64_t AUTO_NS = -1, MINUTE_NS = 60 * (int64_t)1000000000;

/* ---- the progress line ---- */

static void make_line(FILE *f, const struct batch_show *s, double seconds)
{
    fprintf(f, "%" PRIu64 " done, %" PRIu32 " running", s->done, s->running);
    if (s->lines)
        fprintf(f, ", %" PRIu64 " waiting", s->lines - s->done - s->running);
    if (s->lines && s->done > s->before)
        fprintf(f, ", %s left",
                figure_span(seconds * (double)(s->lines - s->done) /
                            (double)(s->done - s->before)).text);
    if (s->ids)
        fprintf(f, "; %s tokens/s, %s GB a token",
                figure((double)s->ids / seconds).text,
                figure((double)s->bytes / 1e9 / (double)s->ids).text);
    fprintf(f, "; layer %" PRIu32 "/%" PRIu32, s->layer + 1, s->layers);
}

/* A terminal's line must not go on in the next: \r would not wipe that out. */
static int columns(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 2)
        return LINE_BYTES;
    return w.ws_col - 1;
}

static void show(struct batch_show *s)
{
    int64_t now = clock_ns();
    char line[LINE_BYTES] = "";
    if (!s->on || now - s->shown_ns < s->every_ns)
        return;
    s->shown_ns = now;
    FILE *f = fmemopen(line, sizeof line, "w");
    if (!f)
        return;
    make_line(f, s, (double)(now - s->begin_ns) / 1e9);
    fclose(f);
    line[LINE_BYTES - 1] = '\0';
    if (s->terminal)
        fprintf(stderr, "\r\033[K%.*s", columns(), line);
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

const char *batch_show_every(int64_t *every_ns, const char *value)
{
    char *end;
    *every_ns = strcmp(value, "off") ? AUTO_NS : 0;
    if (!strcmp(value, "auto") || !*every_ns)
        return NULL;
    double seconds = strtod(value, &end);
    if (end == value || (strcmp(end, "") && strcmp(end, "s")) ||
        !(seconds > 0 && seconds <= SECONDS_MAX))
        return "--progress is auto, off or a number of seconds";
    *every_ns = (int64_t)(seconds * 1e9);
    return NULL;
}

void batch_show_begin(struct batch_show *s, struct sluice *session,
                      int64_t every_ns)
{
    memset(s, 0, sizeof *s);
    s->on = every_ns != 0;
    s->terminal = terminal_has_line();
    s->every_ns = every_ns != AUTO_NS ? every_ns
                  : s->terminal       ? TERMINAL_NS
                                      : MINUTE_NS;
    s->begin_ns = clock_ns();
    s->shown_ns = s->terminal ? 0 : s->begin_ns;
    s->session = session;
}

void batch_show_pass(struct batch_show *s, const struct batch_feed *f)
{
    struct sluice_counters c;
    if (!s->on)
        return;
    sluice_counters(s->session, &c, sizeof c);
    s->lines = f->in.lines;
    s->before = f->before + f->refused + f->blank;
    s->done = s->before + f->answered;
    if (s->lines && s->lines < s->done + c.running)
        s->lines = s->done + c.running; /* the file has grown */
    s->running = c.running;
    s->ids = c.new_ids;
    s->bytes = c.read_bytes;
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
    if (s->on && s->terminal)
        fputs("\r\033[K", stderr);
    s->on = false;
}

/* ---- at the end ---- */

static json_t *forecast_object(const struct forecast *f)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "sequences",
                     (int)f->sequences, "tokens_per_s", f->ids_per_s,
                     "bytes_per_token", f->bytes_per_id, "pass_seconds",
                     f->pass.seconds, "io_s", f->pass.io_s, "compute_s",
                     f->pass.compute_s, "experts_per_layer",
                     f->pass.distinct);
}

json_t *batch_show_report(const struct batch_feed *f, uint64_t given,
                          const struct forecast *forecast,
                          struct sluice *session, double wall_seconds,
                          double cpu_seconds)
{
    struct sluice_counters c;
    struct k3_facts facts;
    struct sluice_info info;
    sluice_counters(session, &c, sizeof c);
    sluice_info(session, &info, sizeof info);
    k3_facts(knobs_engine(session), &facts);
    const struct k3_totals *t = &facts.totals[K3_DECODE];
    double ids = (double)c.new_ids, decoded = (double)c.decode_ids;
    double all_bytes = (double)(k3_read_bytes(t) +
                                k3_read_bytes(&facts.totals[K3_PREFILL]));
    double bytes = (double)k3_read_bytes(t);
    double passes = t->passes ? (double)t->passes : 1;
    double wall = wall_seconds > 0 ? wall_seconds : 1;
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "answered",
        (json_int_t)f->answered, "errors", (json_int_t)f->refused,
        "duplicates", (json_int_t)f->duplicates, "finished_before",
        (json_int_t)f->before, "prompt_tokens", (json_int_t)f->prompt_tokens,
        "new_tokens", (json_int_t)f->new_tokens, "prompt_tokens_read",
        (json_int_t)c.prompt_ids, "elapsed_s", wall_seconds);
    set_real(o, "requests_per_s", (double)f->answered / wall);
    set_real(o, "ids_per_s", ids / wall);
    set_int(o, "tokens_found_before", given);
    set_int(o, "fields_ignored", f->ignored);
    if (ids > 0)
        json_object_update_new(
            o, json_pack("{s:f, s:f, s:f}", "seconds_per_token",
                         wall_seconds / ids, "cpu_seconds_per_token",
                         cpu_seconds / ids, "bytes_per_token",
                         all_bytes / ids));
    set_int(o, "prompt_tokens_read", c.prompt_ids);
    set_int(o, "prompt_tokens_copied", c.copied_ids);
    /* Older names. */
    set_int(o, "tokens", c.new_ids);
    set_real(o, "tokens_per_s", ids / wall);
    json_object_set_new(o, "forecast", forecast_object(forecast));
    json_object_set_new(
        o, "measured",
        json_pack("{s:i, s:f, s:f, s:f, s:f}", "sequences",
                  (int)info.sequences,
                  "tokens_per_s",
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
    if (f->errors_before)
        fprintf(stderr, " (%" PRIu64 " with an error)", f->errors_before);
    if (f->in.lines)
        fprintf(stderr, " of %s",
                figure_count(f->in.lines - f->blank, "line").text);
    if (f->rules.lenient)
        fprintf(stderr, "; %" PRIu64 " field%s ignored", f->ignored,
                f->ignored == 1 ? "" : "s");
    fputc('\n', stderr);
    if (f->cut)
        fprintf(stderr, "%" PRIu64 " text%s came to %s limit: more with "
                "max_tokens, or -n\n", f->cut, f->cut == 1 ? "" : "s",
                f->cut == 1 ? "its" : "their");
    if (f->thinking)
        fprintf(stderr, "%" PRIu64 " of them had not ended %s thoughts and "
                "%s no answer: or a lower reasoning_effort\n", f->thinking,
                f->thinking == 1 ? "its" : "their",
                f->thinking == 1 ? "has" : "have");
}

int batch_show_status(const struct batch_feed *f)
{
    bool good = f->answered + f->before > f->errors_before &&
                !f->refused && !f->errors_before;
    return good ? 0 : BATCH_STATUS_ERRORS;
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

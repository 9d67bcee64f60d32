/* cmd_batch.c - sluice batch: many requests from a file, answers to a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bin/batch/alike.h"
#include "bin/batch/files.h"
#include "bin/batch_internal.h"
#include "bin/cli/machines.h"
#include "bin/cmd.h"
#include "bin/report/report.h"
#include "bin/report/report_drafts.h"
#include "bin/report/setup.h"
#include "io/clock.h"
#include "model/k3/limits.h"
#include "model/sim/machine.h"

enum { DEFAULT_MAX = 64, MAX_TOKENS = 1 << 24 };

/* ---- what the session tells ---- */

static bool token(void *arg, const struct sluice_token *t)
{
    struct batch_job *j = arg;
    struct batch_cmd *b = j->owner;
    if (t->id == SLUICE_NO_ID)
        return false;
    int stop = batch_job_token(j, t);
    if (stop < 0)
        error_set(&b->error, stop, "no memory for an answer");
    return stop;
}

static bool logits(void *arg, uint64_t request, const float *row)
{
    struct batch_job *j = arg;
    struct batch_cmd *b = j->owner;
    (void)request;
    return batch_logits_row(&b->logits, j->line, row, b->c.vocab, &b->error);
}

/* Once: what keeps one state from being saved keeps all. */
static void on_note(void *arg, const char *sentence, bool lost)
{
    struct batch_job *j = arg;
    struct batch_cmd *b = j->owner;
    (void)lost;
    if (!b->noted)
        fprintf(stderr, "sluice: %s\n", sentence);
    b->noted = true;
}

static void drop(struct batch_cmd *b, struct batch_job *j)
{
    struct batch_job **link = &b->asked;
    while (*link && *link != j)
        link = &(*link)->after;
    if (*link)
        *link = j->after;
    batch_job_free(j);
    free(j);
}

/* After an error, and when the job is cut off, there is no answer. */
static void finished(void *arg, const struct sluice_result *r)
{
    struct batch_job *j = arg;
    struct batch_cmd *b = j->owner;
    bool answered = r->finish != SLUICE_CANCELLED && r->finish != SLUICE_FAILED;
    int err = b->error.code;
    if (!err && answered && b->a.s.logits)
        err = batch_logits_end(&b->logits, j->line, &b->error);
    if (!err && answered)
        batch_feed_answer(&b->feed, j, r->count, r->finish, &b->error);
    drop(b, j);
}

/* ---- requests ---- */

static int submit(struct batch_cmd *b, struct batch_job *j)
{
    struct sluice_error e = { 0 };
    batch_partial_give(&b->partial, j, &b->feed.rules,
                       b->a.s.mla_latent_eps);
    b->given += j->count;
    j->owner = b;
    j->after = b->asked;
    b->asked = j;
    if (b->a.s.logits && batch_logits_begin(&b->logits, j->line, &b->error))
        return b->error.code;
    struct sluice_request r = j->r;
    r.ids = j->ids;
    r.count = j->prompt_count + j->count;
    r.given = j->count;
    r.arg = j;
    r.token = token;
    r.logits = b->a.s.logits ? logits : NULL;
    r.finished = finished;
    r.note = on_note;
    r.common = alike_common(j, b->first);
    return sluice_submit(b->s, &r, NULL, &e) ? knobs_error_back(&b->error, &e)
                                             : 0;
}

/* Keep one request more than there are places, so that reads can run ahead of
 * the next prompt. Waits for a line only when there is no request. */
static int submit_lines(struct batch_cmd *b)
{
    for (;;) {
        struct sluice_counters c;
        struct batch_job *j = b->first;
        sluice_counters(b->s, &c, sizeof c);
        uint32_t there = c.running + c.queued;
        if (there > b->sequences || (b->over && !j))
            return 0;
        if (session_signal())
            return -ECANCELED;
        int got = j ? 1 : batch_feed_next(&b->feed, !there, &j, &b->error);
        b->first = j && j == b->first ? j->after : b->first;
        b->over |= got == -ENODATA;
        if (got == -ENODATA || (got == 0 && there))
            return 0;
        if (got == 1)
            got = submit(b, j);
        if (!got && (b->held || b->a.s.prefix_cache))
            got = batch_look_ahead(b);
        if (got < 0)
            return got;
    }
}

static int after_step(struct batch_cmd *b)
{
    int err = b->error.code;
    if (!err)
        err = batch_feed_flush(&b->feed, &b->error);
    if (err)
        return err;
    batch_show_pass(&b->show, &b->feed);
    batch_partial_save(&b->partial, b->asked, session_signal());
    return session_signal() ? -ECANCELED : 0;
}

/* All lines: 0, -ECANCELED after a signal, or an error. */
static int answer_lines(struct batch_cmd *b)
{
    for (;;) {
        struct sluice_error e = { 0 };
        int err = submit_lines(b);
        if (err)
            return err;
        int step = sluice_step(b->s, &e);
        if (step < 0)
            return knobs_error_back(&b->error, &e);
        if (!step && b->over && !b->first)
            return 0;
        err = step ? after_step(b) : 0;
        if (err)
            return err;
    }
}

/* ---- the end ---- */

static int finish(struct batch_cmd *b, double wall)
{
    struct sluice_counters c;
    struct setup_input setup = {
        .k = knobs_engine(b->s), .model = b->model, .run = b->watch.run,
        .argc = b->argc, .argv = b->argv, .args = &b->a.s,
        .max_tokens = b->a.max };
    sluice_counters(b->s, &c, sizeof c);
    struct report_input in = { .k = knobs_engine(b->s), .wall_seconds = wall,
                               .decode_tokens = c.decode_ids,
                               .open_seconds = b->open_s };
    int err = b->a.s.report ? setup_make(&in.setup, &setup, &b->error) : 0;
    if (err)
        return err;
    json_t *report = report_make(&in);
    report_drafts(report, b->s);
    double cpu = json_real_value(json_object_get(report, "cpu_seconds"));
    json_object_set_new(report, "batch",
                        batch_show_report(&b->feed, b->given, &b->forecast,
                                          b->s, wall, cpu));
    report_say(report);
    err = report_write(b->a.s.report, report, &b->error);
    json_decref(report);
    return err;
}

static int run(struct batch_cmd *b)
{
    int64_t begin = clock_ns();
    session_notes(b->s);
    batch_show_begin(&b->show, b->s, b->a.every_ns);
    int err = answer_lines(b);
    batch_show_end(&b->show);
    int other = batch_feed_flush(&b->feed, &b->error);
    err = err ? err : other;
    if (!err || err == -ECANCELED)
        other = finish(b, (double)(clock_ns() - begin) / 1e9);
    return err ? err : other;
}

static void close_batch(struct batch_cmd *b, bool complete)
{
    batch_logits_close(&b->logits);
    while (b->asked) /* the session did not take it */
        drop(b, b->asked);
    while (b->first) {
        struct batch_job *j = b->first;
        b->first = j->after;
        drop(b, j);
    }
    batch_partial_close(&b->partial, complete);
    batch_feed_close(&b->feed, complete);
    samplers_free(&b->a.s.samplers);
    sluice_text_close(b->text);
    sidecars_close(&b->sidecars);
    parts_close(b->parts);
    config_free(&b->c);
    session_release();
}

static int check(struct batch_cmd *b)
{
    session_catch(NULL);
    int err = batch_check_job(b);
    int status = err == -ECANCELED  ? 128 + session_signal()
                 : err              ? session_failed(b->model, &b->error)
                 : b->feed.refused ? BATCH_STATUS_ERRORS
                                   : 0;
    close_batch(b, false);
    return status;
}

static int batch(struct batch_cmd *b, int argc, char **argv)
{
    session_catch(NULL); /* passes are finished, not cancelled */
    session_announce("sluice: ends after this pass; what is done is kept, and "
                     "the same command goes on. Again: at once\n");
    b->logits.prefix = b->a.s.logits;
    int err = batch_files_check(&b->a.s, b->model, b->a.in, b->a.out,
                                &b->error);
    if (!err)
        err = batch_open_feed(b);
    if (!err && b->first)
        err = batch_open_model(b);
    if (!err && b->first)
        err = run(b);
    if (!err && b->over)
        err = batch_feed_ended(&b->feed, &b->error);
    sluice_close(b->s);
    struct error files = { 0 };
    int lost = watch_close(&b->watch, &files);
    if (lost && !err) {
        b->error = files;
        err = lost;
    }
    int signal = err == -ECANCELED ? session_signal() : 0;
    int status = signal ? 128 + signal
                 : err  ? session_failed(b->model, &b->error)
                        : batch_show_status(&b->feed);
    if (b->feed.out)
        batch_show_summary(&b->feed, err);
    if (signal)
        batch_show_again(argc, argv);
    close_batch(b, !err && b->over);
    return status;
}

/* Check what was asked for, and do it. */
static int start(const struct opt_command *cmd, struct batch_cmd *b)
{
    struct batch_args *a = &b->a;
    struct k3_options o;
    if (a->check && a->in)
        return opt_usage_error(cmd, "--check has its own file: no -i");
    if (!a->check && (!a->in || !a->out))
        return opt_usage_error(cmd, "batch needs -i and -o");
    if (!a->max || a->max > MAX_TOKENS)
        return opt_usage_error(cmd, "-n is from 1 to %d", MAX_TOKENS);
    if (strcmp(a->resume, "strict") && strcmp(a->resume, "ids"))
        return opt_usage_error(cmd, "--resume is strict or ids");
    const char *wrong = session_options(&a->s, &o);
    wrong = wrong ? wrong : batch_show_every(&a->every_ns, a->progress);
    if (wrong)
        return opt_usage_error(cmd, "%s", wrong);
    uint64_t rows = a->s.rows ? a->s.rows : K3_ROWS_MAX;
    if (a->sequences > rows) /* each of them has a row in a pass */
        return opt_usage_error(cmd, "--sequences is at most %" PRIu64 "%s",
                               rows, a->s.rows ? ", the --rows" : "");
    if (machines_follow(b->model, &a->s))
        return 0;
    b->memory = o.memory_bytes;
    return a->check ? check(b) : batch(b, b->argc, b->argv);
}

int cmd_batch(int argc, char **argv)
{
    struct batch_cmd b = { .a.max = DEFAULT_MAX, .a.resume = "strict",
                           .feed.in.fd = -1,
                           .argc = argc, .argv = argv };
    struct batch_args *a = &b.a;
    session_defaults(&a->s);
    a->progress = "auto";
    const struct opt table[] = {
        { "input", 'i', OPT_TEXT, &a->in, "IN.jsonl|-",
          "one request a line, also compressed by gzip or zstd; - is "
          "stdin", NULL },
        { "output", 'o', OPT_TEXT, &a->out, "OUT.jsonl|-",
          "one answer a line; a file that exists is continued; - is stdout",
          NULL },
        { "check", 0, OPT_TEXT, &a->check, "IN.jsonl|-",
          "read all lines and say which will be refused, how many passes the "
          "others take, and how long; with -o without those that OUT answers",
          NULL },
        { "max-tokens", 'n', OPT_UINT, &a->max, "N",
          "max new tokens of a request that has no max_tokens; default 64",
          NULL },
        { "new", 0, OPT_UINT, &a->max, "N", NULL, NULL },
        { "progress", 0, OPT_TEXT, &a->progress, "auto|off|N",
          "say on stderr how far it is: every N seconds; auto: all the time "
          "on a terminal, else once a minute; default auto", NULL },
        { "keep-order", 0, OPT_FLAG, &a->in_order, NULL,
          "answers in the order of the requests", NULL },
        { "lenient", 0, OPT_FLAG, &a->lenient, NULL,
          "ignore fields that are unknown or not supported", NULL },
        { "resume", 0, OPT_TEXT, &a->resume, "strict|ids",
          "when OUT answers a line that now asks for something else: stop, or "
          "keep the answer, known by its custom_id; default strict", NULL },
        { "retry", 0, OPT_FLAG, &a->retry, NULL,
          "ask lines again to which OUT has an error; with --resume strict "
          "this is done anyway where the line, or an option that matters to "
          "it, has changed", NULL },
        { "sequences", 0, OPT_UINT, &a->sequences, "N",
          "requests at one time; default: the fastest number", NULL },
        SESSION_OPTIONS(&a->s),
    };
    const struct opt_command cmd = {
        "sluice batch MODEL -i IN.jsonl -o OUT.jsonl [options]",
        "Generate for many requests, all of them in each pass over the "
        "weights. A request is a line of JSON, like one of these or as the "
        "lines of OpenAI's batch files:\n\n"
        "{\"custom_id\": \"1\", \"prompt\": \"Hello\", \"max_tokens\": 8}\n"
        "{\"custom_id\": \"2\", \"messages\": [{\"role\": \"user\", "
        "\"content\": \"Hello\"}], \"max_tokens\": 2000}\n\n"
        "Exit status: 0 all lines have answers, 1 the job failed, 2 a wrong "
        "command line, 3 the job ended and a line has an error for an answer, "
        "or none has an answer; 128 + N: signal N ended it.",
        table, sizeof table / sizeof *table };
    int ended = opt_parse_one(&cmd, argc, argv, &b.model,
                              "batch needs the folder of a model");
    if (ended >= 0)
        return ended;
    return start(&cmd, &b);
}

/* cmd_batch.c - sluice batch: many requests from a file, answers to a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bin/batch_feed.h"
#include "bin/batch_logits.h"
#include "bin/batch_partial.h"
#include "bin/batch_show.h"
#include "bin/cmd.h"
#include "bin/report.h"
#include "bin/session.h"
#include "bin/watch.h"
#include "compute/kern.h"
#include "model/forecast.h"
#include "model/k3_limits.h"
#include "model/machine.h"
#include "sched/stream.h"

enum {
    DEFAULT_NEW = 64,
    SEQUENCES_MAX = 256, /* chosen; more with --sequences */
    KERNELS_SHARE = 4,   /* of the memory, to time the kernels in */
};

static const double rate_unknown = 3e9; /* of a drive that cannot be measured */

struct batch_args {
    struct session_args s;
    const char *in, *out;
    uint64_t    most, sequences;
    bool        in_order;
};

struct batch_cmd {
    struct batch_args a;
    const char *model;
    struct batch_feed feed;
    struct tok *tok;
    char        name[256]; /* the last part of it */
    struct config c;
    struct k3 *k;
    struct watch_files watch;
    struct batch_logits logits;
    struct batch_partial partial;
    struct batch_show show;
    struct forecast forecast; /* of the number of sequences there are */
    struct batch_counts counts;
    struct batch_job *first; /* read before the model was opened */
    struct batch_job *asked; /* those that batch_run has */
    uint64_t given;          /* ids that an earlier process had found */
    bool over;               /* the input came to its end */
    struct why why;          /* of a callback */
};

/* ---- what batch_run asks ---- */

static struct batch_job *job_of(uint64_t tag)
{
    return (struct batch_job *)(uintptr_t)tag;
}

static int next(void *arg, bool wait, struct batch_request *out)
{
    struct batch_cmd *b = arg;
    struct batch_job *j = b->first;
    if (session_signal())
        return -ECANCELED;
    int got = j ? 1 : batch_feed_next(&b->feed, wait, &j, &b->why);
    b->first = NULL;
    b->over = got == -ENODATA;
    if (b->over)
        return BATCH_OVER;
    if (got <= 0)
        return got ? got : BATCH_NOTHING_NOW;
    batch_partial_give(&b->partial, j, &b->feed.rules,
                       b->a.s.mla_latent_eps);
    b->given += j->r.given;
    j->after = b->asked;
    b->asked = j;
    *out = j->r;
    out->tag = (uint64_t)(uintptr_t)j;
    if (b->a.s.logits) {
        got = batch_logits_begin(&b->logits, j->line, &b->why);
        if (got)
            return got;
    }
    return BATCH_TAKEN;
}

static bool is_end(void *arg, uint32_t id)
{
    struct batch_cmd *b = arg;
    return id == b->c.eos_id || (b->tok && tok_is_stop(b->tok, id));
}

static bool token(void *arg, uint64_t tag, uint32_t id)
{
    struct batch_cmd *b = arg;
    int said = reply_push(&job_of(tag)->reply, id);
    job_of(tag)->count++;
    if (said < 0)
        why_set(&b->why, said, "no memory for an answer");
    return said;
}

static int logits(void *arg, uint64_t tag, const float *row)
{
    struct batch_cmd *b = arg;
    return batch_logits_row(&b->logits, job_of(tag)->line, row, b->c.vocab,
                            &b->why);
}

static void drop(struct batch_cmd *b, struct batch_job *j)
{
    struct batch_job **at = &b->asked;
    while (*at && *at != j)
        at = &(*at)->after;
    if (*at)
        *at = j->after;
    batch_job_free(j);
    free(j);
}

static int finished(void *arg, uint64_t tag, uint32_t count,
                    enum batch_reason reason)
{
    struct batch_cmd *b = arg;
    struct batch_job *j = job_of(tag);
    int err = b->why.error;
    if (!err && b->a.s.logits)
        err = batch_logits_end(&b->logits, j->line, &b->why);
    if (!err)
        err = batch_feed_answer(&b->feed, j, count, reason, &b->why);
    drop(b, j);
    return err;
}

static int pass(void *arg, const struct batch_counts *counts)
{
    struct batch_cmd *b = arg;
    int err = batch_feed_flush(&b->feed, &b->why);
    if (err)
        return err;
    batch_show_pass(&b->show, &b->feed, counts);
    batch_partial_save(&b->partial, b->asked, session_signal());
    return session_signal() ? -ECANCELED : 0;
}

/* ---- before and after ---- */

static int open_tokenizer(struct batch_cmd *b)
{
    struct stat st;
    char path[4096];
    snprintf(path, sizeof path, "%s/tiktoken.model", b->model);
    return stat(path, &st) ? 0 : tok_open(&b->tok, b->model, &b->why);
}

static void name_model(struct batch_cmd *b)
{
    size_t end = strlen(b->model), begin;
    while (end > 1 && b->model[end - 1] == '/')
        end--;
    begin = end;
    while (begin && b->model[begin - 1] != '/')
        begin--;
    snprintf(b->name, sizeof b->name, "%.*s", (int)(end - begin),
             b->model + begin);
}

/* The lines, and the first of them that is to be answered: without one, the
 * weights need not be opened. */
static int open_feed(struct batch_cmd *b)
{
    const struct batch_args *a = &b->a;
    int err = config_load(&b->c, b->model, &b->why);
    name_model(b);
    if (!err)
        err = open_tokenizer(b);
    if (!err)
        err = batch_feed_open(&b->feed, a->in, a->out, a->in_order, &b->why);
    if (err)
        return err;
    batch_partial_open(&b->partial, a->out);
    b->feed.rules = (struct batch_rules){
        .model = b->model, .name = b->name, .tok = b->tok, .vocab = b->c.vocab,
        .context = (uint32_t)a->s.context, .most = (uint32_t)a->most,
        .sample = { a->s.temperature, a->s.top_p, a->s.seed },
        .ignore_end = a->s.ignore_eos };
    while (!err && !b->first && !b->over) {
        int got = batch_feed_next(&b->feed, true, &b->first, &b->why);
        b->over = got == -ENODATA;
        err = got < 0 && !b->over ? got : 0;
        if (session_signal())
            err = -ECANCELED;
    }
    int flushed = batch_feed_flush(&b->feed, &b->why);
    return err ? err : flushed;
}

static int measure(struct batch_cmd *b, struct forecast_options *f)
{
    struct forecast_machine *m = &f->machine;
    kern_init(ISA_COUNT - 1);
    int err = machine_kernels(m, f->o.threads,
                              f->o.memory_bytes / KERNELS_SHARE, &b->why);
    for (uint32_t d = 0; d < b->a.s.drives; d++)
        m->drive_bytes += (double)b->a.s.drive[d].bytes_per_s;
    if (!err && !b->a.s.drives)
        err = machine_drives(m, b->model, b->a.s.io, &b->why);
    if (m->drive_bytes <= 0)
        m->drive_bytes = rate_unknown;
    return err;
}

/* The best number of sequences for this budget, machine and number of lines; 0
 * after an error. */
static uint32_t choose(struct batch_cmd *b, const struct forecast_options *f,
                       struct k3_options *one)
{
    struct k3_shape shape;
    uint64_t lines = b->feed.in.lines;
    uint32_t most = SEQUENCES_MAX, best;
    if (b->a.sequences)
        most = (uint32_t)b->a.sequences;
    else if (lines && lines < most)
        most = (uint32_t)lines;
    struct forecast *curve = calloc(most, sizeof *curve);
    k3_option_defaults(one);
    int err = curve ? k3_shape_of(&shape, NULL, &b->c, one,
                                  f->machine.threads, &b->why)
                    : why_set(&b->why, -ENOMEM, "no memory for a forecast");
    if (err) {
        free(curve);
        return 0;
    }
    if (forecast_curve(curve, most, &shape, &b->c, f))
        why_set(&b->why, -ENOMEM, "no memory for a forecast");
    best = b->a.sequences ? most - 1 : forecast_best(curve, most);
    if (!b->why.error && (best == most || !curve[best].fits))
        why_set(&b->why, -ENOBUFS, "a memory budget of %" PRIu64 " bytes has "
                "no room for %" PRIu32 " sequences of %" PRIu32 " positions: "
                "the floor is %" PRIu64 " bytes", f->o.memory_bytes,
                best == most ? 1 : best + 1, f->o.context,
                curve[best == most ? 0 : best].plan.floor_bytes);
    else if (!b->why.error)
        b->forecast = curve[best];
    k3_shape_free(&shape);
    free(curve);
    return b->why.error ? 0 : best + 1;
}

static int open_model(struct batch_cmd *b)
{
    const struct session_args *a = &b->a.s;
    struct forecast_options f = {
        .prompt_rows = FORECAST_PROMPT_ROWS, .drafts = session_draft(a).most,
        .sequence_heap = FORECAST_POSITION_HEAP * a->context, .hits = true };
    session_options(a, &f.o);
    f.o.progress = batch_show_layer;
    f.o.progress_arg = &b->show;
    f.o.heap_bytes = batch_feed_bytes(&b->feed);
    int err = outputs_writable(a->report, "the report", &b->why);
    if (!err)
        err = watch_open(&b->watch, a->timeline, a->trace, b->model, &f.o,
                         &b->why);
    if (!err)
        err = measure(b, &f);
    if (err)
        return err;
    struct k3_options o = forecast_session(&f, 1);
    for (uint32_t n = choose(b, &f, &o); n; n--) {
        o = forecast_session(&f, n);
        if (a->logits)
            o.logits = 0;
        err = k3_open(&b->k, b->model, &o, &b->why);
        /* The shards may lie less well than the published ones. */
        if (err != -ENOBUFS || n == 1 || b->a.sequences)
            return err;
        b->why = (struct why){ 0 };
    }
    return b->why.error;
}

static int finish(struct batch_cmd *b, double wall)
{
    struct report_input in = { .k = b->k, .wall_seconds = wall,
                               .decode_tokens = b->counts.decode_ids };
    json_t *report = report_make(&in);
    report_drafts(report, b->counts.drafted, b->counts.accepted);
    json_object_set_new(report, "batch",
                        batch_show_report(&b->feed, b->given, &b->counts,
                                          &b->forecast, b->k, wall));
    report_say(report);
    int err = report_write(b->a.s.report, report, &b->why);
    json_decref(report);
    return err;
}

static int run(struct batch_cmd *b)
{
    struct batch_options o = {
        .sequences = k3_plan_of(b->k)->sequences,
        .draft = session_draft(&b->a.s), .next = next, .is_end = is_end,
        .token = token, .finished = finished, .pass = pass,
        .logits = b->a.s.logits ? logits : NULL, .arg = b };
    int64_t begin = stream_clock_ns();
    session_notes(b->k);
    batch_show_begin(&b->show, b->k);
    int err = batch_run(b->k, &o, &b->counts, &b->why);
    batch_show_end(&b->show);
    int other = batch_feed_flush(&b->feed, &b->why);
    err = err ? err : other;
    if (!err || err == -ECANCELED)
        other = finish(b, (double)(stream_clock_ns() - begin) / 1e9);
    return err ? err : other;
}

static int batch(struct batch_cmd *b, int argc, char **argv)
{
    session_catch(NULL); /* passes are finished, not cancelled */
    b->logits.prefix = b->a.s.logits;
    const struct output_file two[2] = { { "--input", b->a.in, true },
                                        { "--output", b->a.out, false } };
    int err = session_files(&b->a.s, b->model, two, &b->why);
    if (!err)
        err = open_feed(b);
    if (!err && b->first)
        err = open_model(b);
    if (!err && b->first)
        err = run(b);
    k3_close(b->k);
    struct why files = { 0 };
    int lost = watch_close(&b->watch, &files);
    if (lost && !err) {
        b->why = files;
        err = lost;
    }
    int signal = err == -ECANCELED ? session_signal() : 0;
    int status = signal ? 128 + signal
                 : err  ? session_failed(b->model, &b->why)
                        : 0;
    if (b->feed.out)
        batch_show_summary(&b->feed, err);
    if (signal)
        batch_show_again(argc, argv);
    batch_logits_close(&b->logits);
    while (b->asked) /* of a job that did not come to its end */
        drop(b, b->asked);
    if (b->first)
        drop(b, b->first);
    batch_partial_close(&b->partial, !err && b->over);
    batch_feed_close(&b->feed, !err && b->over);
    tok_close(b->tok);
    config_free(&b->c);
    session_release();
    return status;
}

int cmd_batch(int argc, char **argv)
{
    struct batch_cmd b = { .a.most = DEFAULT_NEW, .feed.in.fd = -1 };
    struct batch_args *a = &b.a;
    session_defaults(&a->s);
    const struct opt table[] = {
        { "input", 'i', OPT_TEXT, &a->in, "IN.jsonl",
          "one request a line; - is stdin", NULL },
        { "output", 'o', OPT_TEXT, &a->out, "OUT.jsonl",
          "one answer a line; a file that exists is continued; - is stdout",
          NULL },
        { "new", 'n', OPT_UINT, &a->most, "N",
          "most new tokens of a request without max_tokens; default 64",
          NULL },
        { "keep-order", 0, OPT_FLAG, &a->in_order, NULL,
          "answers in the order of the requests", NULL },
        { "sequences", 0, OPT_UINT, &a->sequences, "N",
          "requests at one time; default: as many as are fastest", NULL },
        SESSION_OPTIONS(&a->s),
    };
    const struct opt_command cmd = {
        "sluice batch MODEL -i IN.jsonl -o OUT.jsonl [options]",
        "Generate for many requests, all of them in each pass over the "
        "weights. A request is a line of JSON, like one of these or as the "
        "lines of OpenAI's batch files:\n\n"
        "{\"custom_id\": \"1\", \"prompt\": \"Hello\", \"max_tokens\": 8}\n"
        "{\"custom_id\": \"2\", \"messages\": [{\"role\": \"user\", "
        "\"content\": \"Hello\"}]}", table, sizeof table / sizeof *table };
    struct k3_options o;
    int words = opt_parse(&cmd, argc, argv, &b.model, 1);
    if (words < 0)
        return opt_status(words);
    if (words != 1)
        return opt_usage_error(&cmd, "batch needs the folder of a model");
    if (!a->in || !a->out)
        return opt_usage_error(&cmd, "batch needs -i and -o");
    if (!a->most || a->most > 1u << 24)
        return opt_usage_error(&cmd, "-n is from 1 to 16777216");
    const char *wrong = session_options(&a->s, &o);
    if (wrong)
        return opt_usage_error(&cmd, "%s", wrong);
    uint64_t rows = a->s.rows ? a->s.rows : K3_ROWS_MAX;
    if (a->sequences > rows) /* each of them has a row in a pass */
        return opt_usage_error(&cmd, "--sequences is at most %" PRIu64 "%s",
                               rows, a->s.rows ? ", the --rows" : "");
    return batch(&b, argc, argv);
}

/* batch_open.c - sluice batch: its files, its plan, its session. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bin/batch/alike.h"
#include "bin/batch/check.h"
#include "bin/batch/choose.h"
#include "bin/batch/context.h"
#include "bin/batch/hash.h"
#include "bin/cli/json.h"
#include "bin/batch/look.h"
#include "bin/batch_internal.h"
#include "bin/cli/drafter.h"
#include "bin/cli/packed.h"
#include "io/clock.h"
#include "model/ckpt/figure.h"
#include "model/constraint.h"
#include "model/k3/coded.h"

enum {
    FORMS_SHARE = 128,   /* of the memory: what forms may take of it when nobody
                          * knows whether a pipe will bring any */
};

static int open_tokenizer(struct batch_cmd *b)
{
    struct stat st;
    char path[4096];
    snprintf(path, sizeof path, "%s/tiktoken.model", b->model);
    struct sluice_error e = { 0 };
    return stat(path, &st) || !sluice_text_open(&b->text, b->model, &e)
               ? 0
               : knobs_error_back(&b->error, &e);
}

static void name_model(struct batch_cmd *b)
{
    size_t end = strlen(b->model), begin;
    while (end > 1 && b->model[end - 1] == '/')
        end--;
    begin = end;
    while (begin && b->model[begin - 1] != '/')
        begin--;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), b->model + begin);
    json_plain(b->name, sizeof b->name, name);
}

int batch_look_ahead(struct batch_cmd *b)
{
    struct batch_job **last = &b->first;
    uint32_t there = alike_count(b->first);
    while (*last)
        last = &(*last)->after;
    for (; b->share && b->feed.in.lines && !b->over && there < ALIKE_AHEAD;
         there = alike_count(b->first)) {
        int got = batch_feed_next(&b->feed, false, last, &b->error);
        b->over = got == -ENODATA;
        if (got != 1)
            return b->over ? 0 : got;
        (*last)->after = NULL;
        last = &(*last)->after;
    }
    return 0;
}

/* Do prompts begin alike? The next few requests of a file are looked at; of a
 * pipe nobody knows. A trace and logits have a row of every position. */
static int look_alike(struct batch_cmd *b)
{
    b->share = !b->a.s.logits && !b->a.s.trace;
    if (!b->share || !b->first)
        return 0;
    int err = batch_look_ahead(b);
    b->held = b->feed.in.lines ? alike_held(b->first) : 1;
    return err;
}

/* Answers that are there, before the first pass. */
static int check_answers(struct batch_cmd *b)
{
    struct batch_feed *f = &b->feed;
    int err = 0;
    f->strict = !strcmp(b->a.resume, "strict");
    if (f->strict || b->a.retry)
        err = batch_feed_retry(f, b->a.out, b->a.in_order, b->a.retry,
                               &b->error);
    if (err)
        return err;
    if (f->retried)
        fprintf(stderr, "sluice: %" PRIu64 " error%s of before %s asked "
                "again\n", f->retried, f->retried == 1 ? "" : "s",
                f->retried == 1 ? "is" : "are");
    if (f->strict && f->hashed)
        err = batch_hash_model(b->identity, b->model, &b->a.s.parts, &b->c,
                               &b->error);
    if (f->strict && f->hashed && !err)
        f->rules.identity = b->identity;
    return err ? err : batch_feed_check(f, &b->error);
}

/* What the engine is asked for, the number of sequences left out. */
static struct forecast_options forecast_asked(const struct batch_cmd *b)
{
    const struct session_args *a = &b->a.s;
    struct forecast_options f = { .prompt_rows = FORECAST_PROMPT_ROWS,
                                  .drafts = session_draft(a).max,
                                  .sequence_heap =
                                      FORECAST_POSITION_HEAP * a->context,
                                  .hits = true };
    session_options(a, &f.o);
    f.sequence_heap += batch_feed_job_bytes(&b->feed);
    f.o.heap_bytes = batch_feed_bytes(&b->feed);
    return f;
}

/* What the lines need, as far as the command does not say: room, and forms. */
static int look(struct batch_cmd *b)
{
    struct session_args *a = &b->a.s;
    struct batch_rules *rules = &b->feed.rules;
    struct batch_need need;
    uint32_t context;
    int err = batch_look(&need, b->a.in, rules, &b->error);
    bool pipe = !b->feed.in.lines && b->text;
    b->forms = need.forms || a->samplers.form != SLUICE_FREE ||
               (pipe && b->memory >= (uint64_t)FORMS_BYTES * FORMS_SHARE);
    if (err || a->context_said)
        return err;
    struct forecast_options f = forecast_asked(b);
    err = batch_context(&context, need.positions, SESSION_CONTEXT, &b->c, &f,
                        &b->error);
    rules->context = context;
    a->context = context;
    return err;
}

/* What is needed to read a line. */
static int open_rules(struct batch_cmd *b)
{
    int err = config_load(&b->c, b->model, &b->error);
    name_model(b);
    if (!err)
        err = samplers_load(&b->a.s.samplers, b->model, &b->error);
    return err ? err : open_tokenizer(b);
}

static void set_rules(struct batch_cmd *b)
{
    const struct batch_args *a = &b->a;
    b->feed.rules = (struct batch_rules){ .model = b->model,
                                          .name = b->name,
                                          .tok = knobs_tok(b->text),
                                          .vocab = b->c.vocab,
                                          .context = (uint32_t)a->s.context,
                                          .max = (uint32_t)a->max,
                                          .samplers = &a->s.samplers,
                                          .latent_eps = a->s.mla_latent_eps,
                                          .lenient = a->lenient,
                                          .one_prompt = a->s.logits };
    batch_feed_limit(&b->feed, b->memory);
}

int batch_open_feed(struct batch_cmd *b)
{
    const struct batch_args *a = &b->a;
    int err = open_rules(b);
    if (!err)
        err = batch_feed_open(&b->feed, a->in, a->out, a->in_order, &b->error);
    if (err)
        return err;
    batch_partial_open(&b->partial, a->out);
    set_rules(b);
    err = look(b);
    if (!err)
        err = check_answers(b);
    while (!err && !b->first && !b->over) {
        int got = batch_feed_next(&b->feed, true, &b->first, &b->error);
        b->over = got == -ENODATA;
        err = got < 0 && !b->over ? got : 0;
        if (session_signal())
            err = -ECANCELED;
    }
    if (!err)
        err = look_alike(b);
    if (b->first && (b->first->r.form != SLUICE_FREE || b->first->r.tools))
        b->forms = true;
    b->feed.rules.no_forms = !b->forms;
    int flushed = batch_feed_flush(&b->feed, &b->error);
    return err ? err : flushed;
}

static int open_session(struct batch_cmd *b, const struct k3_options *engine)
{
    struct sluice_error e = { 0 };
    struct sluice_info info;
    struct sluice_options o = session_sluice(&b->a.s);
    o.text = b->text;
    o.share = b->share;
    o.held = b->held;
    o.forms = b->forms;
    o.progress = batch_show_layer;
    o.progress_arg = &b->show;
    int64_t begin = clock_ns();
    if (knobs_open(&b->s, b->model, &o, engine, &e))
        return knobs_error_back(&b->error, &e);
    b->open_s = (double)(clock_ns() - begin) / 1e9;
    sluice_info(b->s, &info, sizeof info);
    b->sequences = info.sequences;
    return 0;
}

/* How many sequences, and their forecast. 0: b->error. */
static uint32_t choose(struct batch_cmd *b, const struct forecast_options *f,
                       uint64_t requests, struct k3_options *o)
{
    /* open counts forms and a drafter by itself */
    struct forecast_options planned = *f;
    const struct session_args *a = &b->a.s;
    uint64_t one = 0, more = 0;
    if (a->drafter &&
        drafter_memory(&one, &more, a->drafter, &b->c, (uint32_t)a->context,
                       (uint32_t)a->threads, &b->error))
        return 0;
    planned.o.heap_bytes += (b->forms ? FORMS_BYTES : 0) + one - more;
    planned.sequence_heap += (b->forms ? FORM_BYTES : 0) + more;
    *o = forecast_session(f, 1);
    return choose_sequences(&b->forecast, &planned, &b->c, o, requests,
                            b->a.sequences, &b->error);
}

/* Parts, or coded weights, as the session will find them too. */
static int find_coded(struct batch_cmd *b, struct k3_options *o)
{
    int err = parts_find(&b->parts, &b->a.s.parts, &b->c, &b->error);
    if (!err && !b->parts)
        err = packed_find(&b->sidecars, b->a.s.packed, b->model, &b->c,
                          &b->error);
    o->sidecars = &b->sidecars;
    o->parts = b->parts;
    return err;
}


int batch_open_model(struct batch_cmd *b)
{
    const struct session_args *a = &b->a.s;
    struct forecast_options f = forecast_asked(b);
    int err = outputs_writable(a->report, "the report", &b->error);
    if (!err)
        err = watch_open(&b->watch, a->timeline, a->trace, b->model, &f.o,
                         &b->error);
    if (!err)
        err = find_coded(b, &f.o);
    if (!err)
        err = choose_measure(&f, &b->a.s, b->model, &b->c, &b->error);
    if (err)
        return err;
    struct k3_options o;
    uint32_t most = choose(b, &f, batch_feed_requests(&b->feed), &o);
    for (uint32_t n = most; n; n--) {
        o = forecast_session(&f, n);
        if (a->logits)
            o.logits = 0;
        uint64_t all = batch_feed_requests(&b->feed);
        if (all && all <= n) /* none comes later */
            b->held = 0;
        err = open_session(b, &o);
        if (err == -ENOBUFS && b->held) {
            b->error = (struct error){ 0 };
            b->held = 0;
            err = open_session(b, &o);
        }
        if (!err)
            err = batch_hash_model(b->identity, b->model, &b->a.s.parts, &b->c,
                               &b->error);
        b->feed.rules.identity = b->identity;
        if (!err)
            return watch_begun(&b->watch, knobs_engine(b->s), &b->error);
        /* The shards may lie less well than the published ones. */
        if (err != -ENOBUFS || n == 1 || b->a.sequences)
            return err;
        b->error = (struct error){ 0 };
    }
    return b->error.code;
}

/* ---- batch --check ---- */

struct pass_cost {
    const struct batch_cmd *b;
    double expert_share; /* of the bytes of a pass of the forecast */
};

/* In passes of the forecast: more rows choose more experts. */
static double cost_of(void *arg, uint32_t rows)
{
    const struct pass_cost *p = arg;
    const struct config *c = &p->b->c;
    uint32_t each = p->b->forecast.sequences;
    if (rows <= each || !c->experts)
        return 1;
    double more = forecast_distinct(c->experts, c->top_k, rows, 0) /
                  forecast_distinct(c->experts, c->top_k, each, 0);
    return 1 + p->expert_share * (more - 1);
}

static void say_check(const struct batch_cmd *b, const struct batch_check *c,
                      uint64_t passes, double weight)
{
    double pass = b->forecast.pass.seconds;
    printf("%s: %" PRIu64 " refused", figure_count(c->lines, "line").text,
           c->refused);
    if (c->answered)
        printf(", %" PRIu64 " answered before", c->answered);
    printf("; %s, %s, at most %" PRIu64 " new ones; context %" PRIu32 "\n",
           figure_count(c->requests, "request").text,
           figure_count(c->prompt_ids, "prompt id").text, c->max_ids,
           b->feed.rules.context);
    if (!c->requests)
        return;
    printf("%" PRIu32 " at one time: at most %s of about %s s: %s",
           b->forecast.sequences, figure_count(passes, "pass").text,
           figure(pass * weight / (double)passes).text,
           figure_span(pass * weight).text);
    puts(", less where texts end early or prompts begin alike");
}

/* No weights are opened, but drives and kernels are measured. */
static int forecast_check(struct batch_cmd *b, const struct batch_check *c)
{
    struct forecast_options f = forecast_asked(b);
    struct k3_options o;
    double weight = 0;
    uint64_t passes = 0;
    int err = find_coded(b, &f.o);
    if (!err)
        err = choose_measure(&f, &b->a.s, b->model, &b->c, &b->error);
    if (err || !choose(b, &f, c->requests, &o))
        return b->error.code;
    const struct pass_times *t = &b->forecast.pass;
    double bytes = t->trunk_bytes + t->expert_bytes;
    struct pass_cost cost = { b, bytes > 0 ? t->expert_bytes / bytes : 0 };
    passes = batch_check_passes(c, b->forecast.sequences,
                                b->forecast.plan.rows, cost_of, &cost, &weight,
                                &b->error);
    if (!b->error.code)
        say_check(b, c, passes, weight);
    return b->error.code;
}

int batch_check_job(struct batch_cmd *b)
{
    struct batch_check c = { 0 };
    b->a.in = b->a.check;
    int err = open_rules(b);
    if (!err)
        err = batch_in_open(&b->feed.in, b->a.in, &b->error);
    if (!err && !b->feed.in.lines)
        err = error_set(&b->error, -EINVAL, "%s: --check needs a file that has "
                        "lines", b->a.in);
    if (err)
        return err;
    set_rules(b);
    err = look(b);
    if (!err)
        err = batch_check_lines(&c, b->a.in, b->a.out, &b->feed.rules,
                                &b->error);
    if (!err && c.requests)
        err = forecast_check(b, &c);
    else if (!err)
        say_check(b, &c, 0, 0);
    b->feed.refused = c.refused;
    batch_check_free(&c);
    return err;
}

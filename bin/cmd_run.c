/* cmd_run.c - sluice run: one prompt, new tokens to stdout. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cmd.h"
#include "bin/prompt.h"
#include "bin/report.h"
#include "bin/session.h"
#include "bin/watch.h"
#include "model/tok.h"
#include "model/tok_stream.h"
#include "sched/stream.h"

enum {
    DEFAULT_ROWS = 256,
    DEFAULT_NEW = 64,
    PIECE_BYTES = 4096, /* the longest that an id could be */
    ID_HEAP = 96,      /* an id in lists and in the report */
    IDS_FREE = 16384,  /* so many are in the program's share */
};

struct run_args {
    struct session_args s;
    const char *text, *file, *ids;
    uint64_t    most;
};

struct run {
    struct run_args a;
    struct k3 *k;
    struct tok *tok;         /* NULL: the model has no tokenizer */
    struct id_list prompt;
    struct tok_stream stream;
    struct progress progress;
    struct watch_files watch;
    FILE *logits;
    uint64_t said;
    int mute; /* the errno for which stdout takes no more */
    struct why *why;
};

static int write_logits(void *arg, const float *row)
{
    struct run *r = arg;
    size_t n = k3_config(r->k)->vocab;
    if (fwrite(row, sizeof *row, n, r->logits) == n)
        return 0;
    return why_set(r->why, -errno, "%s: %s", r->a.s.logits, strerror(errno));
}

/* Tokens that nobody can read need not be made. */
static void flush_text(struct run *r)
{
    if (!fflush(stdout) || r->mute)
        return;
    r->mute = errno;
    k3_cancel(r->k);
}

static void say_text(struct run *r, uint32_t id)
{
    const char *bytes;
    char out[64];
    size_t n = tok_piece(r->tok, id, &bytes);
    while (n) { /* a token may be longer than the buffer */
        size_t part = n < 32 ? n : 32;
        size_t ready = tok_stream_push(&r->stream, bytes, part, out,
                                       sizeof out);
        fwrite(out, 1, ready, stdout);
        bytes += part;
        n -= part;
    }
}

static void on_token(void *arg, uint32_t id)
{
    struct run *r = arg;
    progress_clear(&r->progress);
    if (!r->said) {
        progress_begin(&r->progress, "decode", r->a.most);
        if (isatty(STDOUT_FILENO)) /* the line would wipe out the text */
            r->progress.on = false;
    }
    if (r->a.ids)
        printf(r->said ? ",%" PRIu32 : "%" PRIu32, id);
    else
        say_text(r, id);
    flush_text(r);
    r->said++;
    progress_step(&r->progress, r->said);
}

static void finish_text(struct run *r)
{
    char out[8];
    progress_clear(&r->progress);
    if (!r->a.ids)
        fwrite(out, 1, tok_stream_flush(&r->stream, out, sizeof out), stdout);
    if (r->said)
        putchar('\n');
    flush_text(r);
}

static bool is_end(void *arg, uint32_t id)
{
    struct run *r = arg;
    return id == k3_config(r->k)->eos_id ||
           (r->tok && tok_is_stop(r->tok, id));
}

static int read_prompt(struct run *r, const char *model, struct why *why)
{
    struct stat st;
    char path[4096];
    snprintf(path, sizeof path, "%s/tiktoken.model", model);
    if (!r->a.ids || !stat(path, &st)) {
        int err = tok_open(&r->tok, model, why);
        if (err)
            return err;
    }
    if (r->a.ids)
        return 0; /* they are there */
    if (r->a.file)
        return prompt_file(&r->prompt, r->tok, r->a.file,
                           r->a.s.context * PIECE_BYTES, why);
    int err = tok_encode(r->tok, r->a.text, strlen(r->a.text), false,
                         &r->prompt);
    return err ? why_set(why, err, "the prompt could not be encoded") : 0;
}

static uint64_t ids_heap(uint64_t ids)
{
    return ids > IDS_FREE ? (ids - IDS_FREE) * ID_HEAP : 0;
}

static int open_session(struct run *r, const char *model, struct why *why)
{
    struct k3_options o;
    const struct session_args *a = &r->a.s;
    const struct output_file file[2] = { { "--file", r->a.file, true } };
    session_options(a, &o);
    int err = session_files(a, model, file, why);
    if (!err)
        err = read_prompt(r, model, why);
    if (err)
        return err;
    if (!r->prompt.count)
        return why_set(why, -EINVAL, "the prompt is empty");
    if (r->prompt.count > a->context)
        return why_set(why, -EINVAL, "the prompt has %zu ids, the context "
                       "%" PRIu64 " positions (see --context)",
                       r->prompt.count, a->context);
    if (r->prompt.count + r->a.most - (r->a.most > 0) > a->context)
        return why_set(why, -EINVAL, "a prompt of %zu ids and %" PRIu64
                       " new ones do not fit the context of %" PRIu64
                       " positions (see --context)", r->prompt.count,
                       r->a.most, a->context);
    if (!o.rows)
        o.rows = DEFAULT_ROWS;
    o.drafts = session_draft(a).most;
    if (o.rows > r->prompt.count)
        o.rows = (uint32_t)r->prompt.count;
    o.logits = a->logits ? 0 : 1;
    o.heap_bytes = ids_heap(r->prompt.count + r->a.most);
    o.progress = progress_layer;
    o.progress_arg = &r->progress;
    r->progress.k = NULL;
    err = outputs_writable(a->report, "the report", why);
    if (!err && a->logits && !(r->logits = fopen(a->logits, "we")))
        err = why_set(why, -errno, "%s: %s", a->logits, strerror(errno));
    if (!err)
        err = watch_open(&r->watch, a->timeline, a->trace, model, &o, why);
    return err ? err : k3_open(&r->k, model, &o, why);
}

static int finish(struct run *r, const struct generate_result *result,
                  double wall, struct why *why)
{
    struct report_input in = {
        .k = r->k, .prompt = r->prompt.ids, .prompt_count = r->prompt.count,
        .generated = result->ids, .generated_count = result->count,
        .wall_seconds = wall,
    };
    /* The first id comes from prefill; an end id is sampled all the same. */
    uint64_t sampled = result->count + result->ended;
    in.decode_tokens = sampled ? sampled - 1 : 0;
    json_t *report = report_make(&in);
    report_drafts(report, result->drafted, result->accepted);
    report_say(report);
    int err = report_write(r->a.s.report, report, why);
    json_decref(report);
    return err;
}

static int generate_all(struct run *r, struct why *why)
{
    struct generate_result result = { 0 };
    struct generate_options g = {
        .prompt = r->prompt.ids, .prompt_count = (uint32_t)r->prompt.count,
        .most = (uint32_t)r->a.most,
        .sample = { r->a.s.temperature, r->a.s.top_p, r->a.s.seed },
        .ignore_end = r->a.s.ignore_eos, .is_end = is_end, .is_end_arg = r,
        .all_logits = r->logits != NULL, .logits = write_logits,
        .token = on_token, .arg = r, .draft = session_draft(&r->a.s),
    };
    result.ids = calloc(r->a.most + 1, sizeof *result.ids);
    if (!result.ids)
        return why_set(why, -ENOMEM, "no memory for %" PRIu64 " ids",
                       r->a.most);
    int64_t begin = stream_clock_ns();
    r->progress.k = r->k;
    progress_begin(&r->progress, "prefill", r->prompt.count);
    int err = generate(r->k, &g, &result, why);
    finish_text(r);
    if (!err && r->logits && fflush(r->logits))
        err = why_set(why, -errno, "%s: %s", r->a.s.logits, strerror(errno));
    if (r->mute && (!err || err == -ECANCELED)) {
        *why = (struct why){ 0 }; /* it says that the pass was stopped */
        err = why_set(why, -r->mute, "stdout could not be written: %s",
                      strerror(r->mute));
    }
    if (!err)
        err = finish(r, &result, (double)(stream_clock_ns() - begin) / 1e9,
                     why);
    free(result.ids);
    return err;
}

static int run_model(struct run *r, const char *model)
{
    struct why why = { 0 }, files = { 0 };
    r->why = &why;
    int err = open_session(r, model, &why);
    if (!err) {
        session_notes(r->k);
        session_catch(r->k);
        err = generate_all(r, &why);
        session_release();
    }
    if (r->logits && fclose(r->logits) && !err)
        err = why_set(&why, -errno, "%s: %s", r->a.s.logits, strerror(errno));
    k3_close(r->k);
    int lost = watch_close(&r->watch, err ? &files : &why);
    err = err ? err : lost;
    tok_close(r->tok);
    id_list_free(&r->prompt);
    if (err == -ECANCELED && session_signal()) {
        fputs("sluice: interrupted\n", stderr);
        return 128 + session_signal();
    }
    return err ? session_failed(model, &why) : 0;
}

int cmd_run(int argc, char **argv)
{
    struct run r = { .a.most = DEFAULT_NEW };
    session_defaults(&r.a.s);
    const struct opt table[] = {
        { "prompt", 'p', OPT_TEXT, &r.a.text, "TEXT", "the prompt", NULL },
        { "file", 'f', OPT_TEXT, &r.a.file, "FILE",
          "a file that holds the prompt; - is stdin", NULL },
        { "ids", 0, OPT_TEXT, &r.a.ids, "1,2,3",
          "the prompt as token ids; ids come out, too", NULL },
        { "new", 'n', OPT_UINT, &r.a.most, "N",
          "most new tokens; default 64. 0 reads the prompt and stops, for "
          "--logits, --trace and --report", NULL },
        SESSION_OPTIONS(&r.a.s),
    };
    const struct opt_command cmd = {
        "sluice run MODEL (-p TEXT | -f FILE | --ids 1,2,3) [-n N] [options]",
        "Generate from one prompt.", table, sizeof table / sizeof *table };
    const char *model = NULL;
    struct k3_options o;
    int words = opt_parse(&cmd, argc, argv, &model, 1);
    if (words < 0)
        return opt_status(words);
    if (words != 1)
        return opt_usage_error(&cmd, "run needs the folder of a model");
    if (!!r.a.text + !!r.a.file + !!r.a.ids != 1)
        return opt_usage_error(&cmd, "run needs one of -p, -f and --ids");
    if (r.a.most > 1u << 24)
        return opt_usage_error(&cmd, "-n is at most 16777216");
    const char *wrong = session_options(&r.a.s, &o);
    if (wrong)
        return opt_usage_error(&cmd, "%s", wrong);
    struct why why = { 0 };
    int err = r.a.ids ? prompt_ids(&r.prompt, r.a.ids, &why) : 0;
    if (err) {
        id_list_free(&r.prompt);
        return err == -EINVAL ? opt_usage_error(&cmd, "%s", why.text)
                              : session_failed(NULL, &why);
    }
    tok_stream_init(&r.stream);
    return run_model(&r, model);
}

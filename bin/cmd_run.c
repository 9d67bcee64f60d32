/* cmd_run.c - sluice run: one prompt, new tokens to stdout. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/cli/conversation.h"
#include "bin/cli/json.h"
#include "bin/cli/machines.h"
#include "bin/cli/prompt.h"
#include "bin/cli/session.h"
#include "bin/cli/speak.h"
#include "bin/cmd.h"
#include "bin/report/report.h"
#include "bin/report/report_drafts.h"
#include "bin/report/setup.h"
#include "bin/report/watch.h"
#include "io/clock.h"
#include "model/chat/reply.h"
#include "model/state/state_file.h"

enum {
    DEFAULT_MAX = 64,
    MAX_TOKENS = 1 << 24,
    PIECE_BYTES = 4096, /* the longest text that an id could have */
    ID_HEAP = 96,      /* bytes of an id in lists and in the report */
    IDS_FREE = 16384,  /* ids that the program's share of memory has room for */
};

struct run_args {
    struct session_args s;
    const char *text, *file, *ids, *state;
    uint64_t max;
    struct state_pace pace;
    bool     goes_on; /* the prompt is the next message */
    bool     chat, no_think;
    const char *system, *effort, *tools; /* of a chat */
};

struct run {
    struct run_args a;
    struct sluice *s;
    struct sluice_text *text; /* NULL: the model has no tokenizer */
    struct sluice_ids prompt, generated;
    struct reply reply;
    bool reads; /* the text is read as `reply`: a chat, or stop strings */
    struct conversation talk;
    struct sluice_reply how; /* of a chat */
    struct speak speak;
    struct progress progress;
    struct watch_files watch;
    struct output logits;
    bool unsaved;  /* a state could not be saved */
    uint32_t vocab;
    int argc;       /* of the command line, for the report */
    char **argv;
    double open_s;
    uint64_t said;  /* ids */
    int mute;       /* the errno for which stdout takes no more */
    struct error callback; /* the first error of a callback */
    struct error *error;
};

static bool write_logits(void *arg, uint64_t request, const float *row)
{
    struct run *r = arg;
    (void)request;
    if (fwrite(row, sizeof *row, r->vocab, r->logits.f) == r->vocab)
        return false;
    output_failed(&r->logits, errno ? errno : EIO, &r->callback);
    return true;
}

/* False: stdout takes no more, so no more tokens are needed. */
static bool flush_text(struct run *r)
{
    if (fflush(stdout) && !r->mute)
        r->mute = errno;
    return !r->mute;
}

/* Text up to a stop string. True: it came. */
static bool say_read(struct run *r, uint32_t id)
{
    int done = reply_push(&r->reply, id);
    if (r->a.chat)
        speak_reply(&r->speak, &r->reply);
    else
        fwrite(r->reply.event_text.bytes, 1, r->reply.event_text.count,
               stdout);
    if (done < 0)
        error_set(&r->callback, done, "no memory for the text");
    return done;
}

static void say_end(struct run *r, bool cut)
{
    if (reply_end(&r->reply, cut) < 0)
        return;
    if (r->a.chat) {
        speak_reply(&r->speak, &r->reply);
        speak_end(&r->speak, &r->reply);
        if (cut && !r->reply.content.count)
            fputs("sluice: the limit came before the answer: more with -n, or "
                  "--no-think\n", stderr);
    } else {
        fwrite(r->reply.event_text.bytes, 1, r->reply.event_text.count,
               stdout);
    }
}

static bool on_token(void *arg, const struct sluice_token *t)
{
    struct run *r = arg;
    bool last = false;
    if (t->id == SLUICE_NO_ID && r->reads)
        return false;
    progress_clear(&r->progress);
    if (!r->said) {
        progress_begin(&r->progress, "decode", r->a.max);
        if (isatty(STDOUT_FILENO)) /* the line would wipe out the text */
            r->progress.on = false;
    }
    if (r->reads)
        last = say_read(r, t->id);
    else if (!r->a.ids)
        fwrite(t->text, 1, t->bytes, stdout);
    else if (t->id != SLUICE_NO_ID)
        printf(r->said ? ",%" PRIu32 : "%" PRIu32, t->id);
    bool heard = flush_text(r);
    r->said += t->id != SLUICE_NO_ID;
    progress_step(&r->progress, r->said);
    return !heard || last;
}

static void on_finished(void *arg, const struct sluice_result *result)
{
    struct run *r = arg;
    size_t bytes = result->count * sizeof *result->ids;
    assert(!r->generated.ids); /* once */
    progress_clear(&r->progress);
    if (r->reads)
        say_end(r, result->finish == SLUICE_LENGTH);
    if (r->said && !r->a.chat)
        putchar('\n');
    flush_text(r);
    r->generated.ids = malloc(bytes + 1);
    if (!r->generated.ids) {
        error_set(&r->callback, -ENOMEM, "no memory for %" PRIu32 " ids",
                  result->count);
        return;
    }
    memcpy(r->generated.ids, result->ids, bytes);
    r->generated.count = result->count;
}

static void on_note(void *arg, const char *sentence, bool lost)
{
    struct run *r = arg;
    progress_clear(&r->progress);
    fprintf(stderr, "sluice: %s\n", sentence);
    r->unsaved |= lost;
}

/* One message of a user, and what stands before it. */
static int read_message(struct run *r, uint64_t max_bytes, struct error *error)
{
    const struct run_args *a = &r->a;
    char *text = NULL;
    size_t bytes = a->text ? strlen(a->text) : 0;
    int err = conversation_open(&r->talk, a->system, a->tools, error);
    if (!err && a->file)
        err = prompt_text(&text, &bytes, a->file, max_bytes, error);
    if (!err && conversation_user(&r->talk, a->file ? text : a->text, bytes))
        err = error_set(error, -ENOMEM, "no memory for the prompt");
    free(text);
    r->talk.effort = a->no_think ? "none" : a->effort;
    return err ? err
               : conversation_prompt(&r->talk, r->text, &r->prompt, &r->how,
                                     error);
}

static int read_prompt(struct run *r, const char *model, struct error *error)
{
    struct stat st;
    char path[4096];
    struct sluice_error e = { 0 };
    snprintf(path, sizeof path, "%s/tiktoken.model", model);
    if ((!r->a.ids || !stat(path, &st)) &&
        sluice_text_open(&r->text, model, &e))
        return knobs_error_back(error, &e);
    if (r->a.ids)
        return 0; /* they are there */
    uint64_t context = r->a.s.context_said ? r->a.s.context
                                           : SESSION_CONTEXT_MAX;
    if (r->a.chat)
        return read_message(r, context * PIECE_BYTES, error);
    if (r->a.file)
        return prompt_file(&r->prompt, r->text, r->a.file,
                           context * PIECE_BYTES, error);
    int err = sluice_tokenize(r->text, r->a.text, strlen(r->a.text),
                              &r->prompt);
    return err ? error_set(error, err, "the prompt could not be encoded") : 0;
}

static int check_prompt(const struct run *r, struct error *error)
{
    uint64_t count = r->prompt.count, context = r->a.s.context;
    if (!count)
        return error_set(error, -EINVAL, "the prompt is empty");
    if (count > context)
        return error_set(error, -EINVAL,
                         "the prompt has %" PRIu64 " ids, the context "
                         "%" PRIu64 " positions (see --context)",
                         count, context);
    if (count + r->a.max - (r->a.max > 0) > context)
        return error_set(error, -EINVAL,
                         "a prompt of %" PRIu64 " ids and %" PRIu64
                         " new ones do not fit the context of %" PRIu64
                         " positions (see --context)",
                         count, r->a.max, context);
    return 0;
}

/* As many positions as the prompt and its new ids need, unless the command says
 * how many. */
static void grow_context(struct run *r)
{
    uint64_t need = r->prompt.count + r->a.max;
    if (r->a.s.context_said || need <= r->a.s.context)
        return;
    r->a.s.context = need < SESSION_CONTEXT_MAX ? need : SESSION_CONTEXT_MAX;
}

static int begin_reply(struct run *r, struct error *error)
{
    const struct samplers_args *a = &r->a.s.samplers;
    const struct reply_options o = { .chat = r->a.chat,
                                     .in_answer = r->how.in_answer,
                                     .calls = r->how.calls,
                                     .one_call = r->how.one_call };
    int err = 0;
    r->reads = a->stops || r->a.chat;
    speak_open(&r->speak, false);
    if (r->reads && r->a.ids)
        return error_set(error, -EINVAL, "--stop is for text, not for --ids");
    reply_init(&r->reply, knobs_tok(r->text), &o);
    for (uint32_t i = 0; i < a->stops && !err; i++)
        err = reply_add_stop(&r->reply, a->stop[i], strlen(a->stop[i]));
    return err ? error_set(error, err, "no memory for a text") : 0;
}

static uint64_t ids_heap(uint64_t ids)
{
    return ids > IDS_FREE ? (ids - IDS_FREE) * ID_HEAP : 0;
}

static int open_session(struct run *r, const char *model, struct error *error)
{
    struct k3_options engine;
    const struct session_args *a = &r->a.s;
    bool standard = r->a.file && !strcmp(r->a.file, "-");
    const struct output_file file[3] = {
        { .option = "--file", .path = standard ? OUTPUTS_STDIN : r->a.file,
          .read = true },
        { .option = "stdout", .path = OUTPUTS_STDOUT },
        { .option = "--state", .path = r->a.state }
    };
    session_options(a, &engine);
    int err = session_files(a, model, file, 3, false, error);
    if (!err && r->a.state)
        err = state_replaces(r->a.state, error);
    if (!err)
        err = samplers_load(&r->a.s.samplers, model, error);
    if (!err)
        err = read_prompt(r, model, error);
    grow_context(r);
    if (!err)
        err = check_prompt(r, error);
    if (!err)
        err = begin_reply(r, error);
    if (err)
        return err;
    engine.context = (uint32_t)a->context;
    if (!engine.rows)
        engine.rows = SESSION_ROWS;
    if (engine.rows > r->prompt.count && !r->a.goes_on)
        engine.rows = (uint32_t)r->prompt.count;
    engine.drafts = session_draft(a).max;
    engine.logits = a->logits ? 0 : 1;
    engine.heap_bytes = ids_heap(
        r->a.goes_on ? a->context : r->prompt.count + r->a.max);
    err = outputs_writable(a->report, "the report", error);
    if (!err)
        err = output_open(&r->logits, a->logits, "the logits", error);
    if (!err)
        err = watch_open(&r->watch, a->timeline, a->trace, model, &engine,
                         error);
    if (err)
        return err;
    struct sluice_error e = { 0 };
    struct sluice_options o = session_sluice(a);
    o.text = r->text;
    o.forms = a->samplers.form != SLUICE_FREE ||
              conversation_is_strict(&r->talk);
    o.progress = progress_layer;
    o.progress_arg = &r->progress;
    int64_t begin = clock_ns();
    if (knobs_open(&r->s, model, &o, &engine, &e))
        return knobs_error_back(error, &e);
    r->open_s = (double)(clock_ns() - begin) / 1e9;
    struct sluice_info info;
    sluice_info(r->s, &info, sizeof info);
    r->vocab = info.vocab;
    return watch_begun(&r->watch, knobs_engine(r->s), error);
}

static int finish(struct run *r, const char *model, double wall,
                  struct error *error)
{
    struct sluice_counters c;
    struct setup_input setup = {
        .k = knobs_engine(r->s), .model = model, .run = r->watch.run,
        .argc = r->argc, .argv = r->argv, .args = &r->a.s,
        .max_tokens = r->a.max,
    };
    sluice_counters(r->s, &c, sizeof c);
    struct report_input in = {
        .k = knobs_engine(r->s), .prompt = r->prompt.ids,
        .prompt_count = r->prompt.count, .generated = r->generated.ids,
        .generated_count = r->generated.count, .wall_seconds = wall,
        .decode_tokens = c.decode_ids, .open_seconds = r->open_s,
    };
    int err = r->a.s.report ? setup_make(&in.setup, &setup, error) : 0;
    if (err)
        return err;
    json_t *report = report_make(&in);
    report_drafts(report, r->s);
    if (r->a.state || r->a.s.prefix_cache) {
        set_int(report, "prompt_tokens_read", c.prompt_ids);
        set_int(report, "prompt_tokens_loaded", c.loaded_ids);
    }
    report_say(report);
    report_drafts_say(r->s);
    err = report_write(r->a.s.report, report, error);
    json_decref(report);
    return err;
}

/* With --continue the prompt is what the file has, then the message. */
static int go_on(struct run *r, struct error *error)
{
    struct sluice_error e = { 0 };
    struct sluice_ids all = { 0 };
    if (!r->a.goes_on)
        return 0;
    int err = sluice_state_ids(r->s, r->a.state, &all, &e);
    if (err == -ENOENT)
        return 0; /* the conversation begins */
    if (!err)
        err = prompt_append(&all, r->prompt.ids, r->prompt.count);
    if (err) {
        sluice_ids_free(&all);
        return e.code ? knobs_error_back(error, &e)
                      : error_set(error, err, "no memory for the prompt");
    }
    sluice_ids_free(&r->prompt);
    r->prompt = all;
    return check_prompt(r, error);
}

/* Ids that this run had made when it was killed stand behind the prompt. */
static int find_given(struct run *r, struct sluice_request *q,
                      struct sluice_ids *all, struct error *error)
{
    struct sluice_error e = { 0 };
    if (!r->a.state)
        return 0;
    q->state = r->a.state;
    q->state_every = r->a.pace.ids;
    q->state_seconds = r->a.pace.seconds;
    q->say_given = true;
    if (prompt_append(all, r->prompt.ids, r->prompt.count))
        return error_set(error, -ENOMEM, "no memory for the prompt");
    if (sluice_state_given(r->s, q, all, &e))
        return knobs_error_back(error, &e);
    q->ids = all->ids;
    q->count = (uint32_t)all->count;
    q->given = q->count - (uint32_t)r->prompt.count;
    return 0;
}

static int generate(struct run *r, const char *model, struct error *error)
{
    struct sluice_ids all = { 0 };
    struct sluice_error e = { 0 };
    struct sluice_request q = {
        .size = sizeof q,
        .ids = r->prompt.ids,
        .count = (uint32_t)r->prompt.count,
        .max_ids = (uint32_t)r->a.max,
        .arg = r,
        .note = on_note,
        .token = on_token,
        .logits = r->logits.f ? write_logits : NULL,
        .finished = on_finished,
    };
    samplers_ask(&q, &r->a.s.samplers);
    if (r->a.chat && conversation_is_strict(&r->talk)) {
        q.tools = r->talk.tools.bytes;
        q.tools_bytes = r->talk.tools.count;
    }
    if (q.form != SLUICE_FREE || q.tools)
        q.reply = r->how;
    int64_t begin = clock_ns();
    r->progress.session = r->s;
    progress_begin(&r->progress, "prefill", r->prompt.count);
    int err = find_given(r, &q, &all, error);
    if (!err && sluice_generate(r->s, &q, &e))
        err = knobs_error_back(error, &e);
    sluice_ids_free(&all);
    progress_clear(&r->progress);
    if (!err && r->callback.code)
        err = error_set(error, r->callback.code, "%s", r->callback.text);
    if (!err && r->mute)
        err = error_set(error, -r->mute, "stdout could not be written: %s",
                        strerror(r->mute));
    double wall = (double)(clock_ns() - begin) / 1e9;
    return err ? err : finish(r, model, wall, error);
}

static int run_model(struct run *r, const char *model)
{
    struct error error = { 0 }, files = { 0 };
    r->error = &error;
    int err = open_session(r, model, &error);
    if (!err) {
        session_notes(r->s);
        session_catch(r->s);
        err = go_on(r, &error);
        if (!err)
            err = generate(r, model, &error);
        session_release();
    }
    int bad = output_close(&r->logits, !err || err == -ECANCELED,
                           err ? &files : &error);
    err = err ? err : bad;
    sluice_close(r->s);
    int lost = watch_close(&r->watch, err ? &files : &error);
    err = err ? err : lost;
    sluice_text_close(r->text);
    reply_free(&r->reply);
    conversation_free(&r->talk);
    samplers_free(&r->a.s.samplers);
    sluice_ids_free(&r->prompt);
    sluice_ids_free(&r->generated);
    if (err == -ECANCELED && session_signal()) {
        fputs("sluice: interrupted\n", stderr);
        return 128 + session_signal();
    }
    return err ? session_failed(model, &error) : r->unsaved;
}

static const char *check_chat(struct run_args *a)
{
    if (!a->chat)
        return a->system || a->no_think || a->effort || a->tools
                   ? "--system, --no-think, --effort and --tools need --chat"
                   : NULL;
    if (a->ids || a->state)
        return "--chat goes with neither --ids nor --state";
    if (a->effort && !(a->effort = conversation_effort(a->effort)))
        return "--effort is low, high or max";
    return NULL;
}

static const char *check(struct run_args *a)
{
    if (!!a->text + !!a->file + !!a->ids != 1)
        return "run needs one of -p, -f and --ids";
    if (!a->state && (a->goes_on || a->pace.ids || a->pace.seconds > 0))
        return "--continue and --state-every need --state";
    return check_chat(a);
}

int cmd_run(int argc, char **argv)
{
    struct run r = { .a.max = DEFAULT_MAX, .argc = argc, .argv = argv };
    session_defaults(&r.a.s);
    const struct opt table[] = {
        { "prompt", 'p', OPT_TEXT, &r.a.text, "TEXT", "the prompt", NULL },
        { "file", 'f', OPT_TEXT, &r.a.file, "FILE|-",
          "a file that holds the prompt; - is stdin", NULL },
        { "ids", 0, OPT_TEXT, &r.a.ids, "1,2,3",
          "the prompt as token ids; prints ids, not text", NULL },
        { "max-tokens", 'n', OPT_UINT, &r.a.max, "N",
          "max new tokens; default 64. 0 reads the prompt and stops, for "
          "--logits, --trace and --report",
          NULL },
        { "new", 0, OPT_UINT, &r.a.max, "N", NULL, NULL },
        { "chat", 0, OPT_FLAG, &r.a.chat, NULL,
          "the prompt is a message, and the model's reply is printed: thoughts "
          "on a terminal only, calls of tools as JSON", NULL },
        { "system", 0, OPT_TEXT, &r.a.system, "TEXT",
          "with --chat: what stands before the message", NULL },
        { "no-think", 0, OPT_FLAG, &r.a.no_think, NULL,
          "with --chat: answer without thoughts", NULL },
        { "effort", 0, OPT_TEXT, &r.a.effort, "low|high|max",
          "with --chat: how much the model thinks; default max", NULL },
        { "tools", 0, OPT_TEXT, &r.a.tools, "FILE",
          "with --chat: declare these tools, a JSON list as in a chat request",
          NULL },
        { "state", 0, OPT_TEXT, &r.a.state, "FILE",
          "begin at the state in FILE, if its ids are the first of the "
          "prompt's, and save it there at the ends of prompt and answer; the "
          "same command goes on where it was killed", NULL },
        { "state-every", 0, OPT_CALL, &r.a.pace, "N|SECONDSs",
          "save the state also after N tokens, or so many seconds: 30s",
          state_pace },
        { "continue", 0, OPT_FLAG, &r.a.goes_on, NULL,
          "the prompt is what --state has and then this", NULL },
        SESSION_OPTIONS(&r.a.s),
    };
    const struct opt_command cmd = {
        "sluice run MODEL (-p TEXT | -f FILE | --ids 1,2,3) [-n N] [options]",
        "Generate from one prompt.", table, sizeof table / sizeof *table };
    const char *model = NULL;
    struct k3_options o;
    int ended = opt_parse_one(&cmd, argc, argv, &model,
                              "run needs the folder of a model");
    if (ended >= 0)
        return ended;
    if (r.a.max > MAX_TOKENS)
        return opt_usage_error(&cmd, "-n is at most %d", MAX_TOKENS);
    const char *wrong = check(&r.a);
    wrong = wrong ? wrong : session_options(&r.a.s, &o);
    if (wrong)
        return opt_usage_error(&cmd, "%s", wrong);
    if (machines_follow(model, &r.a.s))
        return 0;
    struct error error = { 0 };
    int err = r.a.ids ? prompt_ids(&r.prompt, r.a.ids, &error) : 0;
    if (err) {
        sluice_ids_free(&r.prompt);
        return err == -EINVAL ? opt_usage_error(&cmd, "%s", error.text)
                              : session_failed(NULL, &error);
    }
    return run_model(&r, model);
}

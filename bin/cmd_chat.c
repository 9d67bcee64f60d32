/* cmd_chat.c - sluice chat: a conversation on a terminal. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/cli/machines.h"
#include "bin/cli/conversation.h"
#include "bin/cli/line.h"
#include "bin/cli/session.h"
#include "bin/cli/speak.h"
#include "bin/cmd.h"
#include "io/clock.h"
#include "model/ckpt/figure.h"

enum { MAX_TOKENS = 1 << 24 };

struct chat_cmd {
    struct session_args s;
    const char *system, *tools, *effort, *model;
    uint64_t max; /* new ids of a reply; 0: what the context has room for */
    bool   no_think, hide;
    struct conversation talk;
    struct sluice_text *text;
    struct sluice *session;
    struct sluice_ids ids;
    struct speak speak;
    struct reply reply;
    uint64_t asked;  /* replies so far: each has its own random numbers */
    bool   finished, broken; /* broken: a pass has failed */
    enum sluice_finish finish;
    uint32_t context, fresh; /* fresh: ids of the last reply */
    double seconds;          /* that it took */
    uint64_t read_bytes;
    struct error error;
};

/* ---- signals ---- */

static volatile sig_atomic_t stops; /* since the reply began */
static struct sluice *volatile running;

static void on_stop(int number)
{
    static const char say[] = "\r\n[stops after this pass; again: at once, and "
                              "the conversation is over]\r\n";
    (void)number;
    int saved = errno;
    stops++;
    if (running && stops == 1 && write(STDERR_FILENO, say, sizeof say - 1) < 0)
        saved = errno;
    if (running && stops > 1)
        sluice_interrupt(running);
    errno = saved;
}

static void catch_stops(void)
{
    struct sigaction action = { .sa_handler = on_stop };
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- a reply ---- */

static bool on_token(void *arg, const struct sluice_token *t)
{
    struct chat_cmd *c = arg;
    if (t->id == SLUICE_NO_ID)
        return false;
    int done = reply_push(&c->reply, t->id);
    if (done < 0)
        error_set(&c->error, done, "no memory for the reply");
    return !speak_reply(&c->speak, &c->reply) || done || stops;
}

static void on_finished(void *arg, const struct sluice_result *r)
{
    struct chat_cmd *c = arg;
    bool cut = r->finish != SLUICE_END;
    if (reply_end(&c->reply, cut) >= 0)
        speak_reply(&c->speak, &c->reply);
    c->finished = true;
    c->finish = r->finish;
    c->fresh = r->count;
}

static int begin_reply(struct chat_cmd *c, const struct sluice_reply *how)
{
    const struct samplers_args *a = &c->s.samplers;
    const struct reply_options o = { .chat = true, .in_answer = how->in_answer,
                                     .calls = how->calls,
                                     .one_call = how->one_call };
    int err = 0;
    reply_init(&c->reply, knobs_tok(c->text), &o);
    for (uint32_t i = 0; i < a->stops && !err; i++)
        err = reply_add_stop(&c->reply, a->stop[i], strlen(a->stop[i]));
    return err ? error_set(&c->error, err, "no memory for the reply") : 0;
}

/* Passes until the reply has ended, or was stopped. */
static int generate(struct chat_cmd *c, const struct sluice_request *q)
{
    struct sluice_error e = { 0 };
    uint64_t id;
    int step = sluice_submit(c->session, q, &id, &e);
    while (step >= 0 && !c->finished) {
        if (stops)
            sluice_cancel(c->session, id);
        step = sluice_step(c->session, &e);
        c->broken = step < 0;
    }
    return step < 0 ? knobs_error_back(&c->error, &e) : 0;
}

/* Ask for a reply to the conversation as it is. */
static int answer(struct chat_cmd *c)
{
    struct sluice_reply how;
    struct sluice_counters before, after;
    int err = conversation_prompt(&c->talk, c->text, &c->ids, &how, &c->error);
    if (!err && c->ids.count > c->context)
        err = error_set(&c->error, -EMSGSIZE,
                        "the conversation has %zu ids, the context %" PRIu32
                        " positions (see --context)",
                        c->ids.count, c->context);
    if (!err)
        err = begin_reply(c, &how);
    if (err)
        return err;
    uint64_t room = (uint64_t)c->context + 1 - c->ids.count;
    struct sluice_request q = { .size = sizeof q, .ids = c->ids.ids,
                                .count = (uint32_t)c->ids.count, .arg = c,
                                .token = on_token, .finished = on_finished };
    samplers_ask(&q, &c->s.samplers);
    q.max_ids = (uint32_t)(c->max && c->max < room ? c->max : room);
    q.seed += c->asked++;
    if (q.form != SLUICE_FREE)
        q.reply = how;
    speak_open(&c->speak, c->hide);
    sluice_counters(c->session, &before, sizeof before);
    int64_t begin = clock_ns();
    stops = 0;
    c->finished = false;
    running = c->session;
    err = generate(c, &q);
    running = NULL;
    c->seconds = (double)(clock_ns() - begin) / 1e9;
    sluice_counters(c->session, &after, sizeof after);
    c->read_bytes = after.read_bytes - before.read_bytes;
    bool heard = speak_end(&c->speak, &c->reply);
    if (!err && conversation_reply(&c->talk, &c->reply))
        err = error_set(&c->error, -ENOMEM, "no memory for the conversation");
    if (!err && !heard)
        err = error_set(&c->error, -EPIPE, "stdout could not be written");
    if (!err && c->finish == SLUICE_LENGTH)
        fputs("[the reply came to its limit]\n", stderr);
    reply_free(&c->reply);
    return err;
}

/* ---- what is typed ---- */

static void say_error(struct chat_cmd *c)
{
    fprintf(stderr, "sluice: %s\n", c->error.text);
    c->error = (struct error){ 0 };
}

static void say_stats(const struct chat_cmd *c)
{
    printf("%s in the last prompt, %" PRIu32 " in its reply, a context "
           "of %" PRIu32 "\n%s s, %s GB read",
           figure_count(c->ids.count, "id").text, c->fresh, c->context,
           figure(c->seconds).text, figure((double)c->read_bytes / 1e9).text);
    if (c->fresh)
        printf(", %s s and %s GB an id", figure(c->seconds / c->fresh).text,
               figure((double)c->read_bytes / 1e9 / c->fresh).text);
    putchar('\n');
}

static bool set_thinking(struct chat_cmd *c, const char *how)
{
    if (!strcmp(how, "show") || !strcmp(how, "hide")) {
        c->hide = *how == 'h';
        return true;
    }
    const char *effort = conversation_effort(!strcmp(how, "off")  ? "none"
                                             : !strcmp(how, "on") ? "max"
                                                                  : how);
    if (effort)
        c->talk.effort = effort;
    return effort;
}

static const char help[] =
    "/system TEXT   what stands before the conversation; alone: nothing\n"
    "/think HOW     off, low, high or max; show or hide\n"
    "/retry         another reply to the last message\n"
    "/save FILE     the conversation, as a chat request\n"
    "/load FILE     one that was saved\n"
    "/stats         what the last reply took\n"
    "/quit          or the end of the input\n";

static int save(struct chat_cmd *c, const char *path)
{
    const struct output_file file = { .option = "/save", .path = path };
    int err = outputs_check(&file, 1, c->model, &c->error);
    return err ? err : conversation_save(&c->talk, path, &c->error);
}

/* A line that begins with a slash. 1: the conversation is over. */
static int command(struct chat_cmd *c, char *line)
{
    char *word = line + strcspn(line, " ");
    int err = 0;
    if (*word)
        *word++ = 0;
    word += strspn(word, " ");
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit"))
        return 1;
    if (!strcmp(line, "/help"))
        fputs(help, stdout);
    else if (!strcmp(line, "/stats"))
        say_stats(c);
    else if (!strcmp(line, "/system"))
        err = conversation_system(&c->talk, word);
    else if (!strcmp(line, "/think") && set_thinking(c, word))
        err = 0;
    else if (!strcmp(line, "/save") && *word)
        err = save(c, word);
    else if (!strcmp(line, "/load") && *word)
        err = conversation_load(&c->talk, word, c->text, &c->error);
    else if (!strcmp(line, "/retry") && conversation_again(&c->talk))
        err = answer(c);
    else
        fputs("sluice: /help shows what there is\n", stderr);
    fflush(stdout);
    if (err == -ENOMEM && !c->error.code)
        error_set(&c->error, err, "no memory for the conversation");
    return err;
}

/* One line. 1: the conversation is over; an error that ends it. */
static int take(struct chat_cmd *c, const char *text, size_t bytes)
{
    int done = 0;
    if (!bytes)
        return 0;
    if (*text == '/') {
        char *line = strndup(text, bytes);
        done = line ? command(c, line) : -ENOMEM;
        free(line);
    } else {
        size_t before = c->talk.messages.count, asked = c->talk.asked;
        done = conversation_user(&c->talk, text, bytes);
        if (!done)
            done = answer(c);
        if (done < 0) { /* as if never said */
            c->talk.messages.count = before;
            c->talk.asked = asked;
        }
    }
    /* Somebody who types can say something else. */
    if (done >= 0 || c->broken || !isatty(STDIN_FILENO))
        return done;
    if (!c->error.code)
        error_set(&c->error, done, "no memory for the conversation");
    say_error(c);
    return 0;
}

static int talk(struct chat_cmd *c)
{
    const char *text;
    size_t bytes;
    struct line_reader *l = line_open("> ");
    int done = l ? 0 : -ENOMEM;
    while (!done) {
        int got = line_read(l, &text, &bytes);
        if (!got)
            break;
        if (got == -EINTR)
            putchar('\n');
        else
            done = take(c, text, bytes);
    }
    line_close(l);
    if (isatty(STDIN_FILENO) && !done)
        putchar('\n');
    return done < 0 ? done : 0;
}

/* ---- the command ---- */

static int open_chat(struct chat_cmd *c)
{
    struct k3_options engine;
    struct sluice_error e = { 0 };
    struct sluice_info info;
    session_options(&c->s, &engine);
    if (!engine.rows)
        engine.rows = SESSION_ROWS;
    engine.drafts = session_draft(&c->s).max;
    engine.logits = 1;
    int err = samplers_load(&c->s.samplers, c->model, &c->error);
    if (!err)
        err = conversation_open(&c->talk, c->system, c->tools, &c->error);
    if (err)
        return err;
    c->talk.effort = c->no_think ? "none" : c->effort;
    if (sluice_text_open(&c->text, c->model, &e))
        return knobs_error_back(&c->error, &e);
    struct sluice_options o = session_sluice(&c->s);
    o.text = c->text;
    o.forms = c->s.samplers.form != SLUICE_FREE ||
              conversation_is_strict(&c->talk);
    o.share = true;
    o.held = 1;
    o.progress = speak_layer;
    o.progress_arg = &c->speak;
    if (knobs_open(&c->session, c->model, &o, &engine, &e))
        return knobs_error_back(&c->error, &e);
    sluice_info(c->session, &info, sizeof info);
    c->context = info.context;
    session_notes(c->session);
    if (isatty(STDIN_FILENO) && speak_is_terminal())
        puts("/help shows what there is besides talking; Ctrl-C stops a "
             "reply.");
    return 0;
}

static int chat(struct chat_cmd *c)
{
    catch_stops();
    int err = open_chat(c);
    if (!err)
        err = talk(c);
    sluice_close(c->session);
    conversation_free(&c->talk);
    sluice_text_close(c->text);
    sluice_ids_free(&c->ids);
    samplers_free(&c->s.samplers);
    if (err && stops > 1) {
        fputs("sluice: interrupted\n", stderr);
        return 128 + SIGINT;
    }
    if (err && !c->error.code)
        error_set(&c->error, err, "no memory for the conversation");
    return err ? session_failed(c->model, &c->error) : 0;
}

int cmd_chat(int argc, char **argv)
{
    struct chat_cmd c = { .max = 0 };
    struct session_args *a = &c.s;
    session_defaults(a);
    const struct opt table[] = {
        { "system", 0, OPT_TEXT, &c.system, "TEXT",
          "what stands before the conversation", NULL },
        { "no-think", 0, OPT_FLAG, &c.no_think, NULL,
          "answer without thoughts", NULL },
        { "effort", 0, OPT_TEXT, &c.effort, "low|high|max",
          "how much the model thinks; default max", NULL },
        { "hide-thoughts", 0, OPT_FLAG, &c.hide, NULL,
          "do not show thoughts", NULL },
        { "tools", 0, OPT_TEXT, &c.tools, "FILE",
          "declare these tools: a JSON list, as in a chat request", NULL },
        { "max-tokens", 'n', OPT_UINT, &c.max, "N",
          "max new tokens of a reply; default: as the context has room", NULL },
        SESSION_ENGINE_OPTIONS(a),
        SAMPLERS_OPTIONS(&a->samplers),
        NAMES_RUN,
    };
    const struct opt_command cmd = {
        "sluice chat MODEL [options]",
        "A conversation. A line is a message; lines that begin with a slash "
        "are commands, which /help lists. From a pipe, each line is a message, "
        "and only the answers are printed.",
        table, sizeof table / sizeof *table };
    struct k3_options o;
    int ended = opt_parse_one(&cmd, argc, argv, &c.model,
                              "chat needs the folder of a model");
    if (ended >= 0)
        return ended;
    if (c.max > MAX_TOKENS)
        return opt_usage_error(&cmd, "-n is at most %d", MAX_TOKENS);
    if (c.effort && !conversation_effort(c.effort))
        return opt_usage_error(&cmd, "--effort is low, high or max");
    const char *wrong = session_options(a, &o);
    if (wrong)
        return opt_usage_error(&cmd, "%s", wrong);
    return machines_follow(c.model, a) ? 0 : chat(&c);
}

/* sluice.c - main: find the command, run it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bin/cli/machines.h"
#include "bin/cli/opt.h"
#include "bin/cmd.h"
#include "model/sluice.h"
#include "model/text/tok_class.h"

enum { STACK_BYTES = 2 << 20 };

static const struct cmd commands[] = {
    { "run", cmd_run, "generate from one prompt" },
    { "chat", cmd_chat, "a conversation on a terminal" },
    { "batch", cmd_batch, "generate for many requests, crash-safe" },
    { "serve", cmd_serve, "the model behind an HTTP API, and a page" },
    { "plan", cmd_plan, "what a memory budget makes of a model" },
    { "doctor", cmd_doctor, "can this machine run it, and what to type next" },
    { "verify", cmd_verify, "read everything, check everything" },
    { "pack", cmd_pack, "code the weights: fewer bytes a token, checked" },
    { "spread", cmd_spread, "divide a model over several drives, and back" },
    { "tokenize", cmd_tokenize, "text to token ids and back" },
    { "synth", cmd_synth, "write a random checkpoint in the official layout" },
    { "profile", cmd_profile, "draw where a token's time went" },
    { "compare", cmd_compare, "two runs, or two groups of runs, side by side" },
    { "replay", cmd_replay, "compare cache and prefetch policies on a trace" },
    { NULL, NULL, NULL },
};

static void print_commands(FILE *to)
{
    fputs("usage: sluice COMMAND ...\n\n", to);
    for (const struct cmd *c = commands; c->name; c++)
        fprintf(to, "  %-10s %s\n", c->name, c->about);
    fputs("\nsluice COMMAND --help shows its options.\n", to);
}

static cmd_fn *find(const char *name)
{
    for (const struct cmd *c = commands; c->name; c++)
        if (!strcmp(name, c->name))
            return c->run;
    return NULL;
}

static int unknown(const char *name)
{
    fprintf(stderr, "sluice: %s is not a command\n", name);
    print_commands(stderr);
    return 2;
}

/* sluice help [COMMAND] */
static int help(int argc, char **argv)
{
    char *words[] = { argc > 2 ? argv[2] : NULL, (char *)"--help", NULL };
    if (argc < 3) {
        print_commands(stdout);
        return 0;
    }
    cmd_fn *run = find(argv[2]);
    if (run && argc > 3) {
        fprintf(stderr, "sluice: %s is one word too many\nusage: sluice help "
                "[COMMAND]\n", argv[3]);
        return 2;
    }
    return run ? run(2, words) : unknown(argv[2]);
}

static int run_alone(int argc, char **argv)
{
    if (argc && strchr(argv[0], '/'))
        opt_program = argv[0];
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help"))
        return help(argc, argv);
    if (!strcmp(argv[1], "--version")) {
        printf("sluice %s, Unicode %s\n", SLUICE_VERSION,
               tok_unicode_version);
        return 0;
    }
    cmd_fn *run = find(argv[1]);
    return run ? run(argc - 1, argv + 1) : unknown(argv[1]);
}

static int run_command(int argc, char **argv)
{
    int status = machines_begin(argc > 1 ? argv[1] : NULL);
    return machines_end(status < 0 ? run_alone(argc, argv) : status);
}

/* A closed standard stream would be the number of the next file that is opened.
 * In its place stands one that takes nothing. */
static void hold_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0)
            return;
}

struct words {
    int    argc, status;
    char **argv;
};

static void *run_words(void *arg)
{
    struct words *w = arg;
    w->status = run_command(w->argc, w->argv);
    return NULL;
}

/* Kernels and readers keep tables on their stacks. Where `ulimit -s` is small
 * the command gets a thread with enough, and so do those that it starts. */
static int run_with_stack(int argc, char **argv)
{
    struct words w = { .argc = argc, .argv = argv };
    struct rlimit limit;
    pthread_attr_t attr;
    pthread_t thread;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= STACK_BYTES ||
        pthread_attr_init(&attr))
        return run_command(argc, argv);
    if (pthread_attr_setstacksize(&attr, STACK_BYTES) ||
        pthread_setattr_default_np(&attr) ||
        pthread_create(&thread, &attr, run_words, &w))
        return run_command(argc, argv);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    return w.status;
}

/* What could not be written was not done, whatever the command says. */
int main(int argc, char **argv)
{
    hold_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit fails like a full disk */
    int status = run_with_stack(argc, argv);
    errno = 0;
    if (status || (!fflush(stdout) && !ferror(stdout)))
        return status;
    fprintf(stderr, "sluice: stdout could not be written: %s\n",
            errno ? strerror(errno) : "an earlier error");
    return 1;
}

/* opt.h - one table of options: parser and --help come from the same lines.
 *
 *     static const struct opt table[] = {
 *         { "memory", 'm', OPT_SIZE, &o.memory_bytes, "SIZE", "the budget" },
 *         { "json",    0,  OPT_FLAG, &o.json,         NULL,   "print JSON" },
 *     };
 *     int n = opt_parse(&cmd, argc, argv, args, 1);
 *     if (n < 0)
 *         return opt_status(n);
 *
 * Every option takes its value as `--name VALUE` or `--name=VALUE`; `--`
 * ends the options. Unknown options, missing or malformed values print one
 * sentence to stderr.
 *
 * Threads  one caller.
 * Errors   printed here; OPT_WRONG and exit status 2.
 */
#ifndef BIN_CLI_OPT_H
#define BIN_CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_kind {
    OPT_FLAG,   /* bool: present or not, takes no value */
    OPT_TEXT,   /* const char * */
    OPT_UINT,   /* uint64_t: a whole number */
    OPT_SIZE,   /* uint64_t: bytes, or 8G, 512M, 64K (powers of 1024) */
    OPT_REAL,   /* double */
    OPT_CALL,   /* an opt_call_fn *, given the value: lists, unions */
    OPT_CHOICES, /* no option: --help prints `help` and calls `call` with NULL,
                  * which prints a list with opt_choice */
};

/* Returns NULL, or what is wrong with `value` ("is not a list of ids"). */
typedef const char *opt_call_fn(void *arg, const char *value);

struct opt {
    const char   *name;   /* without the dashes */
    char          letter; /* 0: none */
    enum opt_kind kind;
    void         *value;  /* where it goes; for OPT_CALL, the first argument */
    const char   *metavar; /* FILE, DIR, PATH, TRACE, REPORT or MODEL in it:
                            * a path, for which "-" is refused, unless it ends
                            * in "|-" */
    const char   *help; /* NULL: an old name, which --help does not show */
    opt_call_fn  *call;
};

struct opt_command {
    const char       *usage; /* "sluice run MODEL (-p TEXT | ...) [-n N]" */
    const char       *about; /* sentences under the usage in --help; these and
                              * the options' are broken into lines */
    const struct opt *table;
    size_t            count;
};

/* The program as it was called, for commands that a hint tells to type. main
 * sets it; "sluice" before that. */
extern const char *opt_program;

enum { OPT_HELPED = -1, OPT_WRONG = -2 };

/* Fill the values; argv[0] is the command's own name and is skipped. Returns
 * the number of positional words put in `words` (at most `max`), OPT_HELPED
 * after printing --help to stdout, or OPT_WRONG after printing why. */
int opt_parse(const struct opt_command *cmd, int argc, char **argv,
              const char **words, int max);
/* The same for a command with one word, which is needed: `needs` says so. -1,
 * or the exit status of a command that ends here. */
int opt_parse_one(const struct opt_command *cmd, int argc, char **argv,
                  const char **word, const char *needs);
/* Has the command that was parsed last this option? For hints; while that
 * command runs. */
bool opt_takes(const char *name);
/* The exit status that goes with a negative result of opt_parse: 0 or 2. */
int opt_status(int parsed);
/* Print "sluice: <sentence>" and the usage hint; returns 2. */
int opt_usage_error(const struct opt_command *cmd, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Why "-" is no path here. */
extern const char opt_no_stream[];
/* A line of a list of choices in --help. */
void opt_choice(const char *name, const char *about);
/* Read a SIZE. Returns 0 or -1. */
int opt_size(uint64_t *out, const char *text);

#endif

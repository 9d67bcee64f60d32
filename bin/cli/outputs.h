/* outputs.h - the files that commands write.
 *
 * outputs_check  no output of a command is one of its inputs, another of its
 *                outputs, or a file of a model, whatever links lead there. Call
 *                it before anything is opened.
 * struct output  a file that appears when it is whole (io/replace.h); until
 *                then the path holds what it held.
 *
 *     output_open -> { write to o->f } -> [output_publish] -> output_close
 *
 * Threads  one caller. Errors: a negative errno and a sentence.
 */
#ifndef BIN_CLI_OUTPUTS_H
#define BIN_CLI_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "io/replace.h"
#include "model/ckpt/error.h"

struct output_file {
    const char *option; /* "--report" */
    const char *path;   /* NULL: not wanted */
    bool        read;   /* it is read, not written */
    bool        numbered; /* what is written is path.1, path.2 ... */
};

/* Standard streams, where a file may stand behind them. */
#define OUTPUTS_STDIN "/dev/stdin"
#define OUTPUTS_STDOUT "/dev/stdout"
#define OUTPUTS_STDERR "/dev/stderr"

/* Each against each, against the files of the folder `model` (NULL: none), and
 * against those of any folder that holds a model. Pipes and devices are free.
 * 0 or -EINVAL. */
int outputs_check(const struct output_file *files, size_t count,
                  const char *model, struct error *error);
/* Is this how a file of a model is called ("config.json", "X.pack")? */
bool outputs_of_model(const char *name);
/* Can a file ("the report") be written there? Asked before a run of hours.
 * NULL: none is wanted. Leaves the folder as it was. 0 or a negative errno. */
int outputs_writable(const char *path, const char *what, struct error *error);

struct output {
    const char *path; /* the caller's */
    const char *what; /* "the report" */
    struct replace r;
    FILE *f;          /* NULL: not open */
};

/* `path` NULL: none is wanted, and nothing is opened. */
int output_open(struct output *o, const char *path, const char *what,
                struct error *error);
/* The same for a name that was made from another: a link there is not ours, and
 * refused. */
int output_open_beside(struct output *o, const char *path, const char *what,
                       struct error *error);
/* What is written so far takes its place; more may follow. */
int output_publish(struct output *o, struct error *error);
/* `keep`: the file is whole, and takes its place; otherwise it is forgotten.
 * One that is not open is fine. */
int output_close(struct output *o, bool keep, struct error *error);
/* "PATH: WHAT could not be written: WHY", for a positive errno. */
int output_failed(const struct output *o, int code, struct error *error);

/* A path as a terminal may have it: control characters are '?'. */
struct shown {
    char text[480];
};
struct shown shown(const char *path);

/* A folder for files of a moment: TMPDIR, or /tmp. */
const char *outputs_temporary(void);

#endif

/* setup.h - what a run was made with: the `setup` object of a report, which
 * sluice compare sets beside that of another run.
 *
 *   run       32 hexadecimal digits, the same in the report and the timeline
 *   date      when it was made, UTC; command: its words
 *   model     folder, shards, bytes (of them), identity (ckpt/identity.h)
 *   host, kernel, cpu, cpus, host_memory_bytes, version
 *   drives    an array: name (of the block device), model, file_system; of a
 *             simulated drive its rate
 *   options   those in force, defaults filled in: memory_bytes is the budget,
 *             memory_given whether --memory set it
 *
 * What the machine does not tell is missing.
 *
 * Threads  the session's caller.
 * Errors   -ENOMEM, and those of identity_of, with a sentence.
 * Cost     the headers of the shards and 3,000 small reads for K3.
 */
#ifndef BIN_REPORT_SETUP_H
#define BIN_REPORT_SETUP_H

#include <jansson.h>

#include "bin/cli/session.h"
#include "model/k3/k3.h"

struct setup_input {
    struct k3  *k;
    const char *model; /* the folder, as it was given */
    const char *run;   /* watch_files.run */
    int         argc;
    char      **argv; /* [argc] the words behind "sluice" */
    const struct session_args *args;
    uint64_t    max_tokens;
};

/* *out is the caller's to decref. */
int setup_make(json_t **out, const struct setup_input *in,
               struct error *error);

#endif

/* verify.h - read a whole checkpoint once and check all that can be checked.
 *
 * Names and sizes first: the shards that should be there, their headers, the
 * index against the headers, the headers against the config, the tokenizer.
 * Then every byte, at the rate of the drives: a BF16 or F32 value that is not
 * finite, an MXFP4 scale of 255, weights that are nothing but zeros, as in a
 * file that was made at its full length and never written. Bytes have no
 * checksum in this format; what is finite and wrong is not seen.
 *
 *     verify_run (once)
 *
 * Bytes    at most 256 MiB of buffers, the index (some 200 MB while it is
 *          compared) and two headers a drive, whatever the size of the model.
 * Threads  `threads` that look, and the caller's, which reads.
 * Errors   a problem of the checkpoint is no error but a call of `problem`.
 *          -ENOMEM; -EINVAL and others from the reader when it cannot start.
 */
#ifndef MODEL_VERIFY_H
#define MODEL_VERIFY_H

#include <stdint.h>

#include "model/why.h"

struct fault_plan;

struct verify_options {
    const char *dir;
    const char *io; /* as in reader.h; NULL: "auto" */
    uint32_t threads; /* > 0 */
    const struct fault_plan *fault; /* NULL: none */
    /* One thing that is wrong: the file's path or NULL, the tensor's name or
     * NULL, a sentence. One at a time, from any thread. */
    void (*problem)(void *arg, const char *file, const char *tensor,
                    const char *text);
    /* Now and then, from the caller's thread; may be NULL. */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);
    void *arg;
};

struct verify_facts {
    uint32_t files;    /* that were read */
    uint64_t tensors, bytes, problems;
    double   seconds;  /* of reading */
    const char *method;
};

/* 0 when everything was looked at, whatever was found. */
int verify_run(struct verify_facts *facts, const struct verify_options *o,
               struct why *why);

#endif

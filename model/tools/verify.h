/* verify.h - read a whole checkpoint once and check it.
 *
 * First names and sizes: the set of shards, their headers, the index against
 * the headers, the headers against the config, the tokenizer.
 * Then every byte, at the rate of the drives or of SHA-256 on all threads: a
 * file's digest against what its download left (sums.h); a BF16 or F32 value
 * that is not finite, an MXFP4 scale of 255; a run of 64 KiB zeros or more, as
 * in a file that was made at its full length and not written everywhere, unless
 * the digest says that it was published so. Coded weights beside the model are
 * decoded and compared with their shards.
 *
 * Files that were found sound go into a list in the folder (verified.h), and
 * the next verify reads them again only when they changed.
 *
 *     verify_run (once)
 *
 * Bytes    below `memory_bytes`: buffers, a header for each file that is being
 *          read, before that the index, and after it what coded weights are
 *          decoded to.
 * Threads  the caller's reads; `threads` others check, each one file. Twice as
 *          many read and compare coded weights, fewer where memory is short.
 * Errors   a problem of the checkpoint is no error: `problem` is called for it.
 *          -ENOBUFS when `memory_bytes` are too few; -ENOMEM; -EINVAL and
 *          others from the reader when it cannot start.
 */
#ifndef MODEL_TOOLS_VERIFY_H
#define MODEL_TOOLS_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/error.h"

#define VERIFY_MEMORY_BYTES ((uint64_t)512 << 20)

struct fault_plan;

struct verify_options {
    const char *dir;
    const char *io; /* as in reader.h; NULL: "auto" */
    const char *packed; /* "auto" (NULL), "off", "require" or a folder */
    uint32_t threads; /* > 0, at most 1024 */
    uint64_t memory_bytes; /* 0: VERIFY_MEMORY_BYTES */
    bool keep_list; /* use and continue the list in the folder */
    bool again;     /* read also what the list has */
    const struct fault_plan *fault; /* for tests; NULL: none */
    /* Called for each problem, one at a time, from any thread. `file` and
     * `tensor` may be NULL; `text` is the sentence. */
    void (*problem)(void *arg, const char *file, const char *tensor,
                    const char *text);
    /* Called from time to time, from one thread at a time; may be NULL. */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);
    void *arg;
};

struct verify_facts {
    uint32_t files;        /* read */
    uint32_t packed_files; /* of coded weights, compared */
    uint32_t unchanged; /* that the list has, and were not */
    uint32_t summed;   /* whose digest could be compared */
    int      list_error; /* why the list could not be continued, or 0 */
    uint64_t tensors;      /* in all headers */
    uint64_t bytes;        /* read */
    uint64_t problems;     /* found */
    uint64_t packed_bytes; /* compared, coded and raw */
    double   seconds;  /* of reading */
    const char *method; /* of I/O: "uring", "pread" */
};

/* Read the parts of the model (model/parts) in these folders instead: every
 * checksum, and what coded weights decode to. Of `dir` only the config is used.
 * io, packed, memory_bytes, keep_list and again are not. */
int verify_parts(struct verify_facts *facts, const struct verify_options *o,
                 const char *const *part_dir, uint32_t part_dirs,
                 struct error *error);

/* 0 if everything was checked, with or without problems. */
int verify_run(struct verify_facts *facts, const struct verify_options *o,
               struct error *error);

#endif

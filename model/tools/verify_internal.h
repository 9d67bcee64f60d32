/* verify_internal.h - the parts of verify.h: names and headers, reading, the
 * check of a file's bytes, the check of a range.
 *
 * Errors and threads as in verify.h.
 */
#ifndef MODEL_TOOLS_VERIFY_INTERNAL_H
#define MODEL_TOOLS_VERIFY_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "io/reader.h"
#include "model/ckpt/safetensors.h"
#include "model/tools/digest.h"
#include "model/tools/sums.h"
#include "model/tools/verified.h"
#include "model/tools/verify.h"

#define VERIFY_PROGRAM_BYTES ((uint64_t)40 << 20) /* the reader's own with it */

struct verify {
    const struct verify_options *o;
    struct verify_facts *facts;
    uint64_t memory_bytes;
    pthread_mutex_t lock; /* for calls of `problem` */
    struct sums     *sums;
    struct verified *list; /* or NULL */
    char   **path;        /* [paths] shards whose headers are right */
    uint32_t paths;
    uint32_t reads;       /* the first of them, which are to be read */
    uint64_t data_bytes;  /* of those shards */
    uint64_t packed_bytes; /* to compare, of the sidecars opened so far */
    uint64_t header_max_bytes; /* the longest of their headers */
};

/* Count and report a problem. From any thread. */
void verify_problem(struct verify *v, const char *file, const char *tensor,
                    const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* What to do about an errno of reading that says nothing about the bytes, as
 * the end of a sentence; "" for others. */
const char *verify_unread(int code);

/* ---- verify_read.c ---- */

/* Read and check every byte of the first v->reads of v->path. */
int verify_read(struct verify *v, struct error *error);
/* Bytes that this takes with the fewest buffers. */
uint64_t verify_read_floor(const struct verify *v);

/* ---- verify_look.c ---- */

enum { VERIFY_CHUNK = READER_CHUNK, VERIFY_NO_SLOT = -1 };

/* One read, from the request until it was checked. */
struct verify_chunk {
    uint8_t             *base; /* of the slot: a page boundary */
    struct verify_file  *file;
    uint64_t             offset_bytes; /* in the file */
    uint32_t             length_bytes;
    int                  code;
    int                  next; /* slot of another that came, or NO_SLOT */
};

/* A shard that is being read. Its chunks are checked in order, by one thread at
 * a time. */
struct verify_file {
    const char        *path;
    struct stat        before;
    struct safetensors header;
    struct tally      *tally;  /* [header.count] */
    struct digest     *sha256; /* NULL after a byte was lost */
    uint64_t           seen_bytes; /* checked, from the beginning */
    uint64_t           zero_bytes; /* zeros that end there */
    uint64_t           run_bytes;  /* of zeros in long runs */
    uint32_t           tensor;     /* the first that is not over there */
    int                lost_code;  /* what made a part of it be lost, or 0 */
    bool               damaged;    /* something was reported */
    /* Under the looker's lock: */
    int                came;  /* chunks to check, a list of slots */
    uint32_t           out;   /* chunks requested and not yet checked */
    bool               busy;  /* with a thread, or waiting for one */
    bool               asked; /* all chunks were requested */
};

/* -ENOMEM, or an error of the file, which was reported. */
int verify_file_open(struct verify_file **out, struct verify *v,
                     const char *path);
/* Check the next chunk of a file. */
void verify_file_look(struct verify *v, struct verify_file *f,
                      const struct verify_chunk *c);
/* All chunks were checked: report what was found, and free the file. */
void verify_file_end(struct verify *v, struct verify_file *f);
void verify_file_free(struct verify_file *f);

/* ---- verify_packed.c ---- */

/* Decode and compare the sidecars of v->path. */
int verify_packed(struct verify *v, struct error *error);
/* Bytes that this takes with the fewest threads; 0: there are none. 0, or
 * -ENOMEM. */
int verify_packed_floor(const struct verify *v, uint64_t *bytes);

/* ---- verify_scan.c ---- */

enum scan_kind {
    SCAN_BF16,  /* bad: not finite */
    SCAN_F32,   /* bad: not finite */
    SCAN_SCALE, /* E8M0; bad: 255 */
    SCAN_BYTES, /* packed weights: none is bad */
};

struct scan {
    uint64_t bad;   /* number of bad values */
    uint64_t first; /* index of the first one, if bad > 0 */
};

/* Check `length` bytes, whole values of any alignment. */
void scan_bytes(struct scan *out, enum scan_kind kind, const void *bytes,
                size_t length);
/* Bytes of a value. */
uint32_t scan_width(enum scan_kind kind);

/* The end of the first run of `min` or more zeros in bytes before which *zeros
 * zeros came. Returns the offset just behind the run with *zeros its length, or
 * `length` with *zeros the number of zeros at the end, which may be a run that
 * goes on. `min` is at least 8 KiB. */
size_t scan_zeros(uint64_t *zeros, const void *bytes, size_t length,
                  uint64_t min);

#endif

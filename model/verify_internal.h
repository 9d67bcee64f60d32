/* verify_internal.h - the parts of verify.h: names and headers, reading, and
 * the look at a range of bytes. */
#ifndef MODEL_VERIFY_INTERNAL_H
#define MODEL_VERIFY_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "model/verify.h"

struct verify {
    const struct verify_options *o;
    struct verify_facts *facts;
    pthread_mutex_t lock; /* around problems */
    char   **path;        /* [paths] shards whose headers are sound */
    uint32_t paths;
    uint64_t data_bytes;  /* of these */
};

/* Count a problem and tell it. Any thread. */
void verify_problem(struct verify *v, const char *file, const char *tensor,
                    const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- verify_read.c ---- */

/* Read and look at every tensor of v->path. */
int verify_read(struct verify *v, struct why *why);

/* ---- verify_scan.c ---- */

enum scan_kind {
    SCAN_BF16,  /* finite? */
    SCAN_F32,   /* finite? */
    SCAN_SCALE, /* E8M0: not 255 */
    SCAN_BYTES, /* anything goes: packed weights */
};

struct scan {
    uint64_t bad;   /* values */
    uint64_t first; /* index of the first bad one; only if bad */
    bool     zero;  /* every byte is */
};

/* Look at whole values. Nothing is assumed of the alignment. */
void scan_bytes(struct scan *out, enum scan_kind kind, const void *bytes,
                size_t length);
/* Bytes of a value. */
uint32_t scan_width(enum scan_kind kind);

#endif

/* doctor.h - the checks of sluice doctor.
 *
 *     doctor_system -> doctor_folder -> doctor_drives -> doctor_free
 *
 * A check adds a line: a verdict, a sentence and, if something can be done, the
 * command that does it. Nothing on the machine is changed. Each claim was
 * tried: a ring reads, an arena asks for huge pages, direct reads are of the
 * model's files.
 *
 * Threads  one caller.
 * Errors   a failed check is a line with DOCTOR_FAIL.
 */
#ifndef BIN_DOCTOR_DOCTOR_H
#define BIN_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/limits.h"
#include "io/paced.h"
#include "bin/cli/parts.h"
#include "model/ckpt/config.h"

enum verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_VERDICTS };
/* Drives whose file systems get a line; all are measured. */
enum { DOCTOR_DRIVES_MAX = 16 };
enum { DOCTOR_LINES_MAX = 160 };

struct doctor_line {
    enum verdict verdict;
    char name[16];
    char text[640];
    char fix[1200]; /* a command; "": none */
};

struct doctor {
    const char *model; /* the folder, or NULL */
    struct parts_args parts; /* to read instead of its shards */
    struct parts *opened;    /* those, or NULL */
    bool        quiet; /* do not print lines as they are added */
    struct doctor_line line[DOCTOR_LINES_MAX];
    uint32_t lines, count[DOCTOR_VERDICTS];
    /* Results for later checks. */
    uint32_t threads;      /* compute threads of a run */
    uint64_t budget_bytes; /* of a run without -m */
    bool     has_config, has_tokenizer;
    bool     complete;     /* every tensor is there */
    struct config config;
    char   **path;         /* [paths] complete shards, allocated */
    uint32_t paths;
    struct paced_drive drive[DRIVES_MAX]; /* [drives] as measured */
    uint32_t drives;       /* 0: not measured */
};

/* Add a line, and print it unless quiet. `fix` may be NULL. */
void doctor_add(struct doctor *d, enum verdict verdict, const char *name,
                const char *fix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void doctor_free(struct doctor *d);

/* Kernel, io_uring, locked memory, huge pages, CPU, memory, NUMA, limits. */
void doctor_system(struct doctor *d);
/* Config, tokenizer, shards, floor, free space. */
void doctor_folder(struct doctor *d);
/* File systems, direct reads, rates. */
void doctor_drives(struct doctor *d);

/* Where a path is mounted. */
struct mount_point {
    char type[32];    /* "ext4" */
    char source[256]; /* "/dev/nvme0n1p1" */
};
/* Find in the text of a mountinfo file the innermost mount above `path`, which
 * is absolute and has no links. Returns 0 or -1. */
int mount_find(struct mount_point *out, const char *mountinfo,
               const char *path);

/* The first line of a small file, without its end; "" if there is none. */
void doctor_read(char *out, size_t size, const char *path);

#endif

/* doctor.h - what sluice doctor finds out, line by line.
 *
 *     doctor_system -> doctor_folder -> doctor_drives, each once
 *
 * A line has a verdict, a sentence and, where something can be done, the
 * command that does it. Nothing is changed on the machine; what is claimed was
 * tried: a ring really reads, an arena really asks for huge pages, direct reads
 * are direct reads of the model's files.
 */
#ifndef BIN_DOCTOR_H
#define BIN_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/config.h"

enum verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_VERDICTS };
/* Drives whose file systems are told; all are measured, a line each. */
enum { DOCTOR_DRIVES_MAX = 16 };
enum { DOCTOR_LINES_MAX = 160 };

struct doctor_line {
    enum verdict verdict;
    char name[16];
    char text[640];
    char fix[1200]; /* "": nothing to be done, or nothing to do */
};

struct doctor {
    const char *model; /* the folder, or NULL */
    bool        quiet; /* lines are not printed as they come */
    struct doctor_line line[DOCTOR_LINES_MAX];
    uint32_t lines, count[DOCTOR_VERDICTS];
    /* What one check leaves to another. */
    uint32_t threads;
    uint64_t budget_bytes; /* of a run without -m */
    bool     has_config, has_tokenizer, complete;
    struct config config;
    char   **path;         /* [paths] shards that are whole, malloc'ed */
    uint32_t paths;
    uint64_t bytes_per_s;  /* of all drives; 0: not measured */
};

/* `fix` may be NULL. */
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
/* Read the text of a mountinfo file: the innermost mount that `path`, absolute
 * and without links, is below. Pure but for `path`. Returns 0 or -1. */
int mount_find(struct mount_point *out, const char *mountinfo,
               const char *path);

/* The next line of a small file, without its end; "" when there is none. */
void doctor_read(char *out, size_t size, const char *path);

#endif

/* in.h - lines of a file or of a pipe, one at a time, also of one that gzip or
 * zstd has compressed.
 *
 *     batch_in_open -> { batch_in_next ... } -> batch_in_close
 *
 * Bytes    the longest line, at most twice BATCH_LINE_MAX; the window of
 *          what is compressed, and UNPACK_MORE_BYTES.
 * Threads  one.
 * Errors   that of the file.
 */
#ifndef BIN_BATCH_IN_H
#define BIN_BATCH_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "bin/batch/unpack.h"
#include "model/ckpt/error.h"

enum {
    BATCH_LINE_MAX = 16 << 20,   /* bytes; longer lines are refused */
    BATCH_WINDOW = 8 << 20,      /* of zstd, of a file */
    BATCH_PIPE_WINDOW = 2 << 20, /* of a pipe: what zstd takes by itself */
};

struct batch_in {
    int      fd;
    const char *path;
    uint64_t line;  /* number of the last line, from 1 */
    uint64_t lines; /* in the file; 0: not known, it is a pipe */
    uint64_t longest_bytes; /* of a line of the file */
    uint64_t line_max; /* longer ones are refused; 0: BATCH_LINE_MAX */
    char    *buffer;
    size_t   used, begin, capacity; /* bytes; begin: of the next line */
    bool     skipping; /* inside a line that is too long */
    bool     ended;
    bool     no_end; /* the last line had no line end */
    struct stat was; /* at the start */
    bool     begun;    /* the mark at its beginning was looked at */
    bool     packed;   /* the file is compressed */
    struct unpack *unpack; /* NULL: it is not compressed */
    const char *what;  /* it is not UTF-8 but this; or why it is -EBADMSG */
};

/* "-" is stdin. A file is read once to count its lines. What is no UTF-8
 * (UTF-16, xz ...) is refused: a file here, a pipe at its first line. */
int batch_in_open(struct batch_in *in, const char *path, struct error *error);
/* Is a file another, or of another length or time, than when it was opened? A
 * pipe is not. */
bool batch_in_changed(const struct batch_in *in);
void batch_in_close(struct batch_in *in);
/* 1: the next line, without its end, good until the next call. 0: no line is
 * there; with `wait`, not for a while. -ENODATA: the end. -EMSGSIZE: a line
 * that is too long and is skipped. -EILSEQ, -EBADMSG: `what`. */
int  batch_in_next(struct batch_in *in, bool wait, const char **text,
                   size_t *bytes);

#endif

/* replace.h - write a file whole or not at all: aside first, then in its place.
 *
 *     replace_open -> { write to r->fd } -> [replace_publish -> { write }]
 *     -> replace_commit | replace_abort
 *
 * Until the commit the path holds what it held, or nothing; after it, all of
 * the new bytes. The file aside has no name where the file system can do that
 * (O_TMPFILE), so a killed process leaves nothing behind; elsewhere it is
 * .NAME.sluice-XXXXXXXX in the folder of the target, made by us (O_EXCL); of a
 * long NAME its beginning.
 *
 * Links    a symbolic link at `path` stays; the file it leads to is replaced,
 *          also when there is none yet.
 * Names    an open file that has none (/dev/fd/9 of one that was removed) is
 *          written in place.
 * Devices  what is no regular file (a pipe, /dev/stdout), or a file in a folder
 *          that may not be written, is written in place: r->in_place.
 * Threads  one caller an object.
 * Errors   a negative errno. After a failed open or commit nothing is left and
 *          the target is as it was.
 */
#ifndef IO_REPLACE_H
#define IO_REPLACE_H

#include <stdbool.h>
#include <sys/types.h>

struct replace {
    int    fd;       /* to write to, with read access; -1: closed */
    bool   in_place; /* there is nothing to rename */
    bool   unnamed;  /* O_TMPFILE */
    bool   published; /* it is in its place, and still open */
    mode_t mode;     /* permissions of the new file */
    char  *target;   /* links resolved; ours */
    char  *aside;    /* a name in the target's folder; ours */
};

/* For tests: a file aside with a name, as where O_TMPFILE fails. */
enum { REPLACE_NAMED = 1 << 30 };

/* `flags`: more for open(2), O_DIRECT for instance; O_NOFOLLOW: -ELOOP for a
 * link; REPLACE_NAMED. */
int  replace_open(struct replace *r, const char *path, int flags);
/* Put the file in its place now and go on writing to it: what a process that is
 * killed has written so far stays. On an error nothing has changed. */
int  replace_publish(struct replace *r);
/* Put the file in its place. With `sync` its bytes and its name are on the
 * drive before this returns. Closes either way. */
int  replace_commit(struct replace *r, bool sync);
/* Forget the new bytes. A file written in place or published keeps them. */
void replace_abort(struct replace *r);

#endif

#include "io/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40, TRIES = 16,
       KEPT_MAX = 200 /* of a name in the one aside, which is longer */ };

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Where the links at `path` lead, whether a file is there or not. */
static int resolve(char **out, const char *path)
{
    char *at = strdup(path);
    for (int i = 0; at && i < LINKS_MAX; i++) {
        char text[PATH_MAX];
        ssize_t n = readlink(at, text, sizeof text);
        if (n < 0) {
            *out = at;
            return 0;
        }
        if (n == sizeof text)
            break;
        text[n] = '\0';
        char *folder = folder_of(at), *next = NULL;
        if (text[0] == '/')
            next = strdup(text);
        else if (folder && asprintf(&next, "%s/%s", folder, text) < 0)
            next = NULL;
        free(folder);
        free(at);
        at = next;
    }
    int err = at ? -ELOOP : -ENOMEM;
    free(at);
    return err;
}

/* A name beside the target that nobody has. */
static int name_aside(struct replace *r)
{
    uint64_t random;
    free(r->aside);
    r->aside = NULL;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return -EIO;
    char *folder = folder_of(r->target);
    if (!folder || asprintf(&r->aside, "%s/.%.*s.sluice-%08x", folder,
                            KEPT_MAX, name_of(r->target),
                            (unsigned)random) < 0)
        r->aside = NULL;
    free(folder);
    return r->aside ? 0 : -ENOMEM;
}

static int open_named(struct replace *r, int flags)
{
    for (int i = 0; i < TRIES; i++) {
        int err = name_aside(r);
        if (err)
            return err;
        r->fd = open(r->aside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW |
                                   O_CLOEXEC | flags, r->mode);
        if (r->fd >= 0 || errno != EEXIST)
            return r->fd >= 0 ? 0 : -errno;
    }
    return -EEXIST;
}

static int open_unnamed(struct replace *r, int flags)
{
    if (access("/proc/self/fd", X_OK)) /* it could not be given a name */
        return -ENOTSUP;
    char *folder = folder_of(r->target);
    if (!folder)
        return -ENOMEM;
    r->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, r->mode);
    int err = r->fd < 0 ? -errno : 0;
    free(folder);
    r->unnamed = !err;
    return err;
}

static int open_in_place(struct replace *r, int flags, bool regular)
{
    r->in_place = true;
    r->fd = open(r->target, O_WRONLY | O_CLOEXEC | (regular ? O_TRUNC : 0) |
                                flags, r->mode);
    if (r->fd < 0)
        return -errno;
    /* What has come there since it was looked at is nobody's to write over. */
    struct stat st;
    if (fstat(r->fd, &st))
        return -errno;
    return S_ISREG(st.st_mode) == regular ? 0 : -ESTALE;
}

/* Of a name in /proc, for an open file that has no other name any more, the
 * link leads to it and its text, "NAME (deleted)", does not. */
static bool leads_elsewhere(const char *target, const struct stat *there)
{
    static const char end[] = " (deleted)";
    size_t n = strlen(target), m = sizeof end - 1;
    struct stat st;
    if (n < m || strcmp(target + n - m, end))
        return false;
    return stat(target, &st) || st.st_dev != there->st_dev ||
           st.st_ino != there->st_ino;
}

int replace_open(struct replace *r, const char *path, int flags)
{
    struct stat st;
    *r = (struct replace){ .fd = -1, .mode = 0666 };
    int err = resolve(&r->target, path);
    if (!err && flags & O_NOFOLLOW && strcmp(r->target, path))
        err = -ELOOP;
    flags &= ~O_NOFOLLOW;
    bool there = !err && !stat(path, &st);
    if (!err && there && S_ISDIR(st.st_mode))
        err = -EISDIR;
    else if (!err && there && !S_ISREG(st.st_mode))
        err = open_in_place(r, flags & ~REPLACE_NAMED, false);
    else if (!err && there && access(path, W_OK))
        err = -errno; /* a file that may not be written is not replaced */
    else if (!err && there && leads_elsewhere(r->target, &st)) {
        free(r->target);
        r->target = strdup(path);
        err = r->target ? open_in_place(r, flags & ~REPLACE_NAMED, true)
                        : -ENOMEM;
    } else if (!err) {
        if (there)
            r->mode = st.st_mode & 0777;
        int plain = flags & ~REPLACE_NAMED;
        err = flags == plain ? open_unnamed(r, plain) : -ENOTSUP;
        if (err && err != -ENOENT && err != -ENOSPC && err != -EDQUOT)
            err = open_named(r, plain);
        if ((err == -EACCES || err == -EPERM || err == -EROFS) && there)
            err = open_in_place(r, plain, true);
    }
    if (!err && there && !r->in_place)
        (void)!fchmod(r->fd, r->mode); /* past the umask; a convenience */
    if (err)
        replace_abort(r);
    return err;
}

/* Give the nameless file its name aside. */
static int link_aside(struct replace *r)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", r->fd);
    for (int i = 0; i < TRIES; i++) {
        int err = name_aside(r);
        if (err)
            return err;
        if (!linkat(AT_FDCWD, self, AT_FDCWD, r->aside, AT_SYMLINK_FOLLOW))
            return 0;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

static int sync_folder(const char *target)
{
    char *folder = folder_of(target);
    if (!folder)
        return -ENOMEM;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 ? -errno : 0;
    /* A file system that cannot sync a folder keeps names some other way. */
    if (!err && fsync(fd) && (errno == EIO || errno == ENOSPC))
        err = -errno;
    if (fd >= 0)
        close(fd);
    free(folder);
    return err;
}

static int sync_bytes(int fd)
{
    /* Anything else: the file system has no sync, and does what it can. */
    if (fsync(fd) && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        return -errno;
    return 0;
}

/* A name aside, which needs the open file. */
static int give_name(struct replace *r)
{
    int err = r->unnamed ? link_aside(r) : 0;
    r->unnamed &= err != 0;
    return err;
}

static int put_in_place(struct replace *r)
{
    if (r->in_place || r->published)
        return 0;
    if (rename(r->aside, r->target))
        return -errno;
    free(r->aside);
    r->aside = NULL;
    r->published = true;
    return 0;
}

int replace_publish(struct replace *r)
{
    int err = give_name(r);
    return err ? err : put_in_place(r);
}

int replace_commit(struct replace *r, bool sync)
{
    int err = sync ? sync_bytes(r->fd) : 0;
    if (!err)
        err = give_name(r);
    if (close(r->fd) && !err)
        err = -errno;
    r->fd = -1;
    if (!err)
        err = put_in_place(r);
    if (!err && !r->in_place && sync)
        err = sync_folder(r->target);
    replace_abort(r);
    return err;
}

void replace_abort(struct replace *r)
{
    if (r->fd >= 0)
        close(r->fd);
    if (r->aside && !r->unnamed)
        unlink(r->aside);
    free(r->aside);
    free(r->target);
    *r = (struct replace){ .fd = -1 };
}

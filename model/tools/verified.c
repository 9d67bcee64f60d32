#include "model/tools/verified.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ckpt/slurp.h"

#define FIRST_LINE "sluice verified, version 1\n"

enum { LIST_BYTES_MAX = 64 << 20, PIECES = 64, PIECE_BYTES = 64 << 10 };

struct verified {
    pthread_mutex_t lock;
    char *text; /* what the list had at open, or NULL */
    int   fd, code;
};

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A whole line at once, which appends as one. */
static void append(struct verified *l, const char *line)
{
    size_t length = strlen(line);
    ssize_t n;
    do
        n = write(l->fd, line, length);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)length)
        l->code = n < 0 ? -errno : -ENOSPC;
}

int verified_open(struct verified **out, const char *dir)
{
    char path[4096];
    size_t length = 0;
    struct verified *l = calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return -ENOMEM;
    pthread_mutex_init(&l->lock, NULL);
    snprintf(path, sizeof path, "%s/" VERIFIED_NAME, dir);
    l->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                 0666);
    l->code = l->fd < 0 ? -errno : 0;
    if (slurp_file(&l->text, &length, path, LIST_BYTES_MAX, NULL))
        l->text = NULL;
    if (l->text && !length && !l->code) {
        append(l, FIRST_LINE);
    } else if (!l->text ||
               strncmp(l->text, FIRST_LINE, strlen(FIRST_LINE))) {
        l->code = l->code ? l->code : -EEXIST; /* somebody else's */
        free(l->text);
        l->text = NULL;
    } else if (l->text[length - 1] != '\n' && !l->code) {
        append(l, "\n"); /* a line that was cut off ends here */
    }
    return 0;
}

int verified_close(struct verified *l)
{
    if (!l)
        return 0;
    int code = l->code;
    if (l->fd >= 0)
        close(l->fd);
    pthread_mutex_destroy(&l->lock);
    free(l->text);
    free(l);
    return code;
}

/* The digest of pieces spread evenly over a file. */
static int sample(const char *path, char hex[DIGEST_HEX])
{
    uint64_t size;
    struct digest *d = NULL;
    char *piece = malloc(PIECE_BYTES);
    int fd = slurp_open(path, &size, NULL);
    int err = fd < 0 ? fd : !piece ? -ENOMEM
                                   : digest_open(&d, DIGEST_SHA256, 0);
    uint64_t length = size < PIECE_BYTES ? size : PIECE_BYTES;
    for (uint64_t i = 0; !err && i < PIECES; i++) {
        uint64_t at = (size - length) / (PIECES - 1) * i;
        err = slurp_at(fd, piece, length, at, path, NULL);
        if (!err)
            digest_add(d, piece, length);
    }
    digest_end(d, hex);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    free(piece);
    return err ? err : hex[0] ? 0 : -EIO;
}

/* A line is "SHA256 SAMPLES BYTES SECONDS.NANOSECONDS NAME". */
bool verified_unchanged(const struct verified *l, const char *path,
                        char sha256[DIGEST_HEX])
{
    const char *name = base_of(path);
    char samples[DIGEST_HEX] = "", now[DIGEST_HEX];
    bool same = false;
    struct stat st;
    if (!l->text || stat(path, &st))
        return false;
    for (const char *line = l->text; line;) {
        char file[DIGEST_HEX], some[DIGEST_HEX];
        long long bytes, s, ns;
        int at = 0;
        const char *end = strchr(line, '\n');
        if (end &&
            sscanf(line, "%64[0-9a-f] %64[0-9a-f] %lld %lld.%9lld %n", file,
                   some, &bytes, &s, &ns, &at) == 5 && at &&
            strlen(name) == (size_t)(end - line - at) &&
            !memcmp(line + at, name, strlen(name))) {
            same = bytes == (long long)st.st_size &&
                   s == (long long)st.st_mtim.tv_sec &&
                   ns == (long long)st.st_mtim.tv_nsec;
            strcpy(sha256, file);
            strcpy(samples, some);
        }
        line = end ? end + 1 : NULL;
    }
    return same && !sample(path, now) && !strcmp(now, samples);
}

void verified_add(struct verified *l, const char *path, const struct stat *st,
                  const char *sha256)
{
    char samples[DIGEST_HEX], line[512];
    const char *name = base_of(path);
    if (l->code || strlen(name) > 255 || strchr(name, '\n') ||
        sample(path, samples))
        return;
    snprintf(line, sizeof line, "%s %s %lld %lld.%09ld %s\n", sha256, samples,
             (long long)st->st_size, (long long)st->st_mtim.tv_sec,
             st->st_mtim.tv_nsec, name);
    if (l->text && strstr(l->text, line)) /* read again, and the same */
        return;
    pthread_mutex_lock(&l->lock);
    append(l, line);
    pthread_mutex_unlock(&l->lock);
}

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/text/tok_internal.h"

static int read_all(char *to, size_t bytes, int fd)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, to + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -ENODATA;
        done += (size_t)got;
    }
    return 0;
}

int tok_file_read(char **out, size_t *bytes, const char *path, size_t max,
                  struct error *error)
{
    struct stat st;
    char *text = NULL;
    int err = 0;
    *out = NULL;
    /* Without O_NONBLOCK a fifo of this name would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0)
        err = error_set(error, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        err = error_set(error, -EBADMSG, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > max)
        err = error_set(error, -EBADMSG, "%s: %lld bytes, expected at most %zu",
                        path, (long long)st.st_size, max);
    if (!err) {
        *bytes = (size_t)st.st_size;
        text = malloc(*bytes + 1);
        err = text ? read_all(text, *bytes, fd) : -ENOMEM;
        if (err)
            error_set(error, err, "%s: %s", path, strerror(-err));
    }
    close(fd);
    if (err) {
        free(text);
        return err;
    }
    text[*bytes] = 0;
    *out = text;
    return 0;
}

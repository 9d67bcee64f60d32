#include "model/ckpt/slurp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int slurp_open(const char *path, uint64_t *size_bytes, struct error *error)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    struct stat st;
    int code = 0;
    if (fstat(fd, &st))
        code = error_set(error, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = error_set(error, -EBADMSG, "%s: not a regular file", path);
    if (code) {
        close(fd);
        return code;
    }
    *size_bytes = (uint64_t)st.st_size;
    return fd;
}

enum { AGAIN_MAX = 1000 };

int slurp_at(int fd, void *target, size_t length, uint64_t offset,
             const char *path, struct error *error)
{
    char *to = target;
    uint32_t again = 0; /* refusals in a row that are no failures */
    while (length) {
        ssize_t got = pread(fd, to, length, (off_t)offset);
        if (got < 0 && (errno == EINTR || errno == EAGAIN) &&
            ++again < AGAIN_MAX)
            continue;
        if (got < 0)
            return error_set(error, -errno, "%s: reading at offset %llu: %s",
                             path, (unsigned long long)offset, strerror(errno));
        if (got == 0)
            return error_set(error, -ENODATA,
                             "%s: the file ends at offset %llu", path,
                             (unsigned long long)offset);
        again = 0;
        to += got;
        length -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int slurp_file(char **out, size_t *length, const char *path, size_t limit_bytes,
               struct error *error)
{
    uint64_t size;
    *out = NULL;
    int fd = slurp_open(path, &size, error);
    if (fd < 0)
        return fd;
    int code = 0;
    char *text = NULL;
    if (size > limit_bytes)
        code = error_set(error, -EBADMSG,
                         "%s: has %llu bytes, more than the %zu allowed", path,
                         (unsigned long long)size, limit_bytes);
    else if (!(text = malloc((size_t)size + 1)))
        code = error_set(error, -ENOMEM, "%s: no memory for %llu bytes", path,
                         (unsigned long long)size);
    else
        code = slurp_at(fd, text, (size_t)size, 0, path, error);
    close(fd);
    if (code) {
        free(text);
        return code;
    }
    text[size] = 0;
    *out = text;
    *length = (size_t)size;
    return 0;
}

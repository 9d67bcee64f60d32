#include "model/slurp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int slurp_open(const char *path, uint64_t *size_bytes, struct why *why)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return why_set(why, -errno, "%s: %s", path, strerror(errno));
    struct stat st;
    int error = 0;
    if (fstat(fd, &st))
        error = why_set(why, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        error = why_set(why, -EBADMSG, "%s: not a regular file", path);
    if (error) {
        close(fd);
        return error;
    }
    *size_bytes = (uint64_t)st.st_size;
    return fd;
}

int slurp_at(int fd, void *target, size_t length, uint64_t offset,
             const char *path, struct why *why)
{
    char *to = target;
    while (length) {
        ssize_t got = pread(fd, to, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return why_set(why, -errno, "%s: reading at offset %llu: %s", path,
                           (unsigned long long)offset, strerror(errno));
        if (got == 0)
            return why_set(why, -ENODATA, "%s: the file ends at offset %llu",
                           path, (unsigned long long)offset);
        to += got;
        length -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int slurp_file(char **out, size_t *length, const char *path, size_t limit_bytes,
               struct why *why)
{
    uint64_t size;
    *out = NULL;
    int fd = slurp_open(path, &size, why);
    if (fd < 0)
        return fd;
    int error = 0;
    char *text = NULL;
    if (size > limit_bytes)
        error = why_set(why, -EBADMSG,
                        "%s: has %llu bytes, more than the %zu allowed", path,
                        (unsigned long long)size, limit_bytes);
    else if (!(text = malloc((size_t)size + 1)))
        error = why_set(why, -ENOMEM, "%s: no memory for %llu bytes", path,
                        (unsigned long long)size);
    else
        error = slurp_at(fd, text, (size_t)size, 0, path, why);
    close(fd);
    if (error) {
        free(text);
        return error;
    }
    text[size] = 0;
    *out = text;
    *length = (size_t)size;
    return 0;
}

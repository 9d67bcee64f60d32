#include "model/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/host.h"
#include "model/ckpt/figure.h"

uint64_t memory_peak_rss(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *peak = strstr(text, "\nVmHWM:");
    return peak ? strtoull(peak + 7, NULL, 10) * 1024 : 0;
}

uint64_t memory_default(void)
{
    struct host host;
    host_read(&host, "");
    return host_budget(&host);
}

int memory_fits(uint64_t bytes, struct error *error)
{
    struct host host;
    host_read(&host, "");
    bool grouped = host.group_bytes < host.machine_bytes;
    uint64_t max = grouped ? host.group_bytes : host.machine_bytes;
    if (bytes <= max)
        return 0;
    return error_set(error, -ENOMEM,
                     "the plan takes %" PRIu64 " bytes of memory "
                     "(%s GiB), %s has %" PRIu64 " (%s GiB) free%s%s",
                     bytes, figure((double)bytes / 0x1p30).text,
                     grouped ? "the cgroup" : "the machine", max,
                     figure((double)max / 0x1p30).text, grouped ? ", by " : "",
                     host.group_file);
}

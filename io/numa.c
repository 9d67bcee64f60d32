#include "io/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define TEXT_BYTES 4096
#define INTERLEAVE 3 /* MPOL_INTERLEAVE of <linux/mempolicy.h> */

static int read_text(char *text, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, TEXT_BYTES - 1);
    int err = n < 0 ? -errno : 0;
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return err;
}

/* One number and what follows it; -1 if there is none below `limit`. */
static long number(const char **at, uint32_t limit)
{
    char *end;
    if (**at < '0' || **at > '9')
        return -1;
    errno = 0;
    unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    return errno || n >= limit ? -1 : (long)n;
}

int numa_parse_list(uint64_t *mask, uint32_t bits, const char *text)
{
    memset(mask, 0, (bits + 63) / 64 * sizeof *mask);
    while (*text && *text != '\n') {
        long first = number(&text, bits), last = first;
        if (first >= 0 && *text == '-') {
            text++;
            last = number(&text, bits);
        }
        if (first < 0 || last < first)
            return -EINVAL;
        for (long i = first; i <= last; i++)
            mask[i / 64] |= (uint64_t)1 << (i % 64);
        if (*text == ',')
            text++;
        else if (*text && *text != '\n')
            return -EINVAL;
    }
    return 0;
}

uint64_t numa_memory_nodes(void)
{
    char text[TEXT_BYTES];
    uint64_t nodes = 0;
    if (read_text(text, "/sys/devices/system/node/has_memory") < 0 ||
        numa_parse_list(&nodes, NUMA_NODES_MAX, text) < 0 || !nodes)
        return 1;
    return nodes;
}

uint32_t numa_count(uint64_t nodes)
{
    return (uint32_t)__builtin_popcountll(nodes);
}

int numa_interleave(void *base, size_t bytes, uint64_t nodes)
{
    if (numa_count(nodes) < 2)
        return 0;
    /* The kernel reads one bit less than it is told. */
    if (syscall(SYS_mbind, base, bytes, INTERLEAVE, &nodes,
                (unsigned long)NUMA_NODES_MAX + 1, 0) < 0)
        return -errno;
    return 0;
}

int numa_of_device(dev_t dev)
{
    /* A partition has no device of its own, its disk has; NVMe namespaces
     * hang one level below the controller that knows the node. */
    static const char *const places[] = {
        "device/numa_node",
        "device/device/numa_node",
        "../device/numa_node",
        "../device/device/numa_node",
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[128], text[TEXT_BYTES];
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s", major(dev),
                 minor(dev), places[i]);
        if (read_text(text, path) == 0)
            return (int)strtol(text, NULL, 10);
    }
    return -1;
}

int numa_run_on(int node)
{
    char path[80], text[TEXT_BYTES];
    uint64_t mask[NUMA_CPUS_MAX / 64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist",
             node);
    int err = read_text(text, path);
    if (err == 0)
        err = numa_parse_list(mask, NUMA_CPUS_MAX, text);
    if (err < 0)
        return err;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < NUMA_CPUS_MAX && i < CPU_SETSIZE; i++)
        if (mask[i / 64] >> (i % 64) & 1)
            CPU_SET(i, &set);
    return sched_setaffinity(0, sizeof set, &set) < 0 ? -errno : 0;
}

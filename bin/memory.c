#include "bin/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVE_SHARE = 16 };
static const uint64_t reserve_least = 256ull << 20;

/* The number after `key` in a file of "key number" lines, in its own unit. */
static uint64_t field(const char *path, const char *key)
{
    char line[256];
    uint64_t value = UINT64_MAX;
    FILE *f = fopen(path, "r");
    if (!f)
        return value;
    size_t length = strlen(key);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, length)) {
            value = strtoull(line + length, NULL, 10);
            break;
        }
    fclose(f);
    return value;
}

uint64_t memory_machine_free(void)
{
    uint64_t kib = field("/proc/meminfo", "MemAvailable:");
    return kib == UINT64_MAX ? kib : kib * 1024;
}

uint64_t memory_peak_rss(void)
{
    uint64_t kib = field("/proc/self/status", "VmHWM:");
    return kib == UINT64_MAX ? 0 : kib * 1024;
}

/* A file that holds one number, or "max". */
static uint64_t number(const char *directory, const char *name)
{
    char path[4096], text[64] = "";
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "r");
    if (!f)
        return UINT64_MAX;
    char *got = fgets(text, sizeof text, f);
    fclose(f);
    if (!got || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

static uint64_t less(uint64_t limit, uint64_t used)
{
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

/* What a version of cgroups calls its files, and in memory.stat the page cache:
 * the kernel gives that back before it says that the limit is reached, and a
 * download of the model leaves a group full of it. */
struct names {
    const char *mount, *limit, *used, *cache[2];
};
static const struct names first_version = {
    "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
    { "total_inactive_file ", "total_active_file " } };
static const struct names second_version = {
    "/sys/fs/cgroup", "memory.max", "memory.current",
    { "inactive_file ", "active_file " } };

static uint64_t group_used(const char *directory, const struct names *names)
{
    char path[4096 + 16];
    snprintf(path, sizeof path, "%s/memory.stat", directory);
    uint64_t used = number(directory, names->used);
    for (int i = 0; i < 2 && used != UINT64_MAX; i++) {
        uint64_t cache = field(path, names->cache[i]);
        if (cache != UINT64_MAX)
            used = used > cache ? used - cache : 0;
    }
    return used;
}

/* The tightest limit from a group up to its root. */
static uint64_t group_free(char *group, const struct names *names)
{
    uint64_t most = UINT64_MAX;
    for (;;) {
        char path[4096];
        snprintf(path, sizeof path, "%s%s", names->mount, group);
        uint64_t left = less(number(path, names->limit),
                             group_used(path, names));
        most = left < most ? left : most;
        char *slash = strrchr(group, '/');
        if (!slash || !group[0])
            return most;
        *slash = 0;
    }
}

uint64_t memory_cgroup_free(void)
{
    char line[4096];
    uint64_t most = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f)
        return most;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        uint64_t left = UINT64_MAX;
        if (!controllers[1])
            left = group_free(group, &second_version);
        else if (strstr(controllers + 1, "memory"))
            left = group_free(group, &first_version);
        most = left < most ? left : most;
    }
    fclose(f);
    return most;
}

uint64_t memory_default(void)
{
    uint64_t machine = memory_machine_free(), group = memory_cgroup_free();
    uint64_t free_bytes = machine < group ? machine : group;
    if (free_bytes == UINT64_MAX)
        return 0;
    uint64_t reserve = free_bytes / RESERVE_SHARE;
    reserve = reserve > reserve_least ? reserve : reserve_least;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

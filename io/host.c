#include "io/host.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    TEXT_MAX = 4 << 20,
    GROUP_MARGIN_SHARE = 256,
    RESERVE_SHARE = 16,
    TASKS_SPARE = 16, /* threads that are not of the team, of the kernel too */
};
#define GROUP_MARGIN_BYTES (8ull << 20)
#define RESERVE_MIN_BYTES  (256ull << 20)
#define BUDGET_MIN_BYTES   (16ull << 20)
#define BUDGET_UNKNOWN     (1ull << 30)
#define NO_LIMIT_FROM      (1ull << 62) /* version 1 writes a huge number */

/* ---- files ---- */

/* The whole text of a small file, for free(), or NULL. */
static char *read_text(const char *root, const char *file)
{
    char path[PATH_BYTES];
    size_t size = 4096, length = 0;
    int n = snprintf(path, sizeof path, "%s%s", root, file);
    if (n < 0 || n >= (int)sizeof path)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = malloc(size);
    ssize_t got = 0;
    while (text && (got = read(fd, text + length, size - length - 1)) > 0) {
        length += (size_t)got;
        if (length + 1 < size)
            continue;
        char *more = size < TEXT_MAX ? realloc(text, size * 2) : NULL;
        if (!more)
            break;
        text = more;
        size *= 2;
    }
    close(fd);
    if (text && (got < 0 || !length)) {
        free(text);
        return NULL;
    }
    if (text)
        text[length] = 0;
    return text;
}

/* The number after `key` at the beginning of a line; UINT64_MAX without. */
static uint64_t field(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line;) {
        if (!strncmp(line, key, length))
            return strtoull(line + length, NULL, 10);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return UINT64_MAX;
}

/* A file that holds one number; UINT64_MAX without, or for "max". */
static uint64_t number(const char *root, const char *group, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", group, name);
    char *text = read_text(root, path);
    uint64_t value = UINT64_MAX;
    if (text && text[0] >= '0' && text[0] <= '9')
        value = strtoull(text, NULL, 10);
    free(text);
    return value < NO_LIMIT_FROM ? value : UINT64_MAX;
}

/* ---- one level of one group ---- */

static void name_file(char out[HOST_FILE_BYTES], const char *group,
                      const char *name)
{
    snprintf(out, HOST_FILE_BYTES, "%.440s/%s", group, name);
}

struct memory_names {
    const char *limit, *used;
};
static const struct memory_names memory_names[] = {
    { "memory.max", "memory.current" },
    { "memory.high", "memory.current" },
    { "memory.limit_in_bytes", "memory.usage_in_bytes" },
    { "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes" },
};
/* What the kernel gives back before it says that a limit is reached. */
static const char *const given_back[] = {
    "total_inactive_file ", "total_active_file ", /* version 1 */
    "inactive_file ", "active_file ", "slab_reclaimable ",
};

static uint64_t cache_of(const char *root, const char *group)
{
    char path[PATH_BYTES];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "%s/memory.stat", group);
    char *text = read_text(root, path);
    size_t names = sizeof given_back / sizeof *given_back;
    size_t first = field(text, given_back[0]) == UINT64_MAX ? 2 : 0;
    for (size_t i = first; i < (first ? names : 2); i++) {
        uint64_t bytes = field(text, given_back[i]);
        sum += bytes == UINT64_MAX ? 0 : bytes;
    }
    free(text);
    return sum;
}

static void take_memory(struct host *l, const char *root, const char *group)
{
    for (size_t i = 0; i < sizeof memory_names / sizeof *memory_names; i++) {
        const struct memory_names *n = &memory_names[i];
        uint64_t limit = number(root, group, n->limit);
        uint64_t used = number(root, group, n->used);
        if (limit == UINT64_MAX || used == UINT64_MAX)
            continue;
        uint64_t cache = cache_of(root, group);
        used -= cache < used ? cache : used;
        uint64_t left = limit > used ? limit - used : 0;
        uint64_t margin = GROUP_MARGIN_BYTES + left / GROUP_MARGIN_SHARE;
        left -= margin < left ? margin : left;
        if (left < l->group_bytes) {
            l->group_bytes = left;
            name_file(l->group_file, group, n->limit);
        }
    }
}

static void take_quota(struct host *l, double quota, double period,
                       const char *group, const char *name)
{
    if (!(quota > 0) || !(period > 0))
        return;
    double cpus = quota / period;
    if (l->cpus > 0 && cpus >= l->cpus)
        return;
    l->cpus = cpus;
    name_file(l->cpus_file, group, name);
}

static void take_cpus(struct host *l, const char *root, const char *group)
{
    char path[PATH_BYTES];
    uint64_t quota = number(root, group, "cpu.cfs_quota_us");
    uint64_t period = number(root, group, "cpu.cfs_period_us");
    if (quota != UINT64_MAX && period != UINT64_MAX)
        take_quota(l, (double)quota, (double)period, group,
                   "cpu.cfs_quota_us");
    snprintf(path, sizeof path, "%s/cpu.max", group);
    char *text = read_text(root, path);
    unsigned long long a, b;
    if (text && text[0] >= '0' && text[0] <= '9' &&
        sscanf(text, "%llu %llu", &a, &b) == 2)
        take_quota(l, (double)a, (double)b, group, "cpu.max");
    free(text);
}

static void take_tasks(struct host *l, const char *root, const char *group)
{
    uint64_t limit = number(root, group, "pids.max");
    uint64_t used = number(root, group, "pids.current");
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return;
    uint64_t left = limit > used ? limit - used : 0;
    if (left >= l->tasks)
        return;
    l->tasks = left;
    name_file(l->tasks_file, group, "pids.max");
}

/* ---- where a group is ---- */

/* One field up to a blank; mountinfo writes blanks in names as \040. */
static const char *take_field(char *out, size_t size, const char *s)
{
    size_t n = 0;
    while (*s && *s != ' ' && *s != '\n') {
        unsigned value;
        char c = *s++;
        if (c == '\\' && sscanf(s, "%3o", &value) == 1 && strlen(s) >= 3) {
            c = (char)value;
            s += 3;
        }
        if (n + 1 < size)
            out[n++] = c;
    }
    out[n] = 0;
    return *s == ' ' ? s + 1 : s;
}

/* Is `word` one of a list with commas that ends at `end`? */
static bool has_word(const char *list, const char *end, const char *word)
{
    size_t length = strlen(word);
    for (const char *s = list; s < end;) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        comma = comma ? comma : end;
        if ((size_t)(comma - s) == length && !memcmp(s, word, length))
            return true;
        s = comma + 1;
    }
    return false;
}

struct mount {
    char top[PATH_BYTES];   /* the group that is mounted */
    char point[PATH_BYTES]; /* and where */
};

/* Where the hierarchy of a controller is mounted; NULL asks for version 2. The
 * usual place if mountinfo does not tell. */
static void find_mount(struct mount *m, const char *mountinfo,
                       const char *controller)
{
    strcpy(m->top, "/");
    snprintf(m->point, sizeof m->point, "/sys/fs/cgroup%s%s",
             controller ? "/" : "", controller ? controller : "");
    for (const char *line = mountinfo; line && *line;) {
        const char *end = strchrnul(line, '\n');
        const char *dash = strstr(line, " - ");
        if (dash && dash < end) {
            char type[32], source[64], skipped[64];
            const char *s = take_field(type, sizeof type, dash + 3);
            s = take_field(source, sizeof source, s);
            if (controller ? !strcmp(type, "cgroup") &&
                                 has_word(s, end, controller)
                           : !strcmp(type, "cgroup2")) {
                s = line;
                for (int i = 0; i < 3; i++)
                    s = take_field(skipped, sizeof skipped, s);
                s = take_field(m->top, sizeof m->top, s);
                take_field(m->point, sizeof m->point, s);
                return;
            }
        }
        line = *end ? end + 1 : NULL;
    }
}

typedef void take_fn(struct host *l, const char *root, const char *group);

/* A group and every one above it that can be seen. `group` as in
 * /proc/self/cgroup: from the top of the hierarchy, which need not be what is
 * mounted. */
static void climb(struct host *l, const char *root, const struct mount *m,
                  const char *group, take_fn *const take[])
{
    char path[2 * PATH_BYTES];
    size_t top = strcmp(m->top, "/") ? strlen(m->top) : 0;
    bool below = !strncmp(group, m->top, top) &&
                 (!group[top] || group[top] == '/') && !strstr(group, "/..");
    snprintf(path, sizeof path, "%s%s", m->point, below ? group + top : "");
    size_t floor = strlen(m->point);
    for (;;) {
        for (int i = 0; take[i]; i++)
            take[i](l, root, path);
        char *slash = strrchr(path + floor, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

static void read_groups(struct host *l, const char *root)
{
    static const struct {
        const char *controller; /* NULL: version 2 */
        take_fn    *take[4];
    } kinds[] = {
        { NULL, { take_memory, take_cpus, take_tasks, NULL } },
        { "memory", { take_memory, NULL } },
        { "cpu", { take_cpus, NULL } },
        { "pids", { take_tasks, NULL } },
    };
    char *groups = read_text(root, "/proc/self/cgroup");
    char *mounts = read_text(root, "/proc/self/mountinfo");
    struct mount *m = malloc(sizeof *m);
    char *rest = groups;
    for (char *line; m && (line = strsep(&rest, "\n"));) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || strlen(group) >= PATH_BYTES)
            continue;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            const char *wanted = kinds[i].controller;
            if (wanted ? !has_word(controllers + 1, group, wanted)
                       : controllers + 1 != group)
                continue;
            find_mount(m, mounts, wanted);
            climb(l, root, m, group + 1, kinds[i].take);
        }
    }
    free(m);
    free(mounts);
    free(groups);
}

/* ---- the machine ---- */

/* ZFS keeps its cache where the kernel does not count it as free, and gives it
 * back down to a minimum. */
static uint64_t zfs_cache(const char *root)
{
    char *text = read_text(root, "/proc/spl/kstat/zfs/arcstats");
    uint64_t value[2] = { 0, 0 };
    static const char *const names[] = { "size ", "c_min " };
    for (const char *line = text; line && *line;) {
        unsigned long long number_of;
        for (int i = 0; i < 2; i++)
            if (!strncmp(line, names[i], strlen(names[i])) &&
                sscanf(line + strlen(names[i]), "%*u %llu", &number_of) == 1)
                value[i] = number_of;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    free(text);
    return value[0] > value[1] ? value[0] - value[1] : 0;
}

/* Without overcommitment, what may still be promised; UINT64_MAX with it. */
static uint64_t commit_left(const char *root, const char *meminfo)
{
    uint64_t mode = number(root, "/proc/sys/vm", "overcommit_memory");
    uint64_t limit = field(meminfo, "CommitLimit:");
    uint64_t used = field(meminfo, "Committed_AS:");
    if (mode != 2 || limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return limit > used ? (limit - used) * 1024 : 0;
}

static void read_machine(struct host *l, const char *root)
{
    struct sysinfo info;
    char *text = read_text(root, "/proc/meminfo");
    uint64_t kib = field(text, "MemAvailable:");
    if (kib != UINT64_MAX)
        l->machine_bytes = kib * 1024;
    else if (!root[0] && !sysinfo(&info))
        l->machine_bytes = (uint64_t)(info.freeram + info.bufferram) *
                           info.mem_unit;
    if (l->machine_bytes != UINT64_MAX) {
        l->zfs_bytes = zfs_cache(root);
        l->machine_bytes += l->zfs_bytes;
        uint64_t commit = commit_left(root, text);
        if (commit < l->machine_bytes)
            l->machine_bytes = commit;
    }
    free(text);
}

void host_read(struct host *out, const char *root)
{
    *out = (struct host){ .machine_bytes = UINT64_MAX,
                            .group_bytes = UINT64_MAX, .tasks = UINT64_MAX };
    read_machine(out, root);
    read_groups(out, root);
}

/* ---- what follows ---- */

uint64_t host_budget(const struct host *l)
{
    uint64_t machine = l->machine_bytes, group = l->group_bytes;
    if (machine == UINT64_MAX && group == UINT64_MAX)
        return BUDGET_UNKNOWN;
    if (machine != UINT64_MAX) {
        uint64_t reserve = machine / RESERVE_SHARE;
        reserve = reserve > RESERVE_MIN_BYTES ? reserve : RESERVE_MIN_BYTES;
        reserve = reserve < machine / 2 ? reserve : machine / 2;
        machine -= reserve;
    }
    if (group != UINT64_MAX)
        group -= group / RESERVE_SHARE;
    uint64_t budget = machine < group ? machine : group;
    return budget > BUDGET_MIN_BYTES ? budget : BUDGET_MIN_BYTES;
}

uint32_t host_threads(const struct host *l, uint32_t threads)
{
    uint64_t max = threads;
    if (l->cpus > 0 && l->cpus < (double)max)
        max = (uint64_t)l->cpus;
    if (l->tasks != UINT64_MAX) {
        uint64_t tasks = l->tasks > TASKS_SPARE ? l->tasks - TASKS_SPARE : 1;
        max = tasks < max ? tasks : max;
    }
    return max > 1 ? (uint32_t)max : 1;
}

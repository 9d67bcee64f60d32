/* doctor_system.c - what the machine, the kernel and its limits allow. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bin/doctor.h"
#include "bin/memory.h"
#include "compute/kern.h"
#include "compute/team.h"
#include "io/arena.h"
#include "io/numa.h"
#include "io/reader.h"

enum { FILES_SPARE = 64, PUBLISHED_FILES = 96, CAP_IPC_LOCK_BIT = 14 };

#define TRY_BYTES (64ull << 20) /* of arena, to see what is granted */
#define HUGE_SHARE 0.95
#define GIB 0x1p30
#define UNLOCK \
    "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit " \
    "memlock=-1)"

/* The program itself is a file that is there to be read. */
static const char *const self[] = { "/proc/self/exe" };

static void check_kernel(struct doctor *d)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    uname(&u);
    sscanf(u.release, "%u.%u", &major, &minor);
    if (major < 5 || (major == 5 && minor < 1))
        doctor_add(d, DOCTOR_WARN, "kernel", "install a kernel from 6.1 on",
                   "%s %s has no io_uring", u.release, u.machine);
    else if (major < 6 || (major == 6 && minor < 1))
        doctor_add(d, DOCTOR_WARN, "kernel", "install a kernel from 6.1 on",
                   "%s %s: completions interrupt, a little more CPU",
                   u.release, u.machine);
    else
        doctor_add(d, DOCTOR_OK, "kernel", NULL, "%s %s", u.release,
                   u.machine);
}

static bool filtered(void)
{
    char line[256];
    bool yes = false;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        yes |= !strncmp(line, "Seccomp:\t2", 10);
    if (f)
        fclose(f);
    return yes;
}

static void uring_refused(struct doctor *d, int err)
{
    char disabled[16];
    doctor_read(disabled, sizeof disabled,
                "/proc/sys/kernel/io_uring_disabled");
    const char *text = strerror(-err);
    if (err == -ENOMEM) /* newer kernels count rings as locked memory */
        doctor_add(d, DOCTOR_WARN, "io_uring", UNLOCK,
                   "refused (%s): locked memory is too small for a ring; "
                   "threads read instead, at two to three times the CPU",
                   text);
    else if (disabled[0] && strcmp(disabled, "0"))
        doctor_add(d, DOCTOR_WARN, "io_uring",
                   "sudo sysctl -w kernel.io_uring_disabled=0",
                   "refused (%s): kernel.io_uring_disabled is %s; threads "
                   "read instead, at two to three times the CPU", text,
                   disabled);
    else if (filtered())
        doctor_add(d, DOCTOR_WARN, "io_uring",
                   "docker run --security-opt seccomp=unconfined ... (or a "
                   "profile that allows io_uring_setup, _enter, _register)",
                   "refused (%s): a seccomp filter is on this process; "
                   "threads read instead, at two to three times the CPU",
                   text);
    else
        doctor_add(d, DOCTOR_WARN, "io_uring", "dmesg | tail",
                   "refused (%s): threads read instead, at two to three "
                   "times the CPU", text);
}

static bool may_lock(void)
{
    char line[256];
    uint64_t caps = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "CapEff:", 7))
            caps = strtoull(line + 7, NULL, 16);
    if (f)
        fclose(f);
    return caps >> CAP_IPC_LOCK_BIT & 1;
}

static void check_memlock(struct doctor *d, bool registered)
{
    struct rlimit lim;
    getrlimit(RLIMIT_MEMLOCK, &lim);
    bool all = may_lock() || lim.rlim_cur == RLIM_INFINITY ||
               lim.rlim_cur >= d->budget_bytes;
    char limit[48];
    if (lim.rlim_cur == RLIM_INFINITY)
        snprintf(limit, sizeof limit, "unlimited");
    else
        snprintf(limit, sizeof limit, "%" PRIu64 " KiB",
                 (uint64_t)lim.rlim_cur >> 10);
    if (registered && all)
        doctor_add(d, DOCTOR_OK, "memlock", NULL,
                   "registered buffers granted; the limit is %s%s", limit,
                   may_lock() ? ", and this user is above it" : "");
    else
        doctor_add(d, DOCTOR_WARN, "memlock", UNLOCK,
                   "the limit of %s is below the %.1f GiB a run would "
                   "register: unregistered buffers, a little more CPU", limit,
                   (double)d->budget_bytes / GIB);
}

static void check_huge(struct doctor *d, const struct arena_facts *f)
{
    char mode[64];
    doctor_read(mode, sizeof mode,
                "/sys/kernel/mm/transparent_hugepage/enabled");
    if (f->huge_page_share >= HUGE_SHARE)
        doctor_add(d, DOCTOR_OK, "huge pages", NULL,
                   "%.0f %% of a trial arena; mode %s",
                   100 * f->huge_page_share, mode);
    else if (strstr(mode, "[never]") || !mode[0])
        doctor_add(d, DOCTOR_WARN, "huge pages",
                   "echo madvise | sudo tee "
                   "/sys/kernel/mm/transparent_hugepage/enabled",
                   "refused, mode %s: reads may take twice as long",
                   mode[0] ? mode : "unknown");
    else
        doctor_add(d, DOCTOR_WARN, "huge pages",
                   "echo 1 | sudo tee /proc/sys/vm/compact_memory",
                   "only %.0f %% of a trial arena, mode %s: memory is "
                   "fragmented or short", 100 * f->huge_page_share, mode);
}

static void check_numa(struct doctor *d, const struct arena_facts *f)
{
    uint32_t nodes = numa_count(numa_memory_nodes());
    if (f->nodes < nodes)
        doctor_add(d, DOCTOR_WARN, "NUMA", "numactl --interleave=all sluice "
                   "run ...", "%u nodes, memory was refused on all but %u",
                   nodes, f->nodes);
    else
        doctor_add(d, DOCTOR_OK, "NUMA", NULL, nodes > 1 ?
                   "%u nodes, memory is spread over them" : "%u node",
                   nodes);
}

/* One trial of what every run begins with: an arena, a ring, registration. */
static void check_ring(struct doctor *d)
{
    struct arena *arena;
    struct arena_facts af;
    struct reader *r;
    struct reader_facts rf;
    uint32_t bad;
    int err = arena_open(&arena, TRY_BYTES);
    if (err) {
        doctor_add(d, DOCTOR_FAIL, "arena", "free -h; ulimit -v unlimited",
                   "64 MiB of memory were refused: %s", strerror(-err));
        return;
    }
    arena_facts(arena, &af);
    struct reader_options o = {
        .method = "uring", .paths = self, .files = 1, .arena = arena,
        .in_flight_bytes = 1 << 20,
    };
    err = reader_open(&r, &o, &bad);
    if (err) {
        uring_refused(d, err);
        if (err == -ENOMEM)
            check_memlock(d, false);
    } else {
        reader_facts(r, &rf);
        doctor_add(d, DOCTOR_OK, "io_uring", NULL, "reads; %s", rf.setup);
        check_memlock(d, rf.registered_buffers);
        reader_close(r);
    }
    check_huge(d, &af);
    check_numa(d, &af);
    arena_close(arena);
}

static void check_cpu(struct doctor *d)
{
    char line[256], *name = NULL;
    enum isa isa = kern_init(ISA_COUNT - 1);
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !name && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            name = strchr(line, ':') + 2;
            name[strcspn(name, "\n")] = 0;
        }
    if (f)
        fclose(f);
    name = name ? name : "unknown processor";
    if (isa == ISA_REF)
        doctor_add(d, DOCTOR_WARN, "CPU", NULL,
                   "%s: reference kernels, several times slower than AVX2",
                   name);
    else
        doctor_add(d, DOCTOR_OK, "CPU", NULL, "%s, %s kernels", name,
                   isa_name(isa));
}

/* Processors that the cgroups' quotas are worth; 0: no quota. */
static double cpu_quota(void)
{
    char line[4096], path[4200], text[64];
    double least = 0;
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        long long quota = -1, period = 0;
        line[strcspn(line, "\n")] = 0;
        char *group = strrchr(line, ':');
        if (!strncmp(line, "0::", 3)) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max",
                     group + 1);
            doctor_read(text, sizeof text, path);
            if (sscanf(text, "%lld %lld", &quota, &period) != 2)
                quota = -1;
        } else if (group && (strstr(line, ":cpu:") || strstr(line, "cpu,"))) {
            snprintf(path, sizeof path,
                     "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", group + 1);
            doctor_read(text, sizeof text, path);
            quota = text[0] ? atoll(text) : -1;
            snprintf(path, sizeof path,
                     "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", group + 1);
            doctor_read(text, sizeof text, path);
            period = atoll(text);
        }
        double cpus = quota > 0 && period > 0 ? (double)quota /
                                                    (double)period : 0;
        least = cpus > 0 && (least == 0 || cpus < least) ? cpus : least;
    }
    if (f)
        fclose(f);
    return least;
}

static void check_cores(struct doctor *d)
{
    cpu_set_t *set = CPU_ALLOC(TEAM_THREADS_MAX);
    size_t size = CPU_ALLOC_SIZE(TEAM_THREADS_MAX);
    struct team *team;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int allowed = set && !sched_getaffinity(0, size, set)
                      ? CPU_COUNT_S(size, set)
                      : (int)online;
    CPU_FREE(set);
    d->threads = 1;
    if (!team_open(&team, 0)) {
        d->threads = team_threads(team);
        team_close(team);
    }
    double quota = cpu_quota();
    char fix[64];
    snprintf(fix, sizeof fix, "sluice run -t %.0f ...", quota < 1 ? 1 : quota);
    if (quota > 0 && quota < d->threads)
        doctor_add(d, DOCTOR_WARN, "cores", fix,
                   "%u threads, but the cgroup's quota is %.1f processors: "
                   "they would be stopped in mid-work", d->threads, quota);
    else if (allowed < online)
        doctor_add(d, DOCTOR_WARN, "cores", "taskset -pc 0-N $$, or the "
                   "cpuset of the container",
                   "%u threads; only %d of %ld processors are allowed here",
                   d->threads, allowed, online);
    else
        doctor_add(d, DOCTOR_OK, "cores", NULL,
                   "%u threads on %d processors", d->threads, allowed);
}

static void check_memory(struct doctor *d)
{
    uint64_t machine = memory_machine_free(), group = memory_cgroup_free();
    d->budget_bytes = memory_default();
    char limit[96] = "no cgroup limit";
    if (group < machine)
        snprintf(limit, sizeof limit, "its cgroup allows %.2f GiB",
                 (double)group / GIB);
    doctor_add(d, DOCTOR_OK, "memory", NULL,
               "%.2f GiB free, %s; a run without -m takes %.2f GiB",
               (double)machine / GIB, limit, (double)d->budget_bytes / GIB);
}

static void check_files(struct doctor *d)
{
    struct rlimit lim;
    getrlimit(RLIMIT_NOFILE, &lim);
    uint64_t need = PUBLISHED_FILES + FILES_SPARE;
    if (lim.rlim_max < need)
        doctor_add(d, DOCTOR_FAIL, "open files",
                   "ulimit -n 4096 (as root; docker: --ulimit nofile=4096)",
                   "at most %" PRIu64 ", the published model needs %" PRIu64,
                   (uint64_t)lim.rlim_max, need);
    else
        doctor_add(d, DOCTOR_OK, "open files", NULL, "up to %" PRIu64,
                   (uint64_t)lim.rlim_max);
}

void doctor_system(struct doctor *d)
{
    check_kernel(d);
    check_memory(d);
    check_ring(d);
    check_cpu(d);
    check_cores(d);
    check_files(d);
}

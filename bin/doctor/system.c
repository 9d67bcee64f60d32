/* system.c - what the machine, the kernel and its limits allow. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bin/doctor/doctor.h"
#include "compute/kern.h"
#include "compute/team.h"
#include "io/arena.h"
#include "io/host.h"
#include "io/numa.h"
#include "io/reader.h"
#include "model/ckpt/figure.h"

enum { LIMITS_TEXT = HOST_FILE_BYTES + 96 };
enum { FILES_SPARE = 64, PUBLISHED_FILES = 96, CAP_IPC_LOCK_BIT = 14 };

#define TRY_BYTES (64ull << 20) /* of a trial arena */
#define HUGE_SHARE 0.95
#define GIB 0x1p30
#define UNLOCK \
    "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit " \
    "memlock=-1)"

/* A file that always exists: the program. */
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
                   "refused (%s): this process has a seccomp filter; "
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
                   may_lock() ? ", which this user may exceed" : "");
    else
        doctor_add(d, DOCTOR_WARN, "memlock", UNLOCK,
                   "the limit of %s is below the %s GiB a run would "
                   "register: unregistered buffers, a little more CPU", limit,
                   figure((double)d->budget_bytes / GIB).text);
}

static void check_huge(struct doctor *d, const struct arena_facts *f)
{
    char mode[64];
    doctor_read(mode, sizeof mode,
                "/sys/kernel/mm/transparent_hugepage/enabled");
    if (f->huge_page_share >= HUGE_SHARE)
        doctor_add(d, DOCTOR_OK, "huge pages", NULL,
                   "%s %% of a trial arena; mode %s",
                   figure_percent(f->huge_page_share).text, mode);
    else if (strstr(mode, "[never]") || !mode[0])
        doctor_add(d, DOCTOR_WARN, "huge pages",
                   "echo madvise | sudo tee "
                   "/sys/kernel/mm/transparent_hugepage/enabled",
                   "refused, mode %s: reads may take twice as long",
                   mode[0] ? mode : "unknown");
    else
        doctor_add(d, DOCTOR_WARN, "huge pages",
                   "echo 1 | sudo tee /proc/sys/vm/compact_memory",
                   "only %s %% of a trial arena, mode %s: memory is "
                   "fragmented or short",
                   figure_percent(f->huge_page_share).text, mode);
}

static void check_numa(struct doctor *d, const struct arena_facts *f)
{
    uint32_t nodes = numa_count(numa_memory_nodes());
    if (f->nodes < nodes)
        doctor_add(d, DOCTOR_WARN, "NUMA", "numactl --interleave=all sluice "
                   "run ...", "%u nodes, but memory on only %u of them",
                   nodes, f->nodes);
    else
        doctor_add(d, DOCTOR_OK, "NUMA", NULL, nodes > 1 ?
                   "%u nodes, memory is spread over them" : "%u node",
                   nodes);
}

/* Try what every run begins with: an arena, a ring, registration. */
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
    struct kern kern;
    enum isa isa = kern_init(&kern, ISA_COUNT - 1);
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

static void check_cores(struct doctor *d, const struct host *host)
{
    cpu_set_t *set = CPU_ALLOC(TEAM_THREADS_MAX);
    size_t size = CPU_ALLOC_SIZE(TEAM_THREADS_MAX);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int allowed = set && !sched_getaffinity(0, size, set)
                      ? CPU_COUNT_S(size, set)
                      : (int)online;
    CPU_FREE(set);
    uint32_t cores = team_cores();
    d->threads = host_threads(host, cores);
    struct figure threads = figure_count(d->threads, "thread");
    if (d->threads < cores && host->cpus > 0 && host->cpus < cores)
        doctor_add(d, DOCTOR_WARN, "cores", "raise the quota (docker --cpus, "
                   "systemd CPUQuota)", "%s: %s allows %s of %u "
                   "processors", threads.text, host->cpus_file,
                   figure_chosen(host->cpus).text, cores);
    else if (d->threads < cores)
        doctor_add(d, DOCTOR_WARN, "cores", "raise the limit (docker "
                   "--pids-limit, systemd TasksMax)", "%s: %s allows %s",
                   threads.text, host->tasks_file,
                   figure_count(host->tasks, "more task").text);
    else if (allowed < online)
        doctor_add(d, DOCTOR_WARN, "cores", "taskset -pc 0-N $$, or the "
                   "cpuset of the container",
                   "%s; only %d of %ld processors allowed here",
                   threads.text, allowed, online);
    else
        doctor_add(d, DOCTOR_OK, "cores", NULL,
                   "%s on %s", threads.text,
                   figure_count((uint64_t)allowed, "processor").text);
}

static void check_memory(struct doctor *d, const struct host *host)
{
    char limit[LIMITS_TEXT] = "no cgroup limit", zfs[80] = "";
    d->budget_bytes = host_budget(host);
    if (host->group_bytes < host->machine_bytes)
        snprintf(limit, sizeof limit, "its cgroup allows %s GiB by %s",
                 figure((double)host->group_bytes / GIB).text,
                 host->group_file);
    if (host->zfs_bytes)
        snprintf(zfs, sizeof zfs, " (%s of it in ZFS's cache)",
                 figure((double)host->zfs_bytes / GIB).text);
    if (host->machine_bytes == UINT64_MAX)
        doctor_add(d, DOCTOR_WARN, "memory", "ls -l /proc/meminfo",
                   "what is free cannot be read, %s; a run without -m takes "
                   "%s GiB", limit, figure((double)d->budget_bytes / GIB).text);
    else
        doctor_add(d, DOCTOR_OK, "memory", NULL,
                   "%s GiB free%s, %s; a run without -m takes %s GiB",
                   figure((double)host->machine_bytes / GIB).text, zfs, limit,
                   figure((double)d->budget_bytes / GIB).text);
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
    struct host host;
    host_read(&host, "");
    check_kernel(d);
    check_memory(d, &host);
    check_ring(d);
    check_cpu(d);
    check_cores(d, &host);
    check_files(d);
}

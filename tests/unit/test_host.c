/* Goal    every limit of every group is seen, on each level and wherever the
 *         groups are mounted; what is proposed is never nothing.
 * Method  small copies of /proc and /sys: cgroup v1, v2, both at once, a
 *         container that sees only its own group, quotas, ZFS, no
 *         overcommitment; and files that are empty, cut off or nonsense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/host.h"

#define MIB(n) ((uint64_t)(n) << 20)

static char root[64];

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int begin(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_host.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, file);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/'));
         slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_number(const char *file, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)value);
    put(file, text);
}

static void put_memory(uint64_t available_mib)
{
    char text[128];
    snprintf(text, sizeof text,
             "MemTotal: 999999999 kB\nMemFree: 1 kB\nMemAvailable: %llu kB\n",
             (unsigned long long)(available_mib * 1024));
    put("/proc/meminfo", text);
}

/* What is left of `bytes` after the margin of a group. */
static uint64_t less_margin(uint64_t bytes)
{
    return bytes - MIB(8) - bytes / 256;
}

static void test_second_version(void **state)
{
    (void)state;
    struct host h;
    put_memory(8192);
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    put_number("/sys/fs/cgroup/a/memory.current", MIB(3000));
    put_number("/sys/fs/cgroup/a/b/c/memory.max", MIB(4000));
    put_number("/sys/fs/cgroup/a/b/c/memory.current", MIB(100));
    host_read(&h, root);
    assert_int_equal(h.machine_bytes, MIB(8192));
    assert_int_equal(h.group_bytes, less_margin(MIB(3900)));
    assert_string_equal(h.group_file, "/sys/fs/cgroup/a/b/c/memory.max");
    /* a parent that is tighter, most of it page cache */
    put_number("/sys/fs/cgroup/a/memory.max", MIB(3500));
    put("/sys/fs/cgroup/a/memory.stat",
        "anon 1\ninactive_file 1048576000\nactive_file 524288000\n"
        "slab_reclaimable 10485760\n");
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(3500 - 3000 + 1510)));
    assert_string_equal(h.group_file, "/sys/fs/cgroup/a/memory.max");
    /* where the kernel begins to hold a group back */
    put_number("/sys/fs/cgroup/a/b/c/memory.high", MIB(600));
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(500)));
    assert_string_equal(h.group_file, "/sys/fs/cgroup/a/b/c/memory.high");
    /* more taken than is allowed */
    put_number("/sys/fs/cgroup/a/b/c/memory.high", MIB(50));
    host_read(&h, root);
    assert_int_equal(h.group_bytes, 0);
    assert_true(host_budget(&h) > 0);
}

static void test_first_version(void **state)
{
    (void)state;
    struct host h;
    put_memory(8192);
    put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x/y\n3:pids:/x\n"
        "2:name=systemd:/\n");
    put("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup "
        "rw,cpu,cpuacct\n"
        "35 31 0:32 / /my\\040groups/memory rw - cgroup cgroup rw,memory\n"
        "36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n");
    put("/my groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_number("/my groups/memory/memory.usage_in_bytes", MIB(5000));
    put_number("/my groups/memory/x/memory.limit_in_bytes", MIB(2000));
    put_number("/my groups/memory/x/memory.usage_in_bytes", MIB(1000));
    put("/my groups/memory/x/memory.stat", "inactive_file 1\n"
        "total_inactive_file 104857600\ntotal_active_file 104857600\n");
    put_number("/my groups/memory/x/y/memory.memsw.limit_in_bytes", MIB(1200));
    put_number("/my groups/memory/x/y/memory.memsw.usage_in_bytes", MIB(10));
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(1190)));
    assert_string_equal(h.group_file,
                        "/my groups/memory/x/y/memory.memsw.limit_in_bytes");
    put_number("/my groups/memory/x/memory.limit_in_bytes", MIB(1900));
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(1100)));
    assert_string_equal(h.group_file,
                        "/my groups/memory/x/memory.limit_in_bytes");
    assert_true(h.cpus == 0 && h.tasks == UINT64_MAX);

    put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/pids/x/pids.max", "100\n");
    put("/sys/fs/cgroup/pids/x/pids.current", "60\n");
    host_read(&h, root);
    assert_true(h.cpus == 2.5 && h.tasks == 40);
    assert_string_equal(h.cpus_file,
                        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us");
    assert_string_equal(h.tasks_file, "/sys/fs/cgroup/pids/x/pids.max");
    assert_int_equal(host_threads(&h, 64), 2);
    h.cpus = 0;
    assert_int_equal(host_threads(&h, 64), 24);
    assert_int_equal(host_threads(&h, 4), 4);
}

static void test_quotas(void **state)
{
    (void)state;
    static const struct {
        const char *outer, *inner;
        double      cpus;
        uint32_t    threads; /* of 16 */
    } cases[] = {
        { "max 100000\n", "max 100000\n", 0, 16 },
        { "max 100000\n", "150000 100000\n", 1.5, 1 },
        { "400000 100000\n", "max 100000\n", 4, 4 },
        { "400000 100000\n", "300000 50000\n", 4, 4 },
        { "50000 100000\n", "300000 50000\n", 0.5, 1 },
        { "9000000 100000\n", "max 100000\n", 90, 16 },
        { "100000 0\n", "", 0, 16 },
        { "0 100000\n", "-5 100000\n", 0, 16 },
        { "1", "nonsense", 0, 16 },
    };
    put("/proc/self/cgroup", "0::/a/b\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host h;
        put("/sys/fs/cgroup/a/cpu.max", cases[i].outer);
        put("/sys/fs/cgroup/a/b/cpu.max", cases[i].inner);
        host_read(&h, root);
        assert_true(h.cpus == cases[i].cpus);
        assert_int_equal(host_threads(&h, 16), cases[i].threads);
    }
}

/* A container whose group is the top of what is mounted, and one whose group
 * is said to be above it. */
static void test_containers(void **state)
{
    (void)state;
    struct host h;
    put("/proc/self/cgroup", "4:memory:/docker/12ab/in\n0::/\n");
    put("/proc/self/mountinfo",
        "35 31 0:32 /docker/12ab /sys/fs/cgroup/memory ro - cgroup cgroup "
        "rw,memory\n"
        "41 31 0:38 /outside /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n");
    put_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", MIB(700));
    put_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", MIB(50));
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(650)));
    put_number("/sys/fs/cgroup/memory/in/memory.limit_in_bytes", MIB(300));
    put_number("/sys/fs/cgroup/memory/in/memory.usage_in_bytes", MIB(50));
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(250)));
    put("/proc/self/cgroup", "4:memory:/../elsewhere\n0::/\n");
    host_read(&h, root);
    assert_int_equal(h.group_bytes, less_margin(MIB(650)));
    put("/sys/fs/cgroup/unified/cpu.max", "300000 100000\n");
    host_read(&h, root);
    assert_true(h.cpus == 3);
}

static void test_machine(void **state)
{
    (void)state;
    struct host h;
    host_read(&h, root); /* nothing at all */
    assert_int_equal(h.machine_bytes, UINT64_MAX);
    assert_int_equal(h.group_bytes, UINT64_MAX);
    assert_true(host_budget(&h) > 0);
    put_memory(1000);
    put("/proc/spl/kstat/zfs/arcstats",
        "13 1 0x01 123 33456 8000 9000\nname  type data\nhits 4 77\n"
        "c_min                           4    1073741824\n"
        "size                            4    9663676416\n"
        "hdr_size                        4    123\n");
    host_read(&h, root);
    assert_int_equal(h.zfs_bytes, MIB(8192));
    assert_int_equal(h.machine_bytes, MIB(9192));
    put("/proc/spl/kstat/zfs/arcstats", "size 4 5\nc_min 4 6\n");
    host_read(&h, root);
    assert_int_equal(h.machine_bytes, MIB(1000));
    put("/proc/meminfo", "MemAvailable: 1024000 kB\nCommitLimit: 700000 kB\n"
        "Committed_AS: 200000 kB\n");
    put("/proc/sys/vm/overcommit_memory", "0\n");
    host_read(&h, root);
    assert_int_equal(h.machine_bytes, MIB(1000));
    put("/proc/sys/vm/overcommit_memory", "2\n");
    host_read(&h, root);
    assert_int_equal(h.machine_bytes, 500000 * 1024);
}

static void test_budget(void **state)
{
    (void)state;
    static const struct {
        uint64_t machine, group, budget; /* MiB; 0: no limit */
    } cases[] = {
        { 16000, 0, 15000 }, { 1024, 0, 768 }, { 400, 0, 200 },
        { 20, 0, 16 },       { 1, 0, 16 },     { 16000, 1600, 1500 },
        { 16000, 64, 60 },   { 16000, 1, 16 }, { 0, 160, 150 },
        { 0, 0, 1024 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct host h = {
            .machine_bytes = cases[i].machine ? MIB(cases[i].machine)
                                              : UINT64_MAX,
            .group_bytes = cases[i].group ? MIB(cases[i].group) : UINT64_MAX,
            .tasks = UINT64_MAX,
        };
        assert_int_equal(host_budget(&h), MIB(cases[i].budget));
    }
}

static void test_nonsense(void **state)
{
    (void)state;
    static const char *const groups[] = {
        "", "\n", ":", "::", "0::", "4:memory", "4:memory:", "x:y:z:w\n:::",
        ("0::/" "a/../../../etc\n"), "4:memory:no slash\n",
    };
    struct host h;
    char *longest = malloc(9000);
    memset(longest, 'a', 8999);
    longest[8999] = 0;
    memcpy(longest, "0::/", 4);
    for (size_t i = 0; i <= sizeof groups / sizeof *groups; i++) {
        put("/proc/self/cgroup", i < sizeof groups / sizeof *groups
                                     ? groups[i] : longest);
        put("/proc/self/mountinfo", i % 2 ? "1 2 3" : "a\\ b\\04 - cgroup2");
        put("/proc/meminfo", "MemAvailable:");
        host_read(&h, root);
        assert_int_equal(h.group_bytes, UINT64_MAX);
        assert_int_equal(h.machine_bytes, 0);
        assert_true(host_budget(&h) > 0 && host_threads(&h, 7) == 7);
    }
    free(longest);
    h.tasks = 0;
    assert_int_equal(host_threads(&h, 7), 1);
    host_read(&h, ""); /* this machine */
    assert_true(h.machine_bytes > 0 && host_budget(&h) > 0);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        EACH(test_second_version), EACH(test_first_version),
        EACH(test_quotas),         EACH(test_containers),
        EACH(test_machine),        EACH(test_budget),
        EACH(test_nonsense),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}

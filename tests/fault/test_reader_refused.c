/* Goal    where the machine refuses something, the reader does without it, says
 *         so in one line with a hint, and reads the same bytes.
 * Method  each refusal for real, in a child process: a seccomp filter, limits,
 *         another user. The child runs checked reads and returns its verdict.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fault/shards.h"
#include "tests/skip.h"
#include "tests/unit/own_malloc.h"

#define READS    100u
#define NOBODY   65534u
#define PINNABLE (64u << 10) /* bytes that may be locked */

#define SYSFS    "/sys/kernel/mm/transparent_hugepage/enabled"

static struct shards shards;

typedef void check_fn(void);

/* Run in a child; the cmocka asserts of a child end it with status 1. */
static void in_child(check_fn *check)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        check();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A child has no place to jump back to. */
static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "# %s\n", what);
    _exit(1);
}

static void refuse_call(long number, uint32_t error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { sizeof code / sizeof *code, code };
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0, "seccomp");
}

static bool has_note(const struct reader_facts *f, const char *words)
{
    for (uint32_t i = 0; i < f->notes; i++) {
        must(!strchr(f->note[i], '\n'), "a note of more than one line");
        if (strstr(f->note[i], words))
            return true;
    }
    return false;
}

/* Open, read, compare; the facts of it. */
static void read_all(const struct reader_options *o, struct reader_facts *f)
{
    struct shards_read reads[READS];
    struct reader *r;
    uint32_t bad;
    int err = reader_open(&r, o, &bad);
    must(err == 0, strerror(-err));
    shards_pick(&shards, reads, READS, 30000, 17);
    must(shards_run(&shards, r, reads, READS, o->arena) == 0, "a failed read");
    reader_facts(r, f);
    reader_close(r);
}

static void without_uring(uint32_t error)
{
    struct reader_options o = shards_options(&shards, "auto");
    struct reader_facts f;
    struct reader *r;
    uint32_t bad;
    refuse_call(SYS_io_uring_setup, error);
    read_all(&o, &f);
    must(!strcmp(f.method, "pread"), "the method is not pread");
    must(f.threads > 0, "no threads");
    must(has_note(&f, "io_uring refused"), "no note of the refusal");
    must(has_note(&f, error == EPERM ? "seccomp" : "kernel"), "no hint");
    o.method = "uring"; /* by name it is not replaced */
    must(reader_open(&r, &o, &bad) == -(int)error, "another error");
    must(r == NULL, "a reader in spite of an error");
}

static void no_permission(void)
{
    without_uring(EPERM);
}

static void no_such_call(void)
{
    without_uring(ENOSYS);
}

static void seccomp(void **state)
{
    (void)state;
    in_child(no_permission);
    in_child(no_such_call);
}

/* The ring is granted, registering in it is not. */
static void nothing_registers(void)
{
    struct reader_options o = shards_options(&shards, "auto");
    struct reader_facts f;
    must(arena_open(&o.arena, 8 << 20) == 0, "no arena");
    refuse_call(SYS_io_uring_register, EINVAL);
    read_all(&o, &f);
    /* A ring that starts disabled cannot be enabled then either. */
    must(!f.registered_files && !f.registered_buffers, "registered");
    must(f.notes > 0, "no note");
    arena_close(o.arena);
}

static void little_memlock(void)
{
    struct rlimit lim = { PINNABLE, PINNABLE };
    struct reader_options o = shards_options(&shards, "auto");
    struct reader_facts f;
    must(setrlimit(RLIMIT_MEMLOCK, &lim) == 0, "setrlimit");
    must(getuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0, "setresuid");
    must(arena_open(&o.arena, 8 << 20) == 0, "no arena");
    read_all(&o, &f);
    if (!strcmp(f.method, "io_uring")) {
        must(!f.registered_buffers, "registered beyond the limit");
        must(has_note(&f, "ulimit -l"), "no hint");
    } else { /* before 5.12 the ring itself counts */
        must(has_note(&f, "io_uring refused"), "no note of the refusal");
    }
    arena_close(o.arena);
}

/* The thread that reads keeps its turn unless the options ask for another. */
static void unasked(void)
{
    struct reader_options o = shards_options(&shards, "auto");
    struct reader_facts f;
    int nice_before = getpriority(PRIO_PROCESS, 0);
    read_all(&o, &f);
    must(f.owner_turn == READER_TURN_EQUAL, "a turn that nobody asked for");
    must(sched_getscheduler(0) == SCHED_OTHER, "another scheduler");
    must(getpriority(PRIO_PROCESS, 0) == nice_before, "another nice value");
    o.realtime = true;
    read_all(&o, &f);
    must((f.owner_turn == READER_TURN_REALTIME) ==
             (sched_getscheduler(0) ==
              (SCHED_FIFO | SCHED_RESET_ON_FORK)),
         "the fact is not what the kernel says");
}

static void few_descriptors(void)
{
    struct rlimit lim = { 6, 6 };
    struct reader_options o = shards_options(&shards, "auto");
    struct reader *r;
    uint32_t bad;
    must(setrlimit(RLIMIT_NOFILE, &lim) == 0, "setrlimit");
    must(reader_open(&r, &o, &bad) == -EMFILE, "not EMFILE");
    must(r == NULL && bad > 0 && bad < shards.files, "which file?");
}

/* A soft limit is not a limit. */
static void soft_descriptors(void)
{
    struct rlimit lim = { 6, 64 };
    struct reader_options o = shards_options(&shards, "auto");
    struct reader_facts f;
    must(setrlimit(RLIMIT_NOFILE, &lim) == 0, "setrlimit");
    read_all(&o, &f);
}

#if OWN_MALLOC
static void no_memory(void)
{
    struct rlimit lim = { (rlim_t)1 << 30, (rlim_t)1 << 30 };
    struct arena *a;
    must(setrlimit(RLIMIT_AS, &lim) == 0, "setrlimit");
    must(arena_open(&a, (uint64_t)2 << 30) == -ENOMEM, "not ENOMEM");
    must(a == NULL, "an arena in spite of an error");
}
#endif

static void limits(void **state)
{
    (void)state;
    in_child(little_memlock);
    in_child(unasked);
    in_child(few_descriptors);
    in_child(soft_descriptors);
#if OWN_MALLOC /* a sanitizer maps more than that for itself */
    in_child(no_memory);
#endif
}

static void register_refused(void **state)
{
    (void)state;
    in_child(nothing_registers);
}

/* Refused by a plan: both methods, and the last one. */
static void planned(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "auto");
    struct fault_plan plan = { .first = FAULT_NEVER,
                               .refused_method = "io_uring",
                               .refused_error = -ENOMEM };
    struct reader_facts f;
    struct reader *r;
    uint32_t bad;
    o.fault = &plan;
    read_all(&o, &f);
    assert_string_equal(f.method, "pread");
    assert_true(has_note(&f, "ulimit -l"));
    plan.refused_method = "pread";
    o.method = "pread";
    assert_int_equal(reader_open(&r, &o, &bad), -ENOMEM);
    assert_null(r);
}

/* sysfs has regular files that cannot be opened for direct reads. */
static void no_direct(void **state)
{
    (void)state;
    const char *paths[] = { shards.path[0], SYSFS };
    static const char *const methods[] = { "auto", "pread" };
    if (access(SYSFS, R_OK) != 0)
        skip_because("%s is absent", SYSFS);
    for (int m = 0; m < 2; m++) {
        struct reader_options o = { .method = methods[m], .paths = paths,
                                    .files = 2 };
        _Alignas(4096) static char page[2][4096], want[4];
        const struct read_req reqs[] = { { 1, 4, 0, page[0], 0, 0 },
                                         { 0, 99, 1, page[1] + 1, 1, 0 } };
        struct reader_facts f;
        struct read_done d;
        struct reader *r;
        uint32_t bad;
        assert_int_equal(reader_open(&r, &o, &bad), 0);
        reader_facts(r, &f);
        assert_false(f.direct);
        assert_true(has_note(&f, "O_DIRECT refused for 1 of 2"));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(reader_start(r, &reqs[i]), 0);
            assert_int_equal(reader_reap(r, &d, 1, INT64_MAX), 1);
            assert_int_equal(d.error, 0);
        }
        FILE *file = fopen(SYSFS, "r");
        assert_int_equal(fread(want, 1, 4, file), 4);
        fclose(file);
        assert_memory_equal(page[0], want, 4);
        assert_memory_equal(page[1] + 1, shards.truth[0] + 1, 99);
        reader_close(r);
    }
}

static int make(void **state)
{
    (void)state;
    const uint64_t sizes[] = { 100001, 65536, 4095, 12289, 8192 };
    shards_make(&shards, sizes, 5);
    return chmod(shards.dir, 0755); /* another user reads there, too */
}

static int drop(void **state)
{
    (void)state;
    shards_drop(&shards);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seccomp),
        cmocka_unit_test(register_refused),
        cmocka_unit_test(limits),
        cmocka_unit_test(planned),
        cmocka_unit_test(no_direct),
    };
    return cmocka_run_group_tests_name("reader refused", tests, make, drop);
}

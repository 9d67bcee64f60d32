/* Goal    whatever call of a save or a load the system refuses, a file is the
 *         old or the new state, whole; a load gives the state or nothing; a
 *         prefix cache gives a right state or none, and a drive that fails to
 *         read costs it no entry.
 * Method  this program's own open, read, write, pread, pwrite, fsync, flock,
 *         rename and linkat fail at the n-th call with EIO or ENOSPC, once and
 *         from there on, for every n until nothing failed. States of three
 *         blocks with numbers made from their ids. Skipped under sanitizers,
 *         which bring such calls of their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model/decode/prefix_cache.h"
#include "tests/skip.h"
#include "tests/unit/own_malloc.h"

enum { CONTEXT = 128, CALLS_MAX = 200, REFUSED_NEVER = -1 };

static long calls_left = REFUSED_NEVER;
static bool persistent, fired;
static int refusal;

#if OWN_MALLOC
static bool refuse(void)
{
    if (calls_left < 0)
        return false;
    if (calls_left > 0) {
        calls_left--;
        return false;
    }
    if (!persistent)
        calls_left = REFUSED_NEVER;
    fired = true;
    errno = refusal;
    return true;
}

#define CALL(...) (refuse() ? -1 : syscall(__VA_ARGS__))

int open(const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, unsigned);
        va_end(more);
    }
    return (int)CALL(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    return CALL(SYS_read, fd, bytes, n);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return CALL(SYS_write, fd, bytes, n);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    return CALL(SYS_pread64, fd, bytes, n, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return CALL(SYS_pwrite64, fd, bytes, n, at);
}

int fsync(int fd)
{
    return (int)CALL(SYS_fsync, fd);
}

int flock(int fd, int how)
{
    return (int)CALL(SYS_flock, fd, how);
}

int rename(const char *from, const char *to)
{
    return (int)CALL(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from, const char *path, int to, const char *name, int flags)
{
    return (int)CALL(SYS_linkat, from, path, to, name, flags);
}
#endif

static bool mla[] = { false, false, true };
static const struct config c = {
    .layers = 3, .kda_heads = 16, .kda_dim = 128, .conv_kernel = 4,
    .kv_rank = 60, .rope = 4, .is_mla = mla,
};
static const struct state_owner owner = { { { 9 } }, 1e-6f };
static char dir[64], path[80];
static struct state_shape shape;
static uint8_t *block;
static uint32_t ids[CONTEXT];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-calls-XXXXXX");
    state_shape(&shape, &c, CONTEXT);
    block = calloc(1, shape.bytes);
    if (!block || !mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/s", dir);
    for (uint32_t i = 0; i < CONTEXT; i++)
        ids[i] = i * 7;
    return 0;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    free(block);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

/* The number at place i of the state after n ids. */
static float number(uint64_t i, uint32_t n)
{
    return (float)((i * 2654435761u + n) % 16777213u);
}

static void compute(uint32_t n)
{
    float *kda = state_kda(block, &shape, 0);
    state_reset(block, &shape);
    for (uint64_t i = 0; i < 2 * shape.kda_bytes / sizeof *kda; i++)
        kda[i] = number(i, n);
    state_header(block)->positions = n;
}

/* The block has the state after n ids; 0: an empty one. */
static void check_state(uint32_t n)
{
    const float *kda = state_kda(block, &shape, 0);
    assert_int_equal(state_header(block)->positions, n);
    for (uint64_t i = 0; i < 2 * shape.kda_bytes / sizeof *kda; i++)
        if (kda[i] != (n ? number(i, n) : 0))
            fail_msg("number %llu is wrong", (unsigned long long)i);
}

static uint32_t files(void)
{
    uint32_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));)
        n += f->d_name[0] != '.' || strlen(f->d_name) > 2;
    closedir(d);
    return n;
}

/* ---- every call, in two errors, once and for good ---- */

typedef void attack_fn(void);

static void refuse_every(attack_fn *attack)
{
    static const int error[] = { EIO, ENOSPC };
    uint32_t refused = 0;
    for (int e = 0; e < 2; e++)
        for (int always = 0; always < 2; always++)
            for (long n = 0;; n++) {
                assert_true(n < CALLS_MAX);
                fired = false;
                refusal = error[e];
                persistent = always;
                calls_left = n;
                attack();
                assert_int_equal(calls_left, REFUSED_NEVER);
                refused += fired;
                if (!fired)
                    break;
            }
    print_message("%u refusals\n", refused);
    assert_true(refused > 20);
}

/* No more refusals from here on. */
static void allow(void)
{
    calls_left = REFUSED_NEVER;
}

static void load_whole(uint32_t expected)
{
    struct error e = { 0 };
    if (state_load(block, path, &shape, &owner, &e))
        fail_msg("%s", e.text);
    check_state(expected);
}

static void save_over_another(void)
{
    struct error e = { 0 };
    long planned = calls_left;
    allow();
    compute(60);
    assert_int_equal(
        state_save(path, block, &shape, ids, NULL, &owner, true, &e), 0);
    compute(90);
    calls_left = planned;
    int err = state_save(path, block, &shape, ids, NULL, &owner, true, &e);
    allow();
    assert_int_equal(files(), 1);
    if (!err) {
        load_whole(90);
        return;
    }
    assert_true(err < 0 && strstr(e.text, path));
    struct state_info info;
    assert_int_equal(state_peek(&info, path, &shape, &owner, &e), 0);
    free(info.ids);
    assert_true(info.positions == 60 || info.positions == 90);
    load_whole(info.positions);
}

static void load_it(void)
{
    struct error e = { 0 };
    struct state_info info;
    int err = state_peek(&info, path, &shape, &owner, &e);
    if (!err)
        assert_memory_equal(info.ids, ids, info.positions * sizeof *ids);
    assert_true(!err || strstr(e.text, path));
    free(info.ids);
    err = state_load(block, path, &shape, &owner, &e);
    allow();
    check_state(err ? 0 : 90);
    assert_true(!err || strstr(e.text, path));
    load_whole(90);
}

static void test_file(void **state)
{
    (void)state;
    if (!OWN_MALLOC)
        skip_because("a sanitizer has these calls of its own");
    refuse_every(save_over_another);
    struct error e = { 0 };
    compute(90);
    assert_int_equal(
        state_save(path, block, &shape, ids, NULL, &owner, true, &e), 0);
    refuse_every(load_it);
    unlink(path);
}

static struct prefix_cache *cache;

static void load_best(uint32_t *got)
{
    struct error e = { 0 };
    *got = prefix_cache_load(cache, block, &shape, ids, CONTEXT, &e);
    check_state(*got);
}

static void save_entry(void)
{
    struct error e = { 0 };
    uint32_t got, entries;
    uint64_t bytes;
    compute(100);
    int err = prefix_cache_save(cache, block, &shape, ids, 100, 1, &e);
    allow();
    assert_true(!err || strstr(e.text, dir));
    load_best(&got);
    assert_true(got == 100 || got == 50 || (got == 0 && err));
    prefix_cache_usage(cache, &bytes, &entries);
    assert_true(bytes <= state_file_bytes(&shape, 100));
    compute(50); /* the larger leaves for it */
    assert_int_equal(prefix_cache_save(cache, block, &shape, ids, 50, 1e6, &e),
                     0);
}

static void load_entry(void)
{
    uint32_t got;
    load_best(&got);
    allow();
    assert_true(got == 0 || got == 50);
    load_best(&got);
    assert_int_equal(got, 50);
}

static void test_cache(void **state)
{
    (void)state;
    struct error e = { 0 };
    if (!OWN_MALLOC)
        skip_because("a sanitizer has these calls of its own");
    assert_int_equal(prefix_cache_open(&cache, dir,
                                       state_file_bytes(&shape, 100), &owner,
                                       &e), 0);
    refuse_every(save_entry);
    refuse_every(load_entry);
    prefix_cache_close(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests_name("state_calls", tests, set_up,
                                       tear_down);
}

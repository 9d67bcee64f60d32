/* Goal    a prompt is answered from the longest saved prefix and never from
 *         another's; the folder never holds more than it may, whoever dies.
 * Method  states whose numbers are a function of their ids, so that a wrong one
 *         is seen. Random saves and loads against a list of what was saved;
 *         entries damaged, removed, cut; an index that is garbage; four
 *         processes on one folder of which some are killed; the order in which
 *         entries leave by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/decode/prefix_cache.h"

enum { CONTEXT = 64 };

static bool mla[] = { false, true };
static const struct config c = {
    .layers = 2, .kda_heads = 2, .kda_dim = 16, .conv_kernel = 4,
    .kv_rank = 12, .rope = 4, .is_mla = mla,
};
static const struct state_owner owner = { { { 9 } }, 1e-6f };
static char dir[64];
static struct state_shape shape;
static uint8_t *block;

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-prefix-XXXXXX");
    state_shape(&shape, &c, CONTEXT);
    block = calloc(1, shape.bytes);
    return block && mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[96];
    free(block);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 32);
}

/* The state that these ids give, in the one block. */
static void compute(const uint32_t *ids, uint32_t n)
{
    uint64_t h = n;
    state_reset(block, &shape);
    for (uint32_t i = 0; i < n; i++)
        h = h * 31 + ids[i];
    for (uint64_t i = 0; i < shape.kda_bytes / 4; i++)
        state_kda(block, &shape, 0)[i] = (float)next_random(&h);
    state_header(block)->positions = n;
}

static bool right(const uint32_t *ids, uint32_t n)
{
    static float copy[2 * 16 * 16];
    assert_int_equal(sizeof copy, shape.kda_bytes);
    memcpy(copy, state_kda(block, &shape, 0), sizeof copy);
    if (state_header(block)->positions != n)
        return false;
    compute(ids, n);
    return !memcmp(copy, state_kda(block, &shape, 0), sizeof copy);
}

static struct prefix_cache *open_cache(uint64_t bytes)
{
    struct prefix_cache *p;
    struct error error = { 0 };
    int err = prefix_cache_open(&p, dir, bytes, &owner, &error);
    assert_int_equal(err, 0);
    return p;
}

static void save(struct prefix_cache *p, const uint32_t *ids, uint32_t n,
                 double seconds)
{
    struct error error = { 0 };
    compute(ids, n);
    assert_int_equal(prefix_cache_save(p, block, &shape, ids, n, seconds,
                                       &error), 0);
}

static uint64_t folder_bytes(void)
{
    uint64_t bytes = 0;
    DIR *d = opendir(dir);
    struct stat st;
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".seq") && !fstatat(dirfd(d), e->d_name, &st, 0))
            bytes += (uint64_t)st.st_size;
    closedir(d);
    return bytes;
}

enum { LISTS = 40 };

static void the_longest_prefix_and_no_other(void **state)
{
    (void)state;
    static uint32_t ids[LISTS][CONTEXT];
    static uint32_t kept[LISTS];
    struct prefix_cache *p = open_cache(1 << 30);
    uint64_t seed = 5;
    struct error error = { 0 };
    for (int round = 0; round < 400; round++) {
        int l = (int)(next_random(&seed) % LISTS);
        uint32_t *list = ids[l];
        if (!kept[l]) { /* often the beginning of another list */
            memcpy(list, ids[next_random(&seed) % LISTS], sizeof ids[l]);
            uint32_t from = next_random(&seed) % CONTEXT;
            for (uint32_t i = from; i < CONTEXT; i++)
                list[i] = next_random(&seed) % 3;
            kept[l] = 1 + next_random(&seed) % (CONTEXT - 1);
            save(p, list, kept[l], 1);
        }
        uint32_t asked = 1 + next_random(&seed) % CONTEXT, want = 0;
        for (int i = 0; i < LISTS; i++)
            if (kept[i] && kept[i] <= asked && kept[i] > want &&
                !memcmp(ids[i], list, kept[i] * sizeof *list))
                want = kept[i];
        assert_int_equal(prefix_cache_find(p, list, asked), want);
        assert_int_equal(prefix_cache_load(p, block, &shape, list, asked,
                                           &error), want);
        if (want)
            assert_true(right(list, want));
    }
    struct prefix_cache_counts n = prefix_cache_counts(p);
    assert_true(n.hits > 100 && n.saved > 20 && n.damaged == 0);
    prefix_cache_close(p);
    memset(kept, 0, sizeof kept);
}

static void another_model_finds_nothing(void **state)
{
    (void)state;
    uint32_t ids[CONTEXT] = { 1, 2, 3 };
    struct error error = { 0 };
    struct prefix_cache *p = open_cache(1 << 30), *q;
    struct state_owner other = owner;
    save(p, ids, 3, 1);
    other.mla_latent_eps = 1e-5f;
    assert_int_equal(prefix_cache_open(&q, dir, 1 << 30, &other, &error), 0);
    assert_int_equal(prefix_cache_find(q, ids, 3), 0);
    assert_int_equal(prefix_cache_load(q, block, &shape, ids, 3, &error), 0);
    assert_int_equal(prefix_cache_find(p, ids, 3), 3);
    prefix_cache_close(p);
    prefix_cache_close(q);
}

static void damage_is_a_miss(void **state)
{
    (void)state;
    uint32_t ids[CONTEXT] = { 4, 5, 6, 7 };
    struct prefix_cache *p = open_cache(1 << 30);
    char path[512];
    for (int way = 0; way < 3; way++) {
        struct error error = { 0 };
        save(p, ids, 2, 1);
        save(p, ids, 4, 1);
        DIR *d = opendir(dir);
        for (struct dirent *e; (e = readdir(d));)
            if (strstr(e->d_name, "-4.seq"))
                snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        closedir(d);
        int fd = open(path, O_RDWR);
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        if (way == 0)
            assert_int_equal(pwrite(fd, "x", 1, st.st_size - 40), 1);
        else if (way == 1)
            assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
        else
            assert_int_equal(pwrite(fd, "garbage!", 8, 0), 8);
        close(fd);
        snprintf(path, sizeof path, "%s/index", dir);
        fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0666);
        assert_int_equal(write(fd, "\0\xff clock nan\nx y z\n", 19), 19);
        close(fd);
        assert_int_equal(prefix_cache_load(p, block, &shape, ids, 4, &error),
                         2);
        assert_true(right(ids, 2));
        assert_int_equal(prefix_cache_find(p, ids, 4), 2);
    }
    assert_int_equal(prefix_cache_counts(p).damaged, 3);
    prefix_cache_close(p);
}

static void the_least_valuable_leaves(void **state)
{
    (void)state;
    uint32_t a[] = { 1, 1, 1, 1 }, b[] = { 2, 2, 2, 2 }, d[] = { 3, 3, 3, 3 };
    uint64_t one = state_file_bytes(&shape, 4);
    struct error error = { 0 };
    struct prefix_cache *p = open_cache(2 * one + 10);
    save(p, a, 4, 1);
    save(p, b, 4, 10);
    save(p, d, 4, 2); /* a saves least a byte */
    assert_int_equal(prefix_cache_find(p, a, 4), 0);
    assert_int_equal(prefix_cache_find(p, b, 4), 4);
    assert_int_equal(prefix_cache_find(p, d, 4), 4);
    for (int i = 0; i < 9; i++) /* d is asked for often: ten times 2 */
        assert_int_equal(prefix_cache_load(p, block, &shape, d, 4, &error), 4);
    save(p, a, 4, 1);
    assert_int_equal(prefix_cache_find(p, b, 4), 0);
    assert_int_equal(prefix_cache_find(p, d, 4), 4);
    assert_true(folder_bytes() <= 2 * one + 10);
    prefix_cache_close(p);
    p = open_cache(one - 1);
    save(p, b, 4, 1);
    assert_int_equal(prefix_cache_counts(p).saved, 0);
    prefix_cache_close(p);
}

/* Save and load for ever; a wrong state ends it with status 1. */
static void hammer(uint64_t seed, uint64_t bytes)
{
    struct prefix_cache *p;
    struct error error = { 0 };
    uint32_t ids[CONTEXT];
    if (prefix_cache_open(&p, dir, bytes, &owner, &error))
        _exit(2);
    for (int i = 0; i < 150; i++) {
        for (int j = 0; j < CONTEXT; j++)
            ids[j] = (uint32_t)j < 8 ? 1 : next_random(&seed) % 2;
        uint32_t n = 1 + next_random(&seed) % 12;
        compute(ids, n);
        if (prefix_cache_save(p, block, &shape, ids, n, 1, &error))
            _exit(3);
        n = prefix_cache_load(p, block, &shape, ids, 12, &error);
        if (n && !right(ids, n))
            _exit(1);
        if (folder_bytes() > bytes)
            _exit(4);
    }
    _exit(0);
}

static void processes_share_and_die(void **state)
{
    (void)state;
    uint64_t bytes = 6 * state_file_bytes(&shape, 12);
    for (int round = 0; round < 5; round++) {
        pid_t child[4];
        for (int i = 0; i < 4; i++) {
            child[i] = fork();
            assert_true(child[i] >= 0);
            if (!child[i])
                hammer((uint64_t)(round * 4 + i), bytes);
        }
        usleep(20000u * (unsigned)(round + 1));
        kill(child[0], SIGKILL);
        kill(child[1], SIGKILL);
        for (int i = 0; i < 4; i++) {
            int status;
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_true(WIFSIGNALED(status) ? i < 2 : status == 0);
        }
        assert_true(folder_bytes() <= bytes);
    }
    DIR *d = opendir(dir); /* nobody left a file of another kind */
    for (struct dirent *e; (e = readdir(d));)
        assert_true(e->d_name[0] == '.' ? strlen(e->d_name) < 3 ||
                                              strstr(e->d_name, ".sluice-")
                    : strstr(e->d_name, ".seq") || !strcmp(e->d_name, "lock") ||
                          !strcmp(e->d_name, "index"));
    closedir(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_longest_prefix_and_no_other,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_model_finds_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(damage_is_a_miss, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_least_valuable_leaves, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(processes_share_and_die, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

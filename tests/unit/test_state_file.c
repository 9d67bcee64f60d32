/* Goal    a saved sequence comes back bit by bit, or not at all.
 * Method  a state with random bytes and a payload of three blocks: saved and
 *         loaded into contexts of other sizes; then every byte of the header,
 *         and bytes all over the rest, flipped; the file cut at every block and
 *         at both ends of each part; another model, another epsilon, a file
 *         that is no state; a save that fails half way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "model/state/state_file.h"

enum { POSITIONS = 400, HEADER = 136, BLOCK = 1 << 20, PAGE = 4096 };

static bool mla[] = { false, false, true, false, true };
static const struct config c = {
    .layers = 5, .kda_heads = 16, .kda_dim = 64, .conv_kernel = 4,
    .kv_rank = 500, .rope = 12, .is_mla = mla,
};
static const struct state_owner owner = { { { 1, 2, 3 } }, 1e-6f };
static char path[80], dir[64];

struct sequence {
    struct state_shape shape;
    uint8_t *block;
    uint32_t ids[POSITIONS];
};

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 32);
}

static void make(struct sequence *s, uint32_t context)
{
    uint64_t seed = 7;
    state_shape(&s->shape, &c, context);
    s->block = calloc(1, s->shape.bytes);
    assert_non_null(s->block);
    state_reset(s->block, &s->shape);
    for (uint32_t l = 0; l < 3; l++)
        for (uint64_t i = 0; i < s->shape.kda_bytes / 4; i++)
            state_kda(s->block, &s->shape, l)[i] =
                (float)next_random(&seed);
    for (uint64_t i = 0; i < 3 * s->shape.conv_bytes / 4; i++)
        state_conv(s->block, &s->shape, 0, 0)[i] = (float)next_random(&seed);
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < POSITIONS * 512; i++)
            state_mla(s->block, &s->shape, l)[i] = (float)next_random(&seed);
    for (int i = 0; i < POSITIONS; i++)
        s->ids[i] = next_random(&seed);
    state_header(s->block)->positions = POSITIONS;
}

static bool same(struct sequence *a, struct sequence *b)
{
    bool equal = !memcmp(state_kda(a->block, &a->shape, 0),
                         state_kda(b->block, &b->shape, 0),
                         3 * a->shape.kda_bytes) &&
                 !memcmp(state_conv(a->block, &a->shape, 0, 0),
                         state_conv(b->block, &b->shape, 0, 0),
                         3 * a->shape.conv_bytes);
    for (uint32_t l = 0; l < 2; l++)
        equal &= !memcmp(state_mla(a->block, &a->shape, l),
                         state_mla(b->block, &b->shape, l),
                         POSITIONS * 512 * sizeof(float));
    return equal;
}

static void drop(struct sequence *s)
{
    free(s->block);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-state-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/s", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static uint64_t save(const struct sequence *s)
{
    struct error error = { 0 };
    struct stat st;
    assert_int_equal(state_save(path, s->block, &s->shape, s->ids, NULL, &owner,
                                true, &error), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, state_file_bytes(&s->shape, POSITIONS));
    return (uint64_t)st.st_size;
}

static void comes_back_in_any_context(void **state)
{
    (void)state;
    static const uint32_t contexts[] = { POSITIONS, 401, 4096 };
    struct sequence a, b;
    make(&a, 640);
    save(&a);
    struct state_info info;
    struct error error = { 0 };
    assert_int_equal(state_peek(&info, path, &a.shape, &owner, &error), 0);
    assert_int_equal(info.positions, POSITIONS);
    assert_memory_equal(info.ids, a.ids, sizeof a.ids);
    free(info.ids);
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        make(&b, contexts[i]);
        memset(state_kda(b.block, &b.shape, 0), 1, b.shape.kda_bytes);
        assert_int_equal(state_load(b.block, path, &b.shape, &owner, &error),
                         0);
        assert_int_equal(state_header(b.block)->positions, POSITIONS);
        assert_true(same(&a, &b));
        drop(&b);
    }
    make(&b, POSITIONS);
    struct state_shape small;
    state_shape(&small, &c, POSITIONS - 1);
    assert_int_equal(state_load(b.block, path, &small, &owner, &error),
                     -EFBIG);
    drop(&a);
    drop(&b);
}

/* Load what is in the file now: an error, and an empty sequence. */
static void refused(struct sequence *s, int expected)
{
    struct error error = { 0 };
    struct state_info info;
    int err = state_load(s->block, path, &s->shape, &owner, &error);
    assert_int_equal(err, expected);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(state_header(s->block)->positions, 0);
    struct error peek = { 0 };
    if (!state_peek(&info, path, &s->shape, &owner, &peek)) {
        /* The ids are whole: only the state is damaged. */
        assert_memory_equal(info.ids, s->ids, sizeof s->ids);
        free(info.ids);
    }
}

static void flip(uint64_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= (uint8_t)(1 << at % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static void every_damage_is_seen(void **state)
{
    (void)state;
    struct sequence s;
    make(&s, 640);
    uint64_t bytes = save(&s), seed = 3;
    assert_true((bytes - 2 * PAGE) / BLOCK >= 2);
    for (uint64_t at = 0; at < HEADER; at++) {
        flip(at);
        refused(&s, -EBADMSG);
        flip(at);
    }
    for (uint64_t at = PAGE; at < PAGE + 3 * 4; at++) {
        flip(at);
        refused(&s, -EBADMSG);
        flip(at);
    }
    for (int i = 0; i < 200; i++) {
        uint64_t at = 2 * PAGE + next_random(&seed) % (bytes - 2 * PAGE);
        flip(at);
        refused(&s, -EBADMSG);
        flip(at);
    }
    struct error error = { 0 };
    assert_int_equal(state_load(s.block, path, &s.shape, &owner, &error), 0);
    drop(&s);
}

static void every_cut_is_seen(void **state)
{
    (void)state;
    struct sequence s;
    make(&s, 640);
    uint64_t bytes = save(&s);
    uint64_t cuts[16] = { bytes - 1, PAGE, PAGE - 1, HEADER, HEADER - 1, 1, 0 };
    int n = 7;
    for (uint64_t at = 2 * PAGE; at < bytes; at += BLOCK)
        cuts[n++] = at;
    for (int i = 0; i < n; i++) {
        unlink(path); /* a save replaces nothing but a state */
        save(&s);
        assert_int_equal(truncate(path, (off_t)cuts[i]), 0);
        refused(&s, -EBADMSG);
        drop(&s);
        make(&s, 640);
    }
    drop(&s);
}

static void another_model_is_no_use(void **state)
{
    (void)state;
    struct sequence s;
    make(&s, 640);
    save(&s);
    struct state_owner other = owner;
    struct error error = { 0 };
    other.model.byte[31] ^= 1;
    assert_int_equal(state_load(s.block, path, &s.shape, &other, &error),
                     -ESTALE);
    assert_non_null(strstr(error.text, "another model"));
    other = owner;
    other.mla_latent_eps = 1e-5f;
    error = (struct error){ 0 };
    assert_int_equal(state_load(s.block, path, &s.shape, &other, &error),
                     -ESTALE);
    assert_non_null(strstr(error.text, "mla-latent-eps"));
    drop(&s);
}

static void a_failed_save_leaves_the_old(void **state)
{
    (void)state;
    struct sequence a, b;
    make(&a, 640);
    make(&b, 640);
    save(&a);
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = BLOCK + BLOCK / 2;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    state_kda(b.block, &b.shape, 0)[5] = 1;
    struct error error = { 0 };
    int err = state_save(path, b.block, &b.shape, b.ids, NULL, &owner, true,
                         &error);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(err, -EFBIG);
    assert_non_null(strstr(error.text, "could not be saved"));
    error = (struct error){ 0 };
    assert_int_equal(state_load(b.block, path, &b.shape, &owner, &error), 0);
    assert_true(same(&a, &b));
    drop(&a);
    drop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(comes_back_in_any_context, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(every_damage_is_seen, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(every_cut_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_model_is_no_use, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_failed_save_leaves_the_old, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

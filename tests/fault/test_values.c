/* Goal    a value that is no number never becomes a token: the run stops with a
 *         sentence that names the tensor, or did not use it; equal scores give
 *         the lower id, always.
 * Method  NaN or an infinity, in turn, at one place of every tensor outside the
 *         experts; the scale byte 255 in every expert, at the floor and with
 *         all of it in memory: both name it or both give the bits of the sound
 *         model. Huge but finite values: both the same again. Router rows that
 *         are copies of each other, by rows and threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/ckpt/safetensors.h"
#include "tests/fault/mini.h"

enum { SHARDS = 4, EXPERTS = 24, TOP_K = 3, NAME_BYTES = 160 };

struct place {
    char     name[NAME_BYTES];
    uint32_t shard;
    enum tensor_dtype dtype;
    uint64_t offset, bytes;
};

static struct mini mini;
static struct mini_run want;
static struct place *places;
static uint32_t place_count;
static uint64_t min;

static void path_of(char path[128], uint32_t shard)
{
    snprintf(path, 128, "%s/model-%05u-of-%06u.safetensors", mini.dir,
             shard + 1, SHARDS);
}

static void find_places(void)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct safetensors file;
        struct error error = { 0 };
        char path[128];
        path_of(path, s);
        assert_int_equal(safetensors_open(&file, path, 1 << 20, &error), 0);
        places = realloc(places, (place_count + file.count) * sizeof *places);
        for (uint32_t i = 0; i < file.count; i++) {
            const struct safetensors_entry *e = &file.entry[i];
            struct place *p = &places[place_count++];
            assert_true(snprintf(p->name, NAME_BYTES, "%s", e->name) <
                        NAME_BYTES);
            p->shard = s;
            p->dtype = e->dtype;
            p->offset = e->offset_bytes;
            p->bytes = e->length_bytes;
        }
        safetensors_close(&file);
    }
}

static struct place *find(const char *end)
{
    for (uint32_t i = 0; i < place_count; i++) {
        size_t n = strlen(places[i].name), m = strlen(end);
        if (n >= m && !strcmp(places[i].name + n - m, end))
            return &places[i];
    }
    fail_msg("no tensor %s", end);
    return NULL;
}

/* Exchange bytes of a tensor with those in `bytes`. */
static void swap(const struct place *p, uint64_t at, void *bytes, size_t n)
{
    char path[128], old[4096];
    assert_true(n <= sizeof old && at + n <= p->bytes);
    path_of(path, p->shard);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    off_t offset = (off_t)(p->offset + at);
    assert_int_equal(pread(fd, old, n, offset), n);
    assert_int_equal(pwrite(fd, bytes, n, offset), n);
    close(fd);
    memcpy(bytes, old, n);
}

static struct k3_options tight(void)
{
    return mini_options(min);
}

static struct k3_options ample(void)
{
    struct k3_options o = mini_options(64 << 20);
    o.io = "pread";
    o.threads = 1;
    return o;
}

/* Both ways end alike; 0, or -EBADMSG with a sentence that has `name`. What
 * came before may be less with several rows a pass, not other. */
static int both(const char *name, bool may_differ)
{
    struct k3_options ways[2] = { tight(), ample() };
    struct mini_run r[2];
    int err[2];
    for (int i = 0; i < 2; i++)
        err[i] = mini_run(&mini, &ways[i], &r[i]);
    bool more = r[0].rows > r[1].rows;
    if (err[0] != err[1] || (!err[0] && r[0].rows != r[1].rows) ||
        !mini_agrees(&r[more], &r[!more]))
        fail_msg("%s: \"%s\" is not \"%s\"", name, r[0].error.text,
                 r[1].error.text);
    for (int i = 0; i < 2; i++) {
        if (!may_differ && !mini_agrees(&r[i], &want))
            fail_msg("%s: other bits", name);
        if (err[i] && (err[i] != -EBADMSG || !strstr(r[i].error.text, name) ||
                       !strstr(r[i].error.text, ".safetensors")))
            fail_msg("%s: \"%s\"", name, r[i].error.text);
        mini_forget(&r[i]);
    }
    return err[0];
}

/* A place in the tensor that the run goes by: the embedding of an id that it
 * gets, else anywhere. */
static uint64_t element_of(const struct place *p, uint32_t turn)
{
    uint64_t size = p->dtype == DTYPE_F32 ? 4 : 2, n = p->bytes / size;
    if (strstr(p->name, "embed_tokens"))
        return 500 * (n / 512) + turn % (n / 512);
    return (uint64_t)turn * 2654435761u % n;
}

static void no_number_passes(void **state)
{
    (void)state;
    static const uint32_t wide[] = { 0x7fc00000, 0x7f800000, 0xff800000,
                                     0x7f800001 };
    static const uint16_t half[] = { 0x7fc0, 0x7f80, 0xff80, 0x7f81 };
    uint32_t tried = 0;
    for (uint32_t i = 0; i < place_count; i++) {
        const struct place *p = &places[i];
        if (p->dtype == DTYPE_U8)
            continue;
        uint32_t wide_value = wide[i % 4];
        uint16_t half_value = half[i % 4];
        bool is_wide = p->dtype == DTYPE_F32;
        void *value = is_wide ? (void *)&wide_value : (void *)&half_value;
        size_t size = is_wide ? 4 : 2;
        uint64_t at = element_of(p, i) * size;
        swap(p, at, value, size);
        if (!both(p->name, false))
            fail_msg("%s: %x at byte %u was taken", p->name,
                     is_wide ? wide[i % 4] : half[i % 4], (unsigned)at);
        swap(p, at, value, size);
        tried++;
    }
    assert_true(tried > 50);
    assert_int_equal(both("as before", false), 0);
}

/* Which of three scale tensors of the expert is spoilt follows from its number.
 */
static void no_scale_of_255_passes(void **state)
{
    (void)state;
    uint32_t refused = 0, unused = 0;
    for (uint32_t e = 0; e < 2 * EXPERTS; e++) {
        char end[64], name[96];
        uint32_t w = e % 3 + 1;
        snprintf(end, sizeof end, "layers.%u.block_sparse_moe.experts.%u.w%u.",
                 1 + e / EXPERTS, e % EXPERTS, w);
        snprintf(name, sizeof name, "%sweight_scale", end);
        struct place *p = find(name);
        uint8_t scale = 255;
        uint64_t at = (uint64_t)e * 7 % p->bytes;
        swap(p, at, &scale, 1);
        int err = both(end, false);
        refused += err != 0;
        unused += err == 0;
        swap(p, at, &scale, 1);
    }
    printf("# %u experts refused, %u not used\n", refused, unused);
    assert_true(refused > 0 && unused > 0);
}

/* The largest finite values: whatever comes of it comes at every budget. */
static void huge_values_are_the_same_everywhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < place_count; i += 5) {
        const struct place *p = &places[i];
        uint16_t half = 0x7f7f;
        uint32_t wide = 0x7f7fffff;
        uint8_t scale = 254;
        bool is_scale = strstr(p->name, "scale") != NULL;
        if (p->dtype == DTYPE_U8 && !is_scale)
            continue;
        void *value = is_scale ? (void *)&scale
                      : p->dtype == DTYPE_F32 ? (void *)&wide
                                              : (void *)&half;
        size_t size = is_scale ? 1 : p->dtype == DTYPE_F32 ? 4 : 2;
        uint64_t at = is_scale ? 0 : element_of(p, i) * size;
        swap(p, at, value, size);
        both("", true);
        swap(p, at, value, size);
    }
}

/* ---- ties ---- */

struct routing {
    uint32_t ids[2][MINI_ROWS][TOP_K], seen[2];
};

static void keep_ids(void *arg, uint32_t layer, uint32_t row,
                     const uint32_t *ids, const float *weights,
                     const uint8_t *how)
{
    struct routing *r = arg;
    (void)row;
    (void)weights;
    (void)how;
    uint32_t n = r->seen[layer - 1]++;
    assert_true(n < MINI_ROWS);
    memcpy(r->ids[layer - 1][n], ids, TOP_K * sizeof *ids);
}

/* Route by every number of rows and threads; all the same; the first is
 * returned. */
static struct routing route(void)
{
    struct routing first = { 0 };
    for (uint32_t rows = 1; rows <= 4; rows++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct routing now = { 0 };
            struct k3_options o = ample();
            struct mini_run r;
            o.rows = rows;
            o.threads = threads;
            o.routed = keep_ids;
            o.routed_arg = &now;
            assert_int_equal(mini_run(&mini, &o, &r), 0);
            mini_forget(&r);
            if (rows == 1 && threads == 1)
                first = now;
            assert_int_equal(now.seen[0], MINI_ROWS);
            assert_memory_equal(&now, &first, sizeof now);
        }
    return first;
}

static void copy_router_row(uint32_t layer, uint32_t from, uint32_t to)
{
    char end[64], row[256];
    snprintf(end, sizeof end, "layers.%u.block_sparse_moe.gate.weight", layer);
    struct place *p = find(end);
    size_t bytes = p->bytes / EXPERTS;
    assert_true(bytes <= sizeof row);
    swap(p, from * bytes, row, bytes);
    char copy[256];
    memcpy(copy, row, bytes);
    swap(p, from * bytes, copy, bytes);
    swap(p, to * bytes, row, bytes);
    snprintf(end, sizeof end,
             "layers.%u.block_sparse_moe.gate.e_score_correction_bias", layer);
    p = find(end);
    memset(row, 0, 4);
    swap(p, from * 4, row, 4);
    memset(row, 0, 4);
    swap(p, to * 4, row, 4);
}

static void equal_scores_give_the_lower_id(void **state)
{
    (void)state;
    uint32_t met = 0;
    for (uint32_t e = 0; e < EXPERTS; e += 2)
        for (uint32_t layer = 1; layer < 3; layer++)
            copy_router_row(layer, e, e + 1);
    struct routing r = route();
    for (uint32_t i = 0; i < 2 * MINI_ROWS; i++) {
        const uint32_t *ids = r.ids[i / MINI_ROWS][i % MINI_ROWS];
        for (uint32_t j = 0; j < TOP_K; j++)
            if (ids[j] % 2) { /* never without its elder, right before it */
                assert_true(j > 0 && ids[j - 1] + 1 == ids[j]);
                met++;
            }
    }
    assert_true(met > MINI_ROWS);
    for (uint32_t e = 1; e < EXPERTS; e++)
        for (uint32_t layer = 1; layer < 3; layer++)
            copy_router_row(layer, 0, e);
    r = route();
    for (uint32_t i = 0; i < 2 * MINI_ROWS; i++)
        for (uint32_t j = 0; j < TOP_K; j++)
            assert_int_equal(r.ids[i / MINI_ROWS][i % MINI_ROWS][j], j);
}

static int setup(void **state)
{
    (void)state;
    if (!mini_make(&mini, NULL, 0))
        return -1;
    struct k3_options o = mini_options(64 << 20);
    min = mini_floor(&mini, o);
    if (!min || mini_run(&mini, &o, &want)) {
        printf("Bail out! %s%s\n", mini.wrong, want.error.text);
        return -1;
    }
    find_places();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(places);
    mini_forget(&want);
    mini_remove(&mini);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_number_passes),
        cmocka_unit_test(no_scale_of_255_passes),
        cmocka_unit_test(huge_values_are_the_same_everywhere),
        cmocka_unit_test(equal_scores_give_the_lower_id),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Goal    verify finds what is wrong with the bytes of a checkpoint, says so
 *         once, and nothing else: not with a drive that stumbles, nor with any
 *         number of threads.
 * Method  ranges with bad values at every kind of place against a loop that
 *         looks at one value at a time; a tiny checkpoint with bytes changed;
 *         the same read with faults that recover and faults that stay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/fault.h"
#include "model/ckpt/ckpt.h"
#include "model/tools/synth.h"
#include "model/tools/verify_internal.h"

static char dir[] = "/tmp/sluice-verify-XXXXXX";

enum { TOLD_MAX = 64 };

struct told {
    uint32_t count;
    char     tensor[TOLD_MAX][160], text[TOLD_MAX][200];
};

static void remember(void *arg, const char *file, const char *tensor,
                     const char *text)
{
    struct told *t = arg;
    if (t->count < TOLD_MAX) {
        snprintf(t->tensor[t->count], sizeof t->tensor[0], "%s",
                 tensor ? tensor : file ? file : "");
        snprintf(t->text[t->count], sizeof t->text[0], "%s", text);
    }
    t->count++;
}

static void check(struct verify_facts *f, struct told *t, uint32_t threads,
                  const char *io, const struct fault_plan *fault)
{
    struct error error = { 0 };
    struct verify_options o = { .dir = dir, .io = io, .threads = threads,
                                .fault = fault, .problem = remember,
                                .arg = t };
    memset(t, 0, sizeof *t);
    if (verify_run(f, &o, &error))
        fail_msg("%s", error.text);
    assert_int_equal(f->problems, t->count);
}

static int make(void **state)
{
    (void)state;
    struct error error = { 0 };
    struct synth_facts facts;
    struct synth_options o = { .dir = dir, .preset = "tiny" };
    if (!mkdtemp(dir))
        return -1;
    return synth_write(&o, &facts, &error);
}

static int drop(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

/* ---- ranges ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static bool bad_value(enum scan_kind kind, const uint8_t *at)
{
    if (kind == SCAN_BF16)
        return (at[1] & 0x7f) == 0x7f && (at[0] & 0x80);
    if (kind == SCAN_F32)
        return (at[3] & 0x7f) == 0x7f && (at[2] & 0x80);
    return kind == SCAN_SCALE && *at == 255;
}

static void naive(struct scan *out, enum scan_kind kind, const uint8_t *bytes,
                  size_t length)
{
    *out = (struct scan){ 0 };
    for (size_t i = 0; i < length; i += scan_width(kind))
        if (bad_value(kind, bytes + i) && !out->bad++)
            out->first = i / scan_width(kind);
}

static void ranges_against_naive(void **state)
{
    (void)state;
    enum { ROOM = 70000 };
    static uint8_t bytes[ROOM];
    uint64_t random = 7;
    for (int round = 0; round < 800; round++) {
        enum scan_kind kind = (enum scan_kind)(round % 4);
        size_t at = next_random(&random) % 9;
        size_t length = next_random(&random) % (ROOM - 16) & ~(size_t)3;
        int fill = round / 4 % 5;
        for (size_t i = 0; i < ROOM; i++) /* near to bad, but finite */
            bytes[i] = fill == 0 ? 0 : fill == 1 ? 0x7f : fill == 2 ? 254
                     : (uint8_t)(next_random(&random) % 0x7f);
        for (int k = 0; k < round / 4 % 3 && length; k++)
            memset(bytes + at + (next_random(&random) % length & ~(size_t)3),
                   255, 4);
        struct scan got, want;
        scan_bytes(&got, kind, bytes + at, length);
        naive(&want, kind, bytes + at, length);
        assert_int_equal(got.bad, want.bad);
        if (want.bad)
            assert_int_equal(got.first, want.first);
    }
}

/* Long runs of zeros, in pieces as reads cut them, against a plain loop. */
static void zeros_against_naive(void **state)
{
    (void)state;
    enum { ROOM = 300000, MIN = 65536, RUNS_MAX = 8 };
    static uint8_t bytes[ROOM];
    uint64_t random = 11;
    uint32_t seen = 0;
    for (int round = 0; round < 600; round++) {
        size_t length = ROOM - next_random(&random) % 5000;
        size_t want[RUNS_MAX][2], wants = 0, gots = 0, run = 0;
        memset(bytes, 1, sizeof bytes);
        for (int k = 0; k < 3; k++) {
            size_t at = next_random(&random) % length;
            size_t zeros = MIN - 2 + next_random(&random) % 5;
            zeros = k == 2 ? next_random(&random) % 9000 : zeros;
            memset(bytes + at, 0, zeros < ROOM - at ? zeros : ROOM - at);
        }
        for (size_t i = 0; i <= length; i++) {
            if (i < length && !bytes[i]) {
                run++;
                continue;
            }
            if (run >= MIN) {
                want[wants][0] = i - run;
                want[wants++][1] = i;
            }
            run = 0;
        }
        uint64_t zeros = 0;
        for (size_t at = 0; at < length;) {
            size_t piece = 1 + next_random(&random) % 60000;
            size_t end = at + piece < length ? at + piece : length;
            while (at < end) {
                at += scan_zeros(&zeros, bytes + at, end - at, MIN);
                if (zeros < MIN || (at == end && at < length && !bytes[at]))
                    continue;
                if (at == end && at == length)
                    continue; /* told below */
                assert_true(gots < wants);
                assert_int_equal(want[gots][0], at - zeros);
                assert_int_equal(want[gots++][1], at);
                zeros = 0;
            }
        }
        if (zeros >= MIN) {
            assert_int_equal(want[gots][0], length - zeros);
            gots++;
        }
        assert_int_equal(gots, wants);
        seen += (uint32_t)wants;
    }
    assert_true(seen > 300);
}

/* ---- a checkpoint ---- */

static void nothing_wrong(void **state)
{
    (void)state;
    struct verify_facts f;
    struct told t;
    static const char *const ways[] = { "auto", "pread" };
    for (int w = 0; w < 2; w++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            check(&f, &t, threads, ways[w], NULL);
            assert_int_equal(t.count, 0);
            assert_int_equal(f.files, 14);
            assert_true(f.bytes > 1 << 20);
            assert_true(f.tensors > 1000);
        }
}

struct change {
    struct extent at;
    const char   *path;
    uint8_t       old[64];
    size_t        length;
};

static void change(struct change *c, const struct ckpt *k,
                   const struct extent *e, uint64_t from, const void *bytes,
                   size_t length)
{
    *c = (struct change){ .at = *e, .path = ckpt_path(k, e->file),
                          .length = length };
    c->at.offset_bytes += from;
    FILE *f = fopen(c->path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)c->at.offset_bytes, SEEK_SET), 0);
    assert_int_equal(fread(c->old, 1, length, f), length);
    assert_int_equal(fseek(f, (long)c->at.offset_bytes, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

static void undo(const struct change *c)
{
    FILE *f = fopen(c->path, "r+b");
    assert_non_null(f);
    fseek(f, (long)c->at.offset_bytes, SEEK_SET);
    assert_int_equal(fwrite(c->old, 1, c->length, f), c->length);
    assert_int_equal(fclose(f), 0);
}

/* Which of the lines told is about `tensor`, with these words; -1: none. */
static int about(const struct told *t, const char *tensor, const char *text)
{
    for (int i = 0; i < (int)t->count && i < TOLD_MAX; i++)
        if (strstr(t->tensor[i], tensor) && strstr(t->text[i], text))
            return i;
    return -1;
}

static void changed_bytes(void **state)
{
    (void)state;
    static const uint8_t nan16[] = { 0xc1, 0x7f }, inf32[] = { 0, 0, 128, 255 };
    static const uint8_t scale[] = { 255, 255, 255 };
    struct error error = { 0 };
    struct config c;
    struct ckpt *k;
    struct extent e, expert[EXPERT_TENSORS];
    struct change done[4];
    struct verify_facts f;
    struct told t;
    assert_int_equal(config_load(&c, dir, &error), 0);
    assert_int_equal(ckpt_open(&k, dir, &c, &error), 0);
    ckpt_tensor(k, 0, T_Q, &e);
    change(&done[0], k, &e, 14, nan16, 2);
    ckpt_tensor(k, TENSOR_MODEL_LEVEL, T_HEAD, &e);
    change(&done[1], k, &e, e.length_bytes - 2, nan16, 2);
    ckpt_tensor(k, 1, T_DT_BIAS, &e);
    change(&done[2], k, &e, 8, inf32, 4);
    ckpt_expert(k, 2, 3, expert);
    change(&done[3], k, &expert[3], 5, scale, 3);
    check(&f, &t, 2, "auto", NULL);
    assert_int_equal(t.count, 4);
    assert_true(about(&t, "layers.0.self_attn.q_proj.weight",
                      "1 values are not finite, the first at 7") >= 0);
    assert_true(about(&t, "lm_head.weight", "not finite") >= 0);
    assert_true(about(&t, "layers.1.self_attn.dt_bias",
                      "1 values are not finite, the first at 2") >= 0);
    assert_true(about(&t, "layers.2.block_sparse_moe.experts.3.w2"
                      ".weight_scale",
                      "3 scale bytes are 255, the first at 5") >= 0);
    for (int i = 0; i < 4; i++)
        undo(&done[i]);
    check(&f, &t, 2, "auto", NULL);
    assert_int_equal(t.count, 0);
    ckpt_close(k);
    config_free(&c);
}

/* A file whose values lie across the borders of reads: three bytes, then F32
 * from there on, with a NaN across the first mebibyte and the second. */
static void values_across_reads(void **state)
{
    (void)state;
    enum { VALUES = 800000, FIRST = 262143, SECOND = 524287 };
    static const char header[] =
        "{\"a.w1.weight_packed\":{\"dtype\":\"U8\",\"shape\":[3],"
        "\"data_offsets\":[0,3]},\"b.weight\":{\"dtype\":\"F32\",\"shape\":"
        "[800000],\"data_offsets\":[3,3200003]}}";
    static float value[VALUES];
    char odd[64], path[96];
    uint64_t length = sizeof header - 1;
    struct verify_facts facts;
    struct told t;
    for (int i = 0; i < VALUES; i++)
        value[i] = i == FIRST || i == SECOND ? (float)NAN : 1;
    snprintf(odd, sizeof odd, "%s/odd", dir);
    snprintf(path, sizeof path, "%s/model.safetensors", odd);
    assert_int_equal(mkdir(odd, 0700), 0);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, length, f);
    fwrite("abc", 1, 3, f);
    assert_int_equal(fwrite(value, sizeof *value, VALUES, f), VALUES);
    assert_int_equal(fclose(f), 0);
    struct error error = { 0 };
    struct verify_options o = { .dir = odd, .threads = 2, .problem = remember,
                                .arg = &t };
    memset(&t, 0, sizeof t);
    assert_int_equal(verify_run(&facts, &o, &error), 0);
    assert_int_equal(facts.bytes, 8 + length + 3200003);
    assert_true(about(&t, "b.weight", "2 values are not finite, the first at "
                      "262143") >= 0);
    assert_int_equal(t.count, 3); /* nor config nor tokenizer */
}

/* ---- faults ---- */

static void faults_that_recover(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {
        FAULT_SHORT, FAULT_EINTR, FAULT_EAGAIN, FAULT_REORDER, FAULT_EIO,
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t first = 0; first < 12; first += 3) {
            struct fault_plan plan = { .seed = i, .kinds = kinds[i],
                                       .first = first, .every = 5,
                                       .short_bytes = 4096 };
            struct verify_facts f;
            struct told t;
            check(&f, &t, 2, "auto", &plan);
            assert_int_equal(t.count, 0);
        }
}

static void a_drive_that_fails(void **state)
{
    (void)state;
    struct fault_plan plan = { .kinds = FAULT_EIO, .first = 6, .every = 1 };
    struct verify_facts f;
    struct told t;
    check(&f, &t, 2, "auto", &plan);
    assert_true(t.count > 0);
    for (uint32_t i = 0; i < t.count && i < TOLD_MAX; i++) {
        assert_non_null(strstr(t.tensor[i], "."));
        assert_non_null(strstr(t.text[i], "could not be read: Input/output "
                               "error; it may be whole: dmesg"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_against_naive),
        cmocka_unit_test(zeros_against_naive),
        cmocka_unit_test(nothing_wrong),
        cmocka_unit_test(changed_bytes),
        cmocka_unit_test(values_across_reads),
        cmocka_unit_test(faults_that_recover),
        cmocka_unit_test(a_drive_that_fails),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

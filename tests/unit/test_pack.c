/* Goal    a pack has the sizes that were promised: of weights spread as trained
 *         ones are, of the released scales, and at worst; and its places and
 *         checks are those of its header.
 * Method  a matrix of 7,168 columns from synth; the released sample where it is
 *         present; a checkpoint of random bytes; an expert by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/kern.h"
#include "compute/u3.h"
#include "model/ckpt/ckpt.h"
#include "model/ckpt/slurp.h"
#include "model/pack/object.h"
#include "model/pack/pack.h"
#include "model/pack/sidecars.h"
#include "model/tools/synth.h"

#define SAMPLE "../shared/data/kimi-k3/released_w1_scale.u8"

static char dir[64], to[80];
static struct kern kern;

static void remove_all(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s %s", dir, to);
    assert_int_equal(system(command), 0);
}

/* A checkpoint in `dir`. */
static void make(const struct synth_setting *setting, size_t n, bool llm)
{
    struct error error = { 0 };
    struct synth_facts facts;
    strcpy(dir, "/tmp/sluice-pack-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(to, sizeof to, "%s.packed", dir);
    struct synth_options o = { .dir = dir, .preset = "tiny", .setting = setting,
                               .settings = n, .llm = llm };
    if (synth_write(&o, &facts, &error))
        fail_msg("%s", error.text);
}

static struct pack_facts pack(void)
{
    struct error error = { 0 };
    struct pack_facts facts;
    struct config c;
    struct ckpt *k = NULL;
    if (config_load(&c, dir, &error) || ckpt_open(&k, dir, &c, &error))
        fail_msg("%s", error.text);
    struct pack_options o = { .model = dir, .to = to, .jobs = 3, .kern = &kern,
                              .what = SIDECAR_TRUNK | SIDECAR_SCALES };
    if (pack_run(&facts, &o, &c, k, &error))
        fail_msg("%s", error.text);
    ckpt_close(k);
    config_free(&c);
    return facts;
}

static double coded_as_in_k3(void)
{
    enum { ROWS = 64, COLS = 7168 };
    struct error error = { 0 };
    struct extent e;
    struct config c;
    struct ckpt *k = NULL;
    struct mill *mill;
    struct made made;
    uint64_t raw = 0, stored = 0;
    uint8_t *block = aligned_alloc(64, u3_bytes_max(ROWS, COLS));
    char *file;
    size_t bytes;
    assert_int_equal(u3_block_rows(COLS), ROWS);
    if (config_load(&c, dir, &error) || ckpt_open(&k, dir, &c, &error) ||
        ckpt_tensor(k, TENSOR_MODEL_LEVEL, T_HEAD, &e) ||
        slurp_file(&file, &bytes, ckpt_path(k, e.file), 1u << 30, &error))
        fail_msg("%s", error.text);
    assert_int_equal(mill_open(&mill, &kern), 0);
    for (; raw + ROWS * COLS * 2 <= e.length_bytes; raw += ROWS * COLS * 2) {
        assert_int_equal(mill_block(mill, &made, block,
                                    file + e.offset_bytes + raw, ROWS, COLS),
                         0);
        stored += made.bytes;
    }
    mill_close(mill);
    free(file);
    free(block);
    ckpt_close(k);
    config_free(&c);
    return (double)stored / (double)raw;
}

static void ratio_of_trained_weights(void **state)
{
    static const struct synth_setting wide[] = {
        { "hidden_size", "7168" }, { "num_hidden_layers", "2" },
        { "full_attn_layers", "2" }, { "num_experts", "8" },
        { "intermediate_size", "256" }, { "vocab_size", "768" },
    };
    (void)state;
    make(wide, sizeof wide / sizeof *wide, true);
    struct pack_facts f = pack();
    const struct pack_kind *head = &f.kind[T_HEAD];
    assert_true(head->patches > 0 &&
                head->patches < head->raw_bytes / 2 / 500);
    /* In a model of this size blocks are small; now as K3 has them. */
    double ratio = coded_as_in_k3();
    print_message("# lm_head of 7,168 columns: %.4f, in small blocks %.4f\n",
                  ratio,
                  (double)head->stored_bytes / (double)head->raw_bytes);
    assert_true(ratio > 0.675 && ratio < 0.682);
    remove_all();
}

/* The worst that a file may take: random bytes, which nothing codes. */
static void worst_case(void **state)
{
    struct error error = { 0 };
    struct sidecars s;
    struct config c;
    struct ckpt *k = NULL;
    (void)state;
    make(NULL, 0, false);
    assert_int_equal(config_load(&c, dir, &error), 0);
    assert_int_equal(ckpt_open(&k, dir, &c, &error), 0);
    uint64_t random = 5;
    for (uint32_t f = 0; f < ckpt_files(k); f++) {
        struct pack_shard w;
        assert_int_equal(pack_shard_of(&w, &c, k, f), 0);
        FILE *file = fopen(ckpt_path(k, f), "r+b");
        assert_non_null(file);
        for (uint32_t i = 0; i < w.matrices; i++) {
            fseek(file, (long)w.matrix[i].at, SEEK_SET);
            uint64_t words = (uint64_t)w.matrix[i].rows * w.matrix[i].cols / 4;
            for (uint64_t n = 0; n < words; n++) {
                random = random * UINT64_C(6364136223846793005) + 1;
                uint64_t word = random ^ random >> 29;
                fwrite(&word, sizeof word, 1, file);
            }
        }
        fclose(file);
        pack_shard_free(&w);
    }
    pack();
    assert_int_equal(sidecars_open(&s, "require", dir, &c, k, NULL, NULL,
                                   &error), 0);
    assert_int_equal(s.used, ckpt_files(k));
    for (uint32_t f = 0; f < s.files; f++) {
        const struct sidecar *x = s.of[f];
        uint64_t most = 8192 + x->box.head.tables_bytes;
        for (uint32_t i = 0; i < x->head->tensors; i++) {
            const struct sidecar_tensor *t = &x->tensor[i];
            assert_true(t->bytes > t->source_bytes);
            assert_true(t->bytes <= t->source_bytes + 128 * t->block_count);
            most += 4096 + t->bytes;
        }
        for (uint32_t i = 0; i < x->head->experts; i++)
            most += (x->expert[i].ref.bytes + 4095) / 4096 * 4096;
        assert_true(x->box.head.file_bytes <= most);
    }
    sidecars_close(&s);
    ckpt_close(k);
    config_free(&c);
    remove_all();
}

/* An object of an expert of K3 from the released rows, repeated. */
static void released_scales(void **state)
{
    static const struct plane_shape shape[SIDECAR_PLANES] = {
        { 3072, 112 }, { 3584, 96 }, { 3072, 112 }
    };
    char *sample;
    size_t bytes;
    struct mill *mill;
    struct sidecar_expert e;
    uint8_t *plane[SIDECAR_PLANES], *back[SIDECAR_PLANES];
    (void)state;
    if (slurp_file(&sample, &bytes, SAMPLE, 1 << 20, NULL))
        skip();
    assert_int_equal(bytes, 64 * 112);
    struct s5 s;
    s5_choose(&s, (const uint8_t *)sample, 64, 112);
    double one = (64.0 * (double)s5_row_bytes(s.mode, 112) + 4.0 * s.patches) /
                 (64 * 112);
    print_message("# released rows: %.4f, mode %d\n", one, s.mode);
    assert_true(one > 0.2049 && one < 0.2056);
    size_t raw = 0;
    for (int p = 0; p < SIDECAR_PLANES; p++) {
        size_t n = (size_t)shape[p].rows * shape[p].cols;
        plane[p] = malloc(n);
        back[p] = malloc(n);
        assert_true(plane[p] && back[p]);
        for (size_t i = 0; i < n; i++)
            plane[p][i] = (uint8_t)sample[i % bytes];
        raw += n;
    }
    uint8_t *object = malloc(raw);
    assert_non_null(object);
    assert_int_equal(mill_open(&mill, &kern), 0);
    const uint8_t *const from[] = { plane[0], plane[1], plane[2] };
    assert_int_equal(mill_scales(mill, &e, object, from, shape), 0);
    assert_int_equal(e.ref.bytes, 212992);
    assert_true((double)e.ref.bytes / (double)raw < 0.2064);
    assert_null(object_check_scales(object, &e, shape, true));
    object_expand(back, object, &e, shape);
    for (int p = 0; p < SIDECAR_PLANES; p++)
        assert_memory_equal(back[p], plane[p],
                            (size_t)shape[p].rows * shape[p].cols);
    object[100] ^= 1;
    assert_string_equal(object_check_scales(object, &e, shape, true),
                        "its checksum does not match");
    for (int p = 0; p < SIDECAR_PLANES; p++) {
        free(plane[p]);
        free(back[p]);
    }
    mill_close(mill);
    free(object);
    free(sample);
}

static void a_bad_block_is_told(void **state)
{
    static _Alignas(64) uint8_t block[8 * 128 * 2 + 256];
    static uint16_t w[8][128];
    struct mill *mill;
    struct made made;
    (void)state;
    for (int i = 0; i < 8 * 128; i++)
        w[i / 128][i % 128] = (uint16_t)(0x3f00 + i);
    assert_int_equal(mill_open(&mill, &kern), 0);
    assert_int_equal(mill_block(mill, &made, block, w, 8, 128), 0);
    struct box_ref ref = { 4096, made.bytes, made.crc };
    assert_null(object_check_block(block, &ref, 8, 128));
    assert_non_null(object_check_block(block, &ref, 8, 129));
    block[made.bytes - 1] ^= 16;
    assert_string_equal(object_check_block(block, &ref, 8, 128),
                        "its checksum does not match");
    mill_close(mill);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratio_of_trained_weights),
        cmocka_unit_test(worst_case),
        cmocka_unit_test(released_scales),
        cmocka_unit_test(a_bad_block_is_told),
    };
    kern_init(&kern, ISA_COUNT - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Goal    any shape that a config may have gives the same bits however it is
 *         run, or is refused with a sentence; no plan breaks the ring.
 * Method  small checkpoints of odd and extreme shapes: at the floor, with all
 *         of it in memory, by rows, threads, drives and prefetches, compared
 * with memcmp. Configs with huge numbers, without weights. Random tiles on
 *         random drives: whatever ring the plan gives, the stream opens and the
 *         circle goes round.
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
#include <jansson.h>

#include "io/arena.h"
#include "io/paced.h"
#include "io/reader.h"
#include "sched/plan.h"
#include "sched/stream.h"
#include "tests/fault/mini.h"

enum { SETTINGS = 12 };

struct shape {
    const char *name;
    const char *refused; /* words of the sentence, or NULL: it works */
    struct synth_setting set[SETTINGS];
};

static const struct shape shapes[] = {
    { "one layer", NULL,
      { { "num_hidden_layers", "1" }, { "first_k_dense_replace", "0" } } },
    { "no dense layer", NULL, { { "first_k_dense_replace", "0" } } },
    { "two of three dense", NULL, { { "first_k_dense_replace", "2" } } },
    { "no MoE layer", "no MoE layer", { { "first_k_dense_replace", "3" } } },
    { "MLA alone", NULL, { { "full_attn_layers", "1,2,3" } } },
    { "MLA first", NULL, { { "full_attn_layers", "1" } } },
    { "a convolution of 1", NULL, { { "short_conv_kernel_size", "1" } } },
    { "of 2", NULL, { { "short_conv_kernel_size", "2" } } },
    { "of 16", NULL, { { "short_conv_kernel_size", "16" } } },
    { "of 17", "short_conv_kernel_size",
      { { "short_conv_kernel_size", "17" } } },
    { "63 snapshots", NULL,
      { { "num_hidden_layers", "63" }, { "attn_res_block_size", "1" },
        { "num_experts", "2" }, { "num_experts_per_token", "1" } } },
    { "64 snapshots", "attn_res_block_size",
      { { "num_hidden_layers", "64" }, { "attn_res_block_size", "1" },
        { "num_experts", "2" }, { "num_experts_per_token", "1" } } },
    { "one snapshot", NULL, { { "attn_res_block_size", "4096" } } },
    { "every expert", NULL, { { "num_experts_per_token", "24" } } },
    { "one expert", NULL,
      { { "num_experts", "1" }, { "num_experts_per_token", "1" } } },
    { "256 of 300", NULL,
      { { "num_experts", "300" }, { "num_experts_per_token", "256" } } },
    { "257 of 300", "num_experts_per_token",
      { { "num_experts", "300" }, { "num_experts_per_token", "257" } } },
    { "3,000 experts", NULL,
      { { "num_experts", "3000" }, { "num_hidden_layers", "2" } } },
    { "five shared", NULL, { { "num_shared_experts", "5" } } },
    { "no norm, no renormalizing", NULL,
      { { "latent_moe_use_norm", "false" }, { "moe_renormalize", "false" } } },
    { "a head of 512", NULL, { { "head_dim", "512" }, { "num_heads", "1" } } },
    { "nothing is even", NULL,
      { { "hidden_size", "101" }, { "q_lora_rank", "47" },
        { "kv_lora_rank", "41" }, { "qk_nope_head_dim", "23" },
        { "qk_rope_head_dim", "7" }, { "v_head_dim", "19" },
        { "intermediate_size", "257" }, { "head_dim", "17" },
        { "num_heads", "3" }, { "num_attention_heads", "3" },
        { "vocab_size", "773" }, { "moe_intermediate_size", "96" } } },
    { "nothing but ones", NULL,
      { { "hidden_size", "1" }, { "q_lora_rank", "1" },
        { "kv_lora_rank", "1" }, { "qk_nope_head_dim", "1" },
        { "qk_rope_head_dim", "1" }, { "v_head_dim", "1" },
        { "intermediate_size", "1" }, { "head_dim", "1" },
        { "num_heads", "1" }, { "num_attention_heads", "1" } } },
    { "wide", NULL, { { "hidden_size", "1040" } } },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void same(const struct mini *m, const struct k3_options *o,
                 const struct mini_run *want, const char *shape,
                 const char *how)
{
    struct mini_run r;
    if (mini_run(m, o, &r))
        fail_msg("%s, %s: %s", shape, how, r.error.text);
    if (r.rows != want->rows || !mini_agrees(&r, want))
        fail_msg("%s, %s: other bits", shape, how);
    mini_forget(&r);
}

static void every_way(struct mini *m, const char *shape)
{
    static const struct paced_drive drives[3] = {
        { 1000000000, 0 }, { 500000000, 0 }, { 2000000000, 0 } };
    struct k3_options o = mini_options(512 << 20);
    struct mini_run want;
    o.prefetch = "gate";
    if (mini_run(m, &o, &want))
        fail_msg("%s: %s", shape, want.error.text);
    o.prefetch = "none";
    o.memory_bytes = mini_floor(m, o);
    if (!o.memory_bytes)
        fail_msg("%s: %s", shape, m->wrong);
    same(m, &o, &want, shape, "at the floor");
    o.memory_bytes += 300 << 10;
    o.threads = 1;
    o.io = "pread";
    same(m, &o, &want, shape, "one thread, pread");
    o.paced = drives;
    o.paced_count = 3;
    o.memory_bytes = mini_floor(m, o);
    same(m, &o, &want, shape, "three drives");
    mini_forget(&want);
}

static void any_shape(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        struct mini m;
        uint32_t n = 0;
        while (n < SETTINGS && s->set[n].field)
            n++;
        if (!mini_make(&m, s->set, n)) {
            if (!s->refused || !strstr(m.wrong, s->refused))
                fail_msg("%s: %s", s->name, m.wrong);
            continue;
        }
        if (!s->refused) {
            every_way(&m, s->name);
        } else if (mini_floor(&m, mini_options(0)) ||
                   !strstr(m.wrong, s->refused)) {
            fail_msg("%s: not refused: %s", s->name, m.wrong);
        }
        mini_remove(&m);
    }
}

/* ---- huge numbers ---- */

static json_t *text_of(json_t *root, const char *field)
{
    json_t *text = json_object_get(root, "text_config");
    json_t *linear = json_object_get(text, "linear_attn_config");
    return json_object_get(linear, field) ? linear : text;
}

enum { FIELDS = 16, HEADS = 9, HEAD_DIM, INTER = 13, LATENT };
static const struct {
    const char *field;
    json_int_t max;
} fields[FIELDS] = {
    { "hidden_size", 1 << 20 }, { "vocab_size", 1 << 24 },
    { "intermediate_size", 1 << 22 }, { "num_attention_heads", 4096 },
    { "q_lora_rank", 1 << 16 }, { "kv_lora_rank", 1 << 16 },
    { "qk_nope_head_dim", 4096 }, { "qk_rope_head_dim", 4096 },
    { "v_head_dim", 4096 }, { "num_heads", 4096 }, { "head_dim", 4096 },
    { "num_experts", 4096 }, { "num_experts_per_token", 256 },
    { "moe_intermediate_size", 1 << 18 },
    { "routed_expert_hidden_size", 1 << 18 }, { "num_shared_experts", 4 },
};

/* Plan for a config with these numbers, or refuse it; memory is no matter. */
static int plan_of(const char *dir, json_t *config,
                   const json_int_t number[FIELDS], uint32_t sequences,
                   struct error *error)
{
    struct k3_options o = mini_options(UINT64_C(1) << 60);
    struct plan plan;
    char path[128];
    for (int i = 0; i < FIELDS; i++)
        json_object_set_new(text_of(config, fields[i].field), fields[i].field,
                            json_integer(number[i]));
    json_object_set_new(text_of(config, "num_key_value_heads"),
                        "num_key_value_heads", json_integer(number[3]));
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    o.context = 1 << 24;
    o.threads = 1024;
    o.sequences = sequences;
    memset(error, 0, sizeof *error);
    int err = k3_plan(&plan, dir, &o, error);
    if (err)
        assert_true(strlen(error->text) > 10);
    else
        assert_true(plan.floor_bytes > 1 << 20 &&
                    plan.floor_bytes <= plan.total_bytes &&
                    plan.total_bytes <= o.memory_bytes);
    return err;
}

static void huge_numbers(void **state)
{
    (void)state;
    struct mini m;
    struct error error;
    char path[128];
    uint64_t random = 20260131;
    json_int_t number[FIELDS];
    assert_true(mini_make(&m, NULL, 0));
    snprintf(path, sizeof path, "%s/config.json", m.dir);
    json_t *config = json_load_file(path, 0, NULL);
    for (int i = 0; i < FIELDS; i++)
        number[i] = fields[i].max;
    assert_int_equal(plan_of(m.dir, config, number, 1, &error), -ENOTSUP);
    assert_non_null(strstr(error.text, "expert"));
    for (int i = 2; i < FIELDS; i++) /* lm_head is 32 TiB */
        number[i] = 32;
    assert_int_equal(plan_of(m.dir, config, number, 1, &error), -ENOTSUP);
    assert_non_null(strstr(error.text, "TiB"));
    number[0] = number[1] = 512;
    number[HEADS] = number[HEAD_DIM] = 4096; /* f_b is 128 GiB */
    assert_int_equal(plan_of(m.dir, config, number, 1, &error), -ENOTSUP);
    assert_non_null(strstr(error.text, "4 GiB"));
    assert_int_equal(plan_of(m.dir, config, number, UINT32_MAX, &error),
                     -ENOTSUP);
    assert_non_null(strstr(error.text, "sequences"));
    for (int i = 0; i < 24; i++) {
        for (int j = 0; j < FIELDS; j++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            json_int_t n = fields[j].max >> (random >> 60);
            number[j] = n < 512 ? 512 : n;
            number[j] = number[j] > fields[j].max ? fields[j].max : number[j];
        }
        int err = plan_of(m.dir, config, number, 1, &error);
        if (number[LATENT] * number[INTER] * 3 / 32 * 17 > INT32_MAX)
            assert_int_equal(err, -ENOTSUP);
    }
    json_decref(config);
    mini_remove(&m);
}

/* ---- rings ---- */

enum { TILES_MAX = 64, SET_DRIVES = 4, FILE_PAGES = 1 << 12, PAGE = 4096 };

static uint32_t below(uint64_t *s, uint64_t n)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*s >> 33) % n);
}

/* Tiles of very different sizes on drives of very different shares. */
static void one_ring(uint64_t *s, const char *const *paths,
                     struct arena *arena, uint8_t *memory)
{
    struct paced_drive rate[SET_DRIVES];
    struct plan_tile tile[TILES_MAX];
    struct stream_tile lent[TILES_MAX];
    struct segment segment[TILES_MAX];
    bool resident[TILES_MAX];
    struct plan p;
    uint32_t drives = 2 + below(s, SET_DRIVES - 1), bad;
    uint32_t tiles = 3 + below(s, TILES_MAX - 3), pages[SET_DRIVES];
    struct plan_input in = { .tiles = tile, .tile_count = tiles, .rows = 1,
                             .sequences = 1, .drives = drives };
    for (uint32_t d = 0; d < drives; d++) {
        pages[d] = 1 + below(s, 1ull << below(s, 11));
        rate[d] = (struct paced_drive){ 1000000000000, 0 };
    }
    for (uint32_t t = 0; t < tiles; t++) {
        uint32_t d = below(s, 1 + below(s, drives)); /* the first has most */
        uint64_t n = (below(s, 4) ? pages[d] : 1 + below(s, pages[d])) * PAGE;
        tile[t] = (struct plan_tile){ .frame_bytes = n, .payload_bytes = n,
                                      .drive = d };
        lent[t] = (struct stream_tile){ .first_segment = t, .segment_count = 1,
                                        .frame_bytes = n, .payload_bytes = n };
        segment[t] = (struct segment){ .file = d, .length_bytes = n };
    }
    assert_int_equal(plan_make(&p, resident, &in), -ENOBUFS);
    in.budget_bytes = p.floor_bytes + below(s, 3) * below(s, 4000) * PAGE;
    assert_int_equal(plan_make(&p, resident, &in), 0);
    uint8_t *at = memory + p.ring_bytes;
    for (uint32_t t = 0; t < tiles; t++)
        if (resident[t]) {
            lent[t].home = at;
            at += lent[t].frame_bytes;
        }
    assert_true((uint64_t)(at - memory) <= arena_bytes(arena));
    struct reader_options ro = { .method = "pread", .paths = paths,
                                 .files = drives, .paced = rate,
                                 .paced_count = drives,
                                 .in_flight_bytes = 8 << 20 };
    struct reader *reader;
    struct stream *stream;
    assert_int_equal(reader_open(&reader, &ro, &bad), 0);
    struct stream_options so = { .reader = reader, .segments = segment,
                                 .tiles = lent, .tile_count = tiles,
                                 .ring = memory, .ring_bytes = p.ring_bytes,
                                 .chunk_bytes = 1 << 20, .loads_max = 1 };
    assert_int_equal(stream_open(&stream, &so), 0);
    assert_int_equal(stream_preload(stream), 0);
    stream_set_readahead(stream, 2ull * tiles);
    for (uint32_t i = 0; i < 2 * tiles; i++) {
        const uint8_t *frame;
        assert_int_equal(stream_hold(stream, i % tiles, &frame), 0);
        stream_release(stream, i % tiles);
    }
    stream_close(stream);
    reader_close(reader);
}

static void any_ring(void **state)
{
    (void)state;
    char path[SET_DRIVES][64];
    const char *paths[SET_DRIVES];
    struct arena *arena;
    uint64_t s = 1;
    for (int d = 0; d < SET_DRIVES; d++) {
        strcpy(path[d], "/tmp/sluice-ring-XXXXXX");
        int fd = mkstemp(path[d]);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)FILE_PAGES * PAGE), 0);
        close(fd);
        paths[d] = path[d];
    }
    assert_int_equal(arena_open(&arena, 256 << 20), 0);
    uint8_t *memory = arena_take(arena, 256 << 20, PAGE);
    for (int i = 0; i < 150; i++)
        one_ring(&s, paths, arena, memory);
    arena_close(arena);
    for (int d = 0; d < SET_DRIVES; d++)
        unlink(path[d]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_shape),
        cmocka_unit_test(huge_numbers),
        cmocka_unit_test(any_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Goal    what `sluice plan` says from config.json alone is what a run of the
 *         published files does.
 * Method  layouts against the headers of real checkpoints and the 94 published
 *         file sizes; plans from a config against plans from the same
 *         checkpoint; bytes a token of the full K3 against sums over its
 *         published tensors. K3 is the preset, test_config holds it to the
 *         released file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ckpt/layout.h"
#include "model/k3/shape.h"
#include "model/sim/pass_clock.h"
#include "model/sim/token_cost.h"
#include "model/tools/synth_internal.h"

static const char *const oracles[] = { "tests/oracle/fixtures/a",
                                       "tests/oracle/fixtures/c" };
enum { ORACLES = sizeof oracles / sizeof *oracles };

static void load(struct config *c, const char *dir)
{
    struct error error = { 0 };
    if (config_load(c, dir, &error))
        fail_msg("%s", error.text);
}

static void load_k3(struct config *c)
{
    struct error error = { 0 };
    struct synth_options o = { .dir = "-", .preset = "k3" };
    json_t *root;
    if (synth_config(&root, c, &o, 0, &error))
        fail_msg("%s", error.text);
    json_decref(root);
}

static void same_extent(const struct extent *a, const struct extent *b)
{
    assert_int_equal(a->file, b->file);
    assert_int_equal(a->offset_bytes, b->offset_bytes);
    assert_int_equal(a->length_bytes, b->length_bytes);
}

static void compare_layout(const struct layout *l, const struct ckpt *k,
                           const struct config *c)
{
    assert_int_equal(layout_files(l), ckpt_files(k));
    for (uint32_t f = 0; f < layout_files(l); f++)
        assert_int_equal(layout_file_bytes(l, f), ckpt_file_size(k, f));
    for (int layer = TENSOR_MODEL_LEVEL; layer < (int)c->layers; layer++)
        for (int r = 0; r < T_COUNT; r++) {
            struct extent a, b;
            int got = layout_tensor(l, layer, (enum tensor_role)r, &a);
            assert_int_equal(
                got, ckpt_tensor(k, layer, (enum tensor_role)r, &b));
            if (!got)
                same_extent(&a, &b);
        }
    for (uint32_t layer = c->first_dense; layer < c->layers; layer++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct extent a[EXPERT_TENSORS], b[EXPERT_TENSORS];
            layout_expert(l, layer, e, a);
            ckpt_expert(k, layer, e, b);
            for (int i = 0; i < EXPERT_TENSORS; i++)
                same_extent(&a[i], &b[i]);
        }
}

static void layout_is_the_checkpoints(void **state)
{
    (void)state;
    for (int i = 0; i < ORACLES; i++) {
        struct error error = { 0 };
        struct config c;
        struct ckpt *k;
        struct layout *l;
        load(&c, oracles[i]);
        assert_int_equal(ckpt_open(&k, oracles[i], &c, &error), 0);
        assert_int_equal(layout_open(&l, &c), 0);
        compare_layout(l, k, &c);
        layout_close(l);
        ckpt_close(k);
        config_free(&c);
    }
}

static void same_plan(const struct plan *a, const struct plan *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

/* Budgets from below the floor to above everything. */
static void plan_is_the_sessions(void **state)
{
    (void)state;
    for (int i = 0; i < ORACLES; i++) {
        struct error error = { 0 };
        struct config c;
        struct ckpt *k;
        struct paced_drive pace[2] = { { 1000000000, 0 }, { 2000000000, 0 } };
        load(&c, oracles[i]);
        assert_int_equal(ckpt_open(&k, oracles[i], &c, &error), 0);
        for (uint32_t drives = 1; drives <= 2; drives++)
            for (uint64_t m = 24 << 20; m < 40 << 20; m += 123457) {
                struct k3_options o = { .memory_bytes = m, .rows = 9,
                                        .paced = pace,
                                        .paced_count = drives };
                struct k3_shape a, b;
                k3_option_defaults(&o);
                int err = k3_shape_of(&a, k, &c, &o, 2, NULL);
                assert_int_equal(k3_shape_of(&b, NULL, &c, &o, 2, NULL), err);
                same_plan(&a.plan, &b.plan);
                assert_int_equal(a.expert_frame_bytes, b.expert_frame_bytes);
                if (err)
                    continue;
                assert_int_equal(a.tiles->count, b.tiles->count);
                assert_memory_equal(a.resident, b.resident, a.tiles->count);
                k3_shape_free(&a);
                k3_shape_free(&b);
            }
        ckpt_close(k);
        config_free(&c);
    }
}

/* Bytes of the 93 shards of layers on the model's page. */
static uint64_t published_bytes(uint32_t layer)
{
    bool mla = layer % 4 == 3 || layer == 92;
    if (layer == 0)
        return 2341216112;
    if (layer < 10)
        return mla ? 16567501776 : 16990911504;
    return mla ? 16567507176 : 16990916912;
}

static void files_are_the_published(void **state)
{
    (void)state;
    struct config c;
    struct layout *l;
    load_k3(&c);
    assert_int_equal(layout_open(&l, &c), 0);
    assert_int_equal(layout_files(l), 94);
    for (uint32_t f = 0; f < 93; f++)
        assert_int_equal(layout_file_bytes(l, f), published_bytes(f));
    assert_int_equal(layout_file_bytes(l, 93), 4697664072);
    struct extent e[EXPERT_TENSORS];
    layout_expert(l, 10, 0, e);
    assert_int_equal(e[0].offset_bytes, 1268568368);
    layout_expert(l, 3, 1, e); /* in string order: 0, 1, 10, ... */
    assert_int_equal(e[0].offset_bytes, 845153232 + 17547264);
    layout_expert(l, 3, 10, e);
    assert_int_equal(e[0].offset_bytes, 845153232 + 2 * 17547264);
    assert_int_equal(layout_expert_frame_bytes(l), 17551360);
    layout_close(l);
    config_free(&c);
}

static void cost(struct token_cost *t, const struct config *c, uint64_t bytes)
{
    struct error error = { 0 };
    struct k3_options o = { .memory_bytes = bytes, .threads = 2, .rows = 256,
                            .logits = 1 };
    if (token_cost(t, c, &o, &error))
        fail_msg("%s", error.text);
}

/* The published C engine keeps lm_head and nothing else of the trunk at its
 * floor of about 8 GB, so its ladder begins at trunk + experts = 134.64 GB a
 * token. Here lm_head is one of the streamed tiles: the floor is 1.4 GiB and a
 * token reads lm_head and an embedding row more, and from there each byte of
 * memory in the trunk saves a byte of reading. */
static void ladder_of_k3(void **state)
{
    (void)state;
    const uint64_t trunk = 108811877376, experts = 25829572608;
    const uint64_t head = 2348824576, all = 136990274560;
    /* Bytes that the published engine reads a token at each size, and, from
     * 128 GB, nothing but experts. */
    static const struct { uint64_t gb; double theirs; } rung[] = {
        { 8, 134.6e9 }, { 32, 110.1e9 }, { 64, 78.1e9 },
        { 128, 25.83e9 }, { 224, 25.83e9 },
    };
    struct config c;
    struct token_cost t, floor;
    load_k3(&c);
    assert_int_equal(trunk + experts + head, all);
    cost(&floor, &c, 0);
    assert_int_equal(floor.read_bytes, all);
    assert_int_equal(floor.whole_bytes, all + 3 * 2 * 7168);
    assert_true(floor.plan.floor_bytes <= 3ull << 29); /* 1.5 GiB */
    assert_int_equal(floor.plan.budget_bytes, floor.plan.floor_bytes);
    assert_int_equal(floor.read_bytes - head, trunk + experts);
    for (size_t i = 0; i < sizeof rung / sizeof *rung; i++) {
        cost(&t, &c, rung[i].gb * 1000000000);
        assert_int_equal(t.read_bytes + t.plan.resident_payload_bytes,
                         floor.whole_bytes);
        assert_int_equal(t.expert_bytes, experts);
        assert_true((double)t.read_bytes < rung[i].theirs + 5e6);
    }
    config_free(&c);
}

/* Only page envelopes and the ends of tiles are lost on the way. */
static void memory_saves_reading(void **state)
{
    (void)state;
    struct config c;
    struct token_cost less, more;
    load_k3(&c);
    cost(&less, &c, 16ull << 30);
    cost(&more, &c, 32ull << 30);
    double saved = (double)(less.read_bytes - more.read_bytes);
    assert_true(saved > 0.999 * (16ull << 30));
    assert_true(saved <= 1.0 * (16ull << 30) + (16 << 20));
    config_free(&c);
}

static void times_and_drives(void **state)
{
    (void)state;
    struct error error = { 0 };
    struct config c;
    struct token_cost t;
    struct paced_drive pace[2] = { { 7000000000, 0 }, { 3500000000, 0 } };
    struct k3_options o = { .paced = pace, .paced_count = 2 };
    load_k3(&c);
    assert_int_equal(token_cost(&t, &c, &o, &error), 0);
    assert_int_equal(t.drive_bytes[0] + t.drive_bytes[1], t.read_bytes);
    double a = (double)t.drive_bytes[0] / 7e9;
    double b = (double)t.drive_bytes[1] / 3.5e9;
    assert_true(t.io_s == (a > b ? a : b));
    /* With memory to choose from, both drives read for equally long. */
    o.memory_bytes = 64ull << 30;
    assert_int_equal(token_cost(&t, &c, &o, &error), 0);
    a = (double)t.drive_bytes[0] / 7e9;
    b = (double)t.drive_bytes[1] / 3.5e9;
    assert_true(a > 0.98 * b && b > 0.98 * a);
    o.memory_bytes = 1 << 20;
    assert_int_equal(token_cost(&t, &c, &o, &error), -ENOBUFS);
    assert_true(t.plan.floor_bytes > 1 << 30);
    assert_non_null(strstr(error.text, "floor"));
    /* Without the embedding row, with the three resident vectors, and of each
     * A_log the 96 values that are used of 128. */
    assert_int_equal(token_weight_bytes(&c),
                     136990274560 - 14336 + 43008 - 69 * 32 * 4);
    config_free(&c);
}

struct clock {
    struct config c;
    struct pass_clock *clock;
    struct simulate_cost *cost;
};

/* Seconds of a token; the longer side alone in *io_s. */
static struct pass_times seconds(const struct clock *k, struct k3_options *o,
                                 uint64_t gib)
{
    struct error error = { 0 };
    struct pass_times t;
    o->memory_bytes = gib << 30;
    o->policy = o->prefetch = "none";
    if (pass_clock_run(&t, k->clock, o, k->cost, &error))
        fail_msg("%s", error.text);
    return t;
}

static void open_clock(struct clock *k, double compute_s)
{
    struct error error = { 0 };
    load_k3(&k->c);
    assert_int_equal(pass_clock_open(&k->clock, &k->c, 1, 1, 1, &error), 0);
    assert_int_equal(simulate_cost_seconds(&k->cost, &k->c, compute_s, &error),
                     0);
}

static void close_clock(struct clock *k)
{
    pass_clock_close(k->clock);
    simulate_cost_free(k->cost);
    config_free(&k->c);
}

/* A drive that is the longer side by far is the time; with the trunk resident
 * reads wait for the router, so that it is more than the longer side and less
 * than the sum; two drives with room to read ahead are near twice one. */
static void simulated_seconds(void **state)
{
    (void)state;
    const double compute = 2;
    struct error error = { 0 };
    struct clock k;
    struct token_cost t;
    struct pass_times s;
    struct paced_drive pace[2] = { { 7000000000, 0 }, { 7000000000, 0 } };
    struct k3_options o = { .paced = pace, .paced_count = 1 };
    open_clock(&k, compute);
    for (uint64_t gib = 2; gib <= 64; gib *= 32) {
        s = seconds(&k, &o, gib);
        assert_int_equal(token_cost(&t, &k.c, &o, &error), 0);
        assert_true(s.seconds > t.io_s && s.seconds < 1.02 * t.io_s);
        assert_int_equal(pass_cause(&s), CAUSE_BYTES);
    }
    s = seconds(&k, &o, 200);
    assert_int_equal(token_cost(&t, &k.c, &o, &error), 0);
    assert_true(t.io_s > compute && s.seconds > t.io_s &&
                s.seconds < t.io_s + compute);
    o.paced_count = 2;
    s = seconds(&k, &o, 64);
    assert_int_equal(token_cost(&t, &k.c, &o, &error), 0);
    assert_true(s.seconds > t.io_s && s.seconds < 1.3 * t.io_s);
    o.memory_bytes = 1 << 20;
    assert_int_equal(pass_clock_run(&s, k.clock, &o, k.cost, &error),
                     -ENOBUFS);
    close_clock(&k);
}

/* With the trunk resident all experts of a layer are on one drive: others rest.
 * In parts, n drives are one of n times the rate. */
static void simulated_layouts(void **state)
{
    (void)state;
    struct clock k;
    struct paced_drive pace[8], one = { 0, 100000 };
    struct k3_options o = { 0 };
    open_clock(&k, 1.11);
    for (uint32_t d = 0; d < 8; d++)
        pace[d] = (struct paced_drive){ 7000000000, 100000 };
    for (uint32_t n = 2; n <= 8; n *= 4) {
        one.bytes_per_s = n * 7000000000;
        o.paced = &one;
        o.paced_count = 1;
        double ideal = seconds(&k, &o, 128).seconds;
        o.paced = pace;
        double alone = seconds(&k, &o, 128).seconds;
        o.paced_count = n;
        struct pass_times shards = seconds(&k, &o, 128);
        o.layout = K3_PARTS;
        double parts = seconds(&k, &o, 128).seconds;
        o.layout = K3_MIRRORS;
        double mirrors = seconds(&k, &o, 128).seconds;
        o.layout = K3_SHARDS;
        assert_true(mirrors < 1.07 * ideal && mirrors > 0.99 * ideal);
        assert_true(shards.seconds > 0.98 * alone);
        assert_int_equal(pass_cause(&shards), CAUSE_TURNS);
        assert_true(parts < (n == 2 ? 1.03 : 1.05) * ideal);
        assert_true(parts > 0.99 * ideal);
    }
    close_clock(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_the_checkpoints),
        cmocka_unit_test(plan_is_the_sessions),
        cmocka_unit_test(files_are_the_published),
        cmocka_unit_test(ladder_of_k3),
        cmocka_unit_test(memory_saves_reading),
        cmocka_unit_test(times_and_drives),
        cmocka_unit_test(simulated_seconds),
        cmocka_unit_test(simulated_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

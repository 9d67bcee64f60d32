/* Goal    every row of every matrix has one owner, at the cuts that were
 *         promised, in proportion to the weights.
 * Method  cuts of K3's matrices and of shapes with odd heads, one to sixteen
 *         parts, seeded weights; counted row by row. K3 in four parts by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/cuts.h"

static bool mla_of[4] = { false, true, false, true };

/* A dense layer of KDA, then MLA, KDA, MLA with experts. */
static const struct config k3_like = {
    .hidden = 7168, .layers = 4, .vocab = 163840, .dense_inter = 33792,
    .attn_res_block = 12, .heads = 96, .q_rank = 1536, .kv_rank = 512,
    .nope = 128, .rope = 64, .v_dim = 128, .kda_heads = 96, .kda_dim = 128,
    .conv_kernel = 4, .experts = 896, .top_k = 16, .shared_experts = 2,
    .moe_inter = 3072, .latent = 3584, .first_dense = 1, .latent_norm = true,
    .is_mla = mla_of,
};

static const struct config odd = {
    .hidden = 72, .layers = 4, .vocab = 1003, .dense_inter = 88,
    .attn_res_block = 2, .heads = 5, .q_rank = 24, .kv_rank = 20, .nope = 12,
    .rope = 4, .v_dim = 6, .kda_heads = 7, .kda_dim = 20, .conv_kernel = 4,
    .experts = 9, .top_k = 2, .shared_experts = 1, .moe_inter = 32,
    .latent = 64, .first_dense = 1, .latent_norm = true, .is_mla = mla_of,
};

static void check_ranges(const struct cuts *cuts, enum tensor_role role,
                         const struct config *c, int64_t layer)
{
    uint32_t rows, cols, at = 0, unit = cuts_unit(role, c, layer);
    double all = 0, before = 0;
    tensor_shape(role, c, layer, &rows, &cols);
    assert_int_equal(unit % CUTS_ROWS, 0);
    for (uint32_t p = 0; p < cuts->parts; p++)
        all += cuts->weight[p];
    for (uint32_t p = 0; p < cuts->parts; p++) {
        struct row_range r = cuts_rows(cuts, p, role, c, layer);
        if (cuts_small(role, c, layer)) {
            assert_int_equal(r.begin, 0);
            assert_int_equal(r.end, rows);
            continue;
        }
        assert_int_equal(r.begin, at);
        assert_true(r.begin <= r.end && r.end <= rows);
        assert_true(r.end % unit == 0 || r.end == rows);
        before += cuts->weight[p];
        double fair = before / all * rows;
        assert_true(r.end + unit >= fair && r.end <= fair + unit);
        at = r.end;
    }
    if (!cuts_small(role, c, layer))
        assert_int_equal(at, rows);
}

static void check_config(const struct cuts *cuts, const struct config *c)
{
    for (int64_t l = TENSOR_MODEL_LEVEL; l < c->layers; l++)
        for (int r = 0; r < T_COUNT; r++)
            if (tensor_in_layer((enum tensor_role)r, c, l))
                check_ranges(cuts, (enum tensor_role)r, c, l);
    for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
        uint32_t rows, cols, at = 0;
        expert_shape(which, c, &rows, &cols);
        for (uint32_t p = 0; p < cuts->parts; p++) {
            struct row_range r = cuts_expert_rows(cuts, p, which, c);
            assert_int_equal(r.begin, at);
            assert_true(r.end % CUTS_ROWS == 0 || r.end == rows);
            at = r.end;
        }
        assert_int_equal(at, rows);
    }
}

static void every_row_has_one_owner(void **state)
{
    (void)state;
    srand(1);
    for (uint32_t parts = 1; parts <= CUTS_PARTS_MAX; parts++)
        for (int round = 0; round < 8; round++) {
            struct cuts cuts = { .parts = parts };
            for (uint32_t p = 0; p < parts; p++)
                cuts.weight[p] = round ? 1 + (uint32_t)rand() % 1000 : 1;
            check_config(&cuts, &k3_like);
            check_config(&cuts, &odd);
        }
}

/* The heads that a part owns are the same in each matrix of a layer. */
static void heads_stay_together(void **state)
{
    (void)state;
    const struct config *c = &odd;
    const struct cuts cuts = { 3, { 5, 1, 2 } };
    for (uint32_t p = 0; p < 3; p++) {
        struct row_range q = cuts_rows(&cuts, p, T_QB, c, 1);
        struct row_range kv = cuts_rows(&cuts, p, T_KVB, c, 1);
        struct row_range g = cuts_rows(&cuts, p, T_G, c, 1);
        assert_int_equal(q.end % (c->nope + c->rope), 0);
        assert_int_equal(q.end / (c->nope + c->rope),
                         kv.end / (c->nope + c->v_dim));
        assert_int_equal(g.end / c->v_dim, q.end / (c->nope + c->rope));
        struct row_range k = cuts_rows(&cuts, p, T_K, c, 0);
        struct row_range z = cuts_rows(&cuts, p, T_G, c, 0);
        assert_int_equal(k.end % c->kda_dim, 0);
        assert_int_equal(k.end, z.end);
    }
}

static void k3_by_hand(void **state)
{
    (void)state;
    const struct cuts cuts = { 4, { 1, 1, 1, 1 } };
    const struct config *c = &k3_like;
    struct row_range r = cuts_rows(&cuts, 1, T_KVB, c, 1);
    assert_int_equal(r.begin, 24 * 256); /* heads 24..47 */
    assert_int_equal(r.end, 48 * 256);
    r = cuts_rows(&cuts, 3, T_O, c, 1);
    assert_int_equal(r.begin, 5376);
    assert_int_equal(r.end, 7168);
    r = cuts_rows(&cuts, 2, T_KVA, c, 1); /* 576 rows: 36 units of 16 */
    assert_int_equal(r.begin, 18 * 16);
    assert_int_equal(r.end, 27 * 16);
    r = cuts_expert_rows(&cuts, 1, 0, c);
    assert_int_equal(r.begin, 768);
    assert_int_equal(r.end, 1536);
    r = cuts_rows(&cuts, 2, T_FB, c, 0);
    assert_int_equal(r.begin, 0);
    assert_int_equal(r.end, 96 * 128);
    const struct cuts two = { 2, { 2, 1 } };
    r = cuts_of(&two, 0, 48, 16);
    assert_int_equal(r.end, 32);
    const struct cuts many = { 4, { 1, 1, 1, 1 } };
    r = cuts_of(&many, 0, 16, 16); /* one unit: the third has it */
    assert_int_equal(r.end, 0);
    r = cuts_of(&many, 1, 16, 16);
    assert_int_equal(r.end - r.begin, 16);
}

static void small_tensors_take_turns(void **state)
{
    (void)state;
    const struct cuts cuts = { 3, { 2, 1, 1 } };
    uint32_t count[3] = { 0 };
    for (int64_t l = TENSOR_MODEL_LEVEL; l < 79; l++) {
        uint32_t p = cuts_small_from(&cuts, l);
        assert_true(p < 3);
        count[p]++;
    }
    assert_int_equal(count[0], 40);
    assert_int_equal(count[1], 20);
    assert_int_equal(count[2], 20);
}

static void weights_from_rates(void **state)
{
    (void)state;
    struct cuts cuts;
    assert_true(cuts_weigh(&cuts, 2, (double[]){ 7e9, 3.5e9 }));
    assert_int_equal(cuts.weight[0], CUTS_WEIGHT_MAX);
    assert_int_equal(cuts.weight[1], CUTS_WEIGHT_MAX / 2);
    assert_false(cuts_weigh(&cuts, 2, (double[]){ 1, 0 }));
    assert_false(cuts_weigh(&cuts, 2, (double[]){ 1, -1 }));
    assert_false(cuts_weigh(&cuts, 2, (double[]){ 1, 1e-9 }));
    assert_false(cuts_weigh(&cuts, 1, (double[]){ 0 }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_one_owner),
        cmocka_unit_test(heads_stay_together),
        cmocka_unit_test(k3_by_hand),
        cmocka_unit_test(small_tensors_take_turns),
        cmocka_unit_test(weights_from_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

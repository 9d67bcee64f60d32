/* Goal    drafts are what followed before, trust in them follows what came
 *         true, and rows are spent only where they pay.
 * Method  small texts and pass times with answers known on paper.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/decode/draft.h"

static void test_look(void **state)
{
    (void)state;
    static const uint32_t text[] = { 1, 2, 3, 9, 2, 3, 4, 1, 2, 3 };
    struct draft d;
    draft_init(&d);
    draft_look(&d, text, 1);
    assert_int_equal(d.match, 0);
    draft_look(&d, text, 4);
    assert_int_equal(d.match, 0);
    draft_look(&d, text, 6); /* 2 3 */
    assert_int_equal(d.match, 2);
    assert_int_equal(draft_propose(&d, text, 0), 9);
    draft_look(&d, text, 10); /* 1 2 3 from the start, not the later 2 3 */
    assert_int_equal(d.match, 3);
    assert_int_equal(draft_propose(&d, text, 0), 9);
    assert_int_equal(draft_propose(&d, text, 3), 4);
}

static void test_latest(void **state)
{
    (void)state;
    static const uint32_t text[] = { 5, 1, 5, 2, 5 };
    struct draft d;
    draft_init(&d);
    draft_look(&d, text, 5);
    assert_int_equal(draft_propose(&d, text, 0), 2);
}

static void test_cycle(void **state)
{
    (void)state;
    static const uint32_t text[] = { 7, 8, 9, 7, 8, 9, 7 };
    struct draft d;
    draft_init(&d);
    draft_look(&d, text, 7);
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(draft_propose(&d, text, i), 7 + (i + 1) % 3);
}

static void test_learn(void **state)
{
    (void)state;
    uint32_t text[64];
    struct draft d;
    draft_init(&d);
    for (uint32_t i = 0; i < 64; i++)
        text[i] = i % 2 ? 3 : i; /* after 3 always something new */
    for (uint32_t n = 2; n < 63; n++) {
        draft_look(&d, text, n);
        draft_learn(&d, text, n + 1);
    }
    draft_look(&d, text, 64);
    assert_true(d.match == 1 && draft_chance(&d, 0) < 0.03);

    draft_init(&d);
    for (uint32_t i = 0; i < 64; i++)
        text[i] = i % 4;
    double before = 0;
    for (uint32_t n = 5; n < 40; n++) {
        draft_look(&d, text, n);
        assert_true(draft_chance(&d, 0) >= before);
        before = draft_chance(&d, 0);
        draft_learn(&d, text, n + 1);
    }
    assert_true(before > 0.95);
}

/* What was accepted several at once teaches as much as one at a time. */
static void test_learn_several(void **state)
{
    (void)state;
    uint32_t text[24];
    struct draft one, many;
    for (uint32_t i = 0; i < 24; i++)
        text[i] = i % 3;
    draft_init(&one);
    draft_init(&many);
    for (uint32_t n = 4; n < 16; n++) {
        draft_look(&one, text, n);
        draft_learn(&one, text, n + 1);
    }
    draft_look(&many, text, 4);
    draft_learn(&many, text, 16);
    for (int c = 0; c < DRAFT_CLASSES; c++) {
        assert_true(one.tried[c] == many.tried[c]);
        assert_true(one.right[c] == many.right[c]);
    }
}

static struct k3_totals pass(uint64_t rows, int64_t ns, int64_t wait_ns,
                             uint64_t trunk, uint64_t experts)
{
    return (struct k3_totals){ .passes = 1, .rows = rows, .ns = ns,
                               .wait_trunk_ns = wait_ns,
                               .trunk_bytes = trunk,
                               .demand_bytes = experts };
}

static void test_cost(void **state)
{
    (void)state;
    struct draft_cost c;
    draft_cost_init(&c, 0.5);
    assert_true(draft_cost_pass(&c, 1) == 0 && draft_cost_row(&c) == 0);
    struct k3_totals one = pass(1, 1000000000, 900000000, 90, 10);
    for (int i = 0; i < 20; i++)
        draft_cost_add(&c, &one);
    /* nothing but passes of one row: a tenth of the bytes, less overlap */
    assert_true(draft_cost_row(&c) > 0.08 && draft_cost_row(&c) < 0.09);
    /* a row more takes 0.3 s, whatever the bytes say */
    for (int i = 0; i < 20; i++) {
        struct k3_totals t = pass(1 + i % 4, 1000000000 + i % 4 * 300000000,
                                  0, 90, 10);
        draft_cost_add(&c, &t);
    }
    assert_true(draft_cost_row(&c) > 0.28 && draft_cost_row(&c) < 0.34);
    assert_true(draft_cost_pass(&c, 5) > 2.1 && draft_cost_pass(&c, 5) < 2.4);
}

static struct draft known(float chance)
{
    struct draft d = { .match = 9 };
    for (int c = 0; c < DRAFT_CLASSES; c++) {
        d.tried[c] = 1000;
        d.right[c] = 1000 * chance;
    }
    return d;
}

static void test_spread(void **state)
{
    (void)state;
    struct draft sure = known(1), half = known(0.5f), never = known(0.01f);
    struct draft none = { 0 };
    struct draft_cost c;
    draft_cost_init(&c, 0.2);
    struct draft_ask ask[] = { { .draft = &sure, .max = 3 },
                               { .draft = &half, .max = 8 },
                               { .draft = &never, .max = 8 },
                               { .draft = &none, .max = 8 } };
    draft_spread(&c, ask, 4, 4, 32, 0); /* nothing is measured */
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask[i].width, 0);
    struct k3_totals t = pass(4, 1000000000, 900000000, 80, 20);
    draft_cost_add(&c, &t);
    draft_spread(&c, ask, 4, 4, 32, 0);
    assert_int_equal(ask[0].width, 3);
    assert_int_equal(ask[1].width, 1); /* .5 pays, .25 does not */
    assert_int_equal(ask[2].width, 0);
    assert_int_equal(ask[3].width, 0);
    draft_spread(&c, ask, 4, 4, 3, 0);
    assert_int_equal(ask[0].width, 3);
    assert_int_equal(ask[1].width, 0);
    /* with the trunk resident every row costs what it brings */
    draft_cost_init(&c, 0.2);
    t = pass(1, 1000000000, 900000000, 0, 20);
    draft_cost_add(&c, &t);
    draft_spread(&c, ask + 1, 1, 1, 8, 0);
    assert_int_equal(ask[1].width, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_latest),
        cmocka_unit_test(test_cycle),
        cmocka_unit_test(test_learn),
        cmocka_unit_test(test_learn_several),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests_name("draft", tests, NULL, NULL);
}

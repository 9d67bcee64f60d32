/* Goal    the simulated drive keeps its rate to the nanosecond, whatever the
 *         reader does, and gives nothing for idle time.
 * Method  method_paced over a drive that answers at once or as told, with
 *         issue times written by the test that lie in the past: every end can
 *         be computed, and nothing waits.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "io/method.h"
#include "io/paced.h"

#define DEPTH    64u
#define GB       UINT64_C(1000000000)
#define BASE_NS  INT64_C(1000000) /* long ago */
#define CHUNK    1000000u         /* 1 ms at 1 GB/s */

/* The drive below: a stack of ops, results in reverse order, late by what the
 * test says. */
static struct below {
    struct io_op op[DEPTH];
    uint32_t n, hold; /* the first `hold` ops are not answered */
    int64_t  took_ns;
} below;

static int below_open(void **ctx, const struct io_setup *s)
{
    (void)s;
    below = (struct below){ .n = 0 };
    *ctx = &below;
    return 0;
}

static void below_close(void *ctx)
{
    (void)ctx;
}

static void below_push(void *ctx, const struct io_op *op)
{
    struct below *b = ctx;
    b->op[b->n++] = *op;
}

static int below_reap(void *ctx, struct io_result *out, uint32_t max,
                      int64_t deadline_ns)
{
    struct below *b = ctx;
    (void)deadline_ns;
    uint32_t n = 0;
    while (n < max && b->n > b->hold) {
        const struct io_op *op = &b->op[--b->n];
        out[n++] = (struct io_result){ op->id, (int32_t)op->length_bytes,
                                       op->issued_ns + b->took_ns };
    }
    return (int)n;
}

static const struct io_method method_below = {
    .name = "below",
    .open = below_open,
    .close = below_close,
    .push = below_push,
    .reap = below_reap,
    .wake = below_close,
};

static void *open_paced(const struct paced_drive *drives, uint32_t n)
{
    const struct io_method *layers[] = { &method_paced, &method_below, NULL };
    struct io_granted granted = { .threads = 0 };
    struct io_setup s = { .layers = layers, .depth = DEPTH, .drives = n,
                          .paced = drives, .granted = &granted };
    void *ctx;
    assert_int_equal(method_paced.open(&ctx, &s), 0);
    return ctx;
}

static void push(void *ctx, uint32_t id, uint32_t drive, int64_t at_ns)
{
    method_paced.push(ctx, &(struct io_op){ .id = id, .drive = drive,
                                            .length_bytes = CHUNK,
                                            .issued_ns = BASE_NS + at_ns });
}

/* Reap one and compare. */
static void expect(void *ctx, uint32_t id, int64_t at_ns)
{
    struct io_result res;
    assert_int_equal(method_paced.reap(ctx, &res, 1, 0), 1);
    assert_int_equal(res.id, id);
    assert_int_equal(res.res, CHUNK);
    assert_int_equal(res.done_ns, BASE_NS + at_ns);
}

static void expect_none(void *ctx)
{
    struct io_result res;
    assert_int_equal(method_paced.reap(ctx, &res, 1, 0), 0);
}

static void in_order_at_its_rate(void **state)
{
    (void)state;
    void *ctx = open_paced(&(struct paced_drive){ GB, 100000 }, 1);
    for (uint32_t i = 0; i < 5; i++)
        push(ctx, i, 0, 0);
    /* The latency is paid once by each, not by the queue. */
    for (uint32_t i = 0; i < 5; i++)
        expect(ctx, i, 1000000 * (i + 1) + 100000);
    expect_none(ctx);
    method_paced.close(ctx);
}

static void idle_earns_nothing(void **state)
{
    (void)state;
    void *ctx = open_paced(&(struct paced_drive){ GB, 0 }, 1);
    push(ctx, 0, 0, 0);
    expect(ctx, 0, 1000000);
    push(ctx, 1, 0, 900000000); /* after 0.9 s of nothing */
    push(ctx, 2, 0, 900000000);
    expect(ctx, 1, 901000000);
    expect(ctx, 2, 902000000);
    method_paced.close(ctx);
}

/* An owner that comes 3 ms late every time, with four reads in flight: the
 * queue never ran empty, so the drive never stopped. */
static void late_owner_costs_nothing(void **state)
{
    (void)state;
    void *ctx = open_paced(&(struct paced_drive){ GB, 0 }, 1);
    for (uint32_t i = 0; i < 4; i++)
        push(ctx, i, 0, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        int64_t done = 1000000 * (int64_t)(i + 1);
        expect(ctx, i % DEPTH, done);
        push(ctx, (i + 4) % DEPTH, 0, done + 3000000);
    }
    method_paced.close(ctx);
}

/* 5 ms late with the same four: each round of four loses what was missing. */
static void empty_queue_costs_what_it_costs(void **state)
{
    (void)state;
    void *ctx = open_paced(&(struct paced_drive){ GB, 0 }, 1);
    int64_t now = 0;
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 4; i++)
            push(ctx, i, 0, now);
        for (uint32_t i = 0; i < 4; i++)
            expect(ctx, i, now + 1000000 * (int64_t)(i + 1));
        now += 5000000;
    }
    method_paced.close(ctx);
}

static void slower_below_is_seen(void **state)
{
    (void)state;
    void *ctx = open_paced(&(struct paced_drive){ GB, 0 }, 1);
    below.took_ns = 2500000;
    push(ctx, 0, 0, 0);
    push(ctx, 1, 0, 0);
    push(ctx, 2, 0, 0);
    expect(ctx, 0, 2500000);
    expect(ctx, 1, 2500000);
    expect(ctx, 2, 3000000); /* and then the drive is back on its own time */
    method_paced.close(ctx);
}

static void head_of_line(void **state)
{
    (void)state;
    void *ctx = open_paced(&(struct paced_drive){ GB, 0 }, 1);
    push(ctx, 0, 0, 0);
    below.hold = 1; /* below has not answered the first */
    push(ctx, 1, 0, 0);
    expect_none(ctx); /* the second has landed, but is not the first */
    below.hold = 0;
    below.took_ns = 7000000;
    expect(ctx, 0, 7000000);
    expect(ctx, 1, 7000000);
    method_paced.close(ctx);
}

static void drives_are_apart(void **state)
{
    (void)state;
    const struct paced_drive two[] = { { GB, 0 }, { GB / 2, 50000 } };
    void *ctx = open_paced(two, 2);
    struct io_result res[8];
    for (uint32_t i = 0; i < 6; i++)
        push(ctx, i, i % 2, 0);
    /* Below answers in reverse; each drive keeps its own order and rate. */
    uint32_t seen[2] = { 0 };
    int n = method_paced.reap(ctx, res, 8, 0);
    assert_int_equal(n, 6);
    for (int i = 0; i < n; i++) {
        uint32_t drive = res[i].id % 2, nth = seen[drive]++;
        assert_int_equal(res[i].id, nth * 2 + drive);
        assert_int_equal(res[i].done_ns - BASE_NS,
                         drive ? 2000000 * (int64_t)(nth + 1) + 50000
                               : 1000000 * (int64_t)(nth + 1));
    }
    method_paced.close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_at_its_rate),
        cmocka_unit_test(idle_earns_nothing),
        cmocka_unit_test(late_owner_costs_nothing),
        cmocka_unit_test(empty_queue_costs_what_it_costs),
        cmocka_unit_test(slower_below_is_seen),
        cmocka_unit_test(head_of_line),
        cmocka_unit_test(drives_are_apart),
    };
    return cmocka_run_group_tests_name("paced drive", tests, NULL, NULL);
}

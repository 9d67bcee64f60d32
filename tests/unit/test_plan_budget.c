/* Goal    the budget is divided as sched/plan.h says and never overspent.
 * Method  a model of round numbers whose parts can be added by hand; sweeps of
 *         the budget from below the floor to far above everything.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sched/plan.h"

enum { TILES = 100, TILE = 1 << 20, FRAME = 1 << 18 };

static struct plan_tile tiles[TILES];

static struct plan_input input(uint32_t drives)
{
    struct plan_input in = {
        .program_bytes = 10 << 20, .state_bytes = 5 << 20, .sequences = 1,
        .scratch_bytes = 1 << 20, .row_bytes = 1 << 16, .rows = 8,
        .tiles = tiles, .tile_count = TILES, .expert_frame_bytes = FRAME,
        .expert_blocks = 400,
        .expert_layers = 10, .top_k = 4, .keeps_experts = true,
        .drives = drives,
    };
    for (uint32_t t = 0; t < TILES; t++)
        tiles[t] = (struct plan_tile){ .frame_bytes = TILE,
                                       .payload_bytes = TILE - 10,
                                       .drive = t % drives,
                                       .always = t == 99 };
    return in;
}

static void the_floor_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    struct plan_input in = input(1);
    struct plan p;
    bool resident[TILES];
    uint64_t floor_bytes = (10 << 20) + (5 << 20) + (1 << 20) + (1 << 16) +
                           48 * TILE + TILE + 4 * FRAME;
    in.budget_bytes = floor_bytes - 1;
    assert_int_equal(plan_make(&p, resident, &in), -ENOBUFS);
    assert_int_equal(p.floor_bytes, floor_bytes);
    in.budget_bytes = floor_bytes;
    assert_int_equal(plan_make(&p, resident, &in), 0);
    assert_int_equal(p.total_bytes, floor_bytes);
    assert_int_equal(p.rows, 1);
    assert_int_equal(p.expert_frames, 0);
    assert_int_equal(p.resident_payload_bytes, TILE - 10);
    assert_int_equal(p.streamed_payload_bytes, 99 * (TILE - 10));
}

static void more_memory_never_streams_more(void **state)
{
    (void)state;
    for (uint32_t drives = 1; drives <= 3; drives++) {
        struct plan_input in = input(drives);
        struct plan p;
        bool resident[TILES];
        uint64_t streamed = UINT64_MAX;
        uint32_t frames = 0;
        for (uint64_t m = 44 << 20; m < 400u << 20; m += 3 << 20) {
            in.budget_bytes = m;
            int err = plan_make(&p, resident, &in);
            if (err == -ENOBUFS)
                continue;
            assert_int_equal(err, 0);
            assert_true(p.total_bytes <= m);
            assert_true(p.streamed_payload_bytes <= streamed);
            assert_true(p.expert_frames >= frames);
            /* Expert frames come after the whole trunk, and with it no ring. */
            assert_true(!p.expert_frames || !p.ring_bytes);
            assert_true(!p.ring_bytes == !p.streamed_tiles);
            streamed = p.streamed_payload_bytes;
            frames = p.expert_frames;
        }
        assert_int_equal(streamed, 0);
        assert_int_equal(frames, 400);
    }
}

/* Tiles that want to be kept decoded get memory after the whole trunk and
 * before experts, in their order. */
static void decoded_tiles_come_before_experts(void **state)
{
    (void)state;
    struct plan_input in = input(1);
    struct plan p;
    bool resident[TILES];
    uint32_t decoded = 0, some = 0;
    for (uint32_t t = 0; t < TILES; t += 2)
        tiles[t].decoded_bytes = TILE + TILE / 2;
    for (uint64_t m = 44 << 20; m < 300u << 20; m += 1 << 18) {
        in.budget_bytes = m;
        if (plan_make(&p, resident, &in))
            continue;
        assert_true(p.total_bytes <= m);
        assert_true(p.decoded_tiles >= decoded);
        assert_true(!p.decoded_tiles || !p.streamed_tiles);
        /* What is left is less than what the next tile wants. */
        assert_true(p.decoded_tiles == 50 || p.cache_bytes <= TILE / 2);
        assert_int_equal(p.resident_bytes % TILE, p.decoded_tiles % 2 ?
                         TILE / 2 : 0);
        some += p.decoded_tiles && p.decoded_tiles < 50;
        decoded = p.decoded_tiles;
    }
    assert_int_equal(decoded, 50);
    assert_true(some > 10);
    assert_int_equal(p.resident_bytes, (TILES + 25) * TILE);
    assert_int_equal(p.expert_frames, 400);
}

static void resident_tiles_are_spread_evenly(void **state)
{
    (void)state;
    struct plan_input in = input(1);
    struct plan p;
    bool resident[TILES];
    in.rows = 1;
    in.budget_bytes = 110 << 20;
    assert_int_equal(plan_make(&p, resident, &in), 0);
    uint32_t count = 0, gap = 0, max = 0;
    for (uint32_t t = 0; t < 99; t++) {
        count += resident[t];
        gap = resident[t] ? 0 : gap + 1;
        max = gap > max ? gap : max;
    }
    assert_in_range(count, 40, 70);
    assert_true(max <= 99 / count + 1);
}

/* Streamed tiles of each of two drives under 110 MB. */
static void plan_two(struct plan_input *in, uint32_t left[2])
{
    struct plan p;
    bool resident[TILES];
    in->budget_bytes = 110 << 20;
    assert_int_equal(plan_make(&p, resident, in), 0);
    left[0] = left[1] = 0;
    for (uint32_t t = 0; t < TILES; t++)
        if (!resident[t])
            left[t % 2]++;
    assert_true(left[1] > 0);
}

static void a_slow_drive_gets_more_resident_tiles(void **state)
{
    (void)state;
    struct plan_input in = input(2);
    uint32_t left[2];
    in.rate[0] = 2;
    in.rate[1] = 1;
    in.ring_min_bytes = 0;
    plan_two(&in, left);
    assert_in_range(left[0] * 10 / left[1], 17, 23);
}

static void a_drive_of_experts_gets_more_resident_tiles(void **state)
{
    (void)state;
    struct plan_input in = input(2);
    uint32_t left[2];
    in.expert_bytes[1] = 12 << 20;
    plan_two(&in, left);
    assert_in_range(left[0] - left[1], 11, 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_floor_is_the_sum_of_its_parts),
        cmocka_unit_test(more_memory_never_streams_more),
        cmocka_unit_test(decoded_tiles_come_before_experts),
        cmocka_unit_test(resident_tiles_are_spread_evenly),
        cmocka_unit_test(a_slow_drive_gets_more_resident_tiles),
        cmocka_unit_test(a_drive_of_experts_gets_more_resident_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

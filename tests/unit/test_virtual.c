/* Goal    a simulated drive is that of paced.h, to the nanosecond, and a stream
 *         over simulated drives reads what and when a real one would.
 * Method  reads on one and two drives against times worked out by hand; then a
 *         circle of three tiles through a ring of two with compute in between,
 *         again by hand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/reader.h"
#include "sched/stream.h"
#include "sched/virtual.h"

enum { PAGE = 4096, CHUNK = 1 << 20 };
/* 1 byte a nanosecond, so that times are bytes. */
static const struct virtual_drive plain = { 1000000000, 100, CHUNK };

static void test_one_drive(void **state)
{
    (void)state;
    struct virtual_drives *v;
    struct read_done done;
    assert_int_equal(virtual_open(&v, &plain, 1, VIRTUAL_SHARDS), 0);
    int64_t t = virtual_now_ns(v);
    struct read_req a = { .offset_bytes = 100, .length_bytes = 50, .tag = 1 };
    struct read_req b = { .offset_bytes = PAGE - 1, .length_bytes = 2,
                          .tag = 2 }; /* two pages for two bytes */
    assert_int_equal(virtual_start(v, 0, &a), 0);
    assert_int_equal(virtual_start(v, 0, &b), 0);
    assert_int_equal(virtual_next(v, t + 1000, &done), 0);
    assert_int_equal(virtual_now_ns(v), t + 1000);
    assert_int_equal(virtual_next(v, INT64_MAX, &done), 1);
    assert_int_equal(done.tag, 1);
    assert_int_equal(done.bytes, 50);
    assert_int_equal(done.device_bytes, PAGE);
    assert_int_equal(done.done_ns, t + PAGE + 100);
    assert_int_equal(virtual_next(v, INT64_MAX, &done), 1);
    assert_int_equal(done.done_ns, t + 3 * PAGE + 100);
    assert_int_equal(virtual_next(v, INT64_MAX, &done), 0);
    assert_int_equal(virtual_now_ns(v), t + 3 * PAGE + 100);
    /* Idle time earns nothing. */
    assert_int_equal(virtual_next(v, t + 100000, &done), 0);
    assert_int_equal(virtual_start(v, 0, &a), 0);
    assert_int_equal(virtual_next(v, INT64_MAX, &done), 1);
    assert_int_equal(done.done_ns, t + 100000 + PAGE + 100);
    virtual_close(v);
}

static void test_two_drives(void **state)
{
    (void)state;
    struct virtual_drive two[2] = { plain, plain };
    struct virtual_drives *v;
    struct read_done done;
    two[1].bytes_per_s *= 4;
    assert_int_equal(virtual_open(&v, two, 2, VIRTUAL_SHARDS), 0);
    int64_t t = virtual_now_ns(v);
    for (uint32_t file = 0; file < 4; file++) {
        struct read_req r = { .file = file, .length_bytes = PAGE,
                              .tag = file };
        assert_int_equal(virtual_start(v, file % 2, &r), 0);
    }
    static const struct { uint64_t tag; int64_t at; } want[] = {
        { 1, PAGE / 4 + 100 }, { 3, PAGE / 2 + 100 }, { 0, PAGE + 100 },
        { 2, 2 * PAGE + 100 } };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(virtual_next(v, INT64_MAX, &done), 1);
        assert_int_equal(done.tag, want[i].tag);
        assert_int_equal(done.drive, want[i].tag % 2);
        assert_int_equal(done.done_ns, t + want[i].at);
    }
    virtual_close(v);
}

static void test_stream(void **state)
{
    (void)state;
    struct virtual_drive drive = plain;
    drive.latency_ns = 0;
    drive.budget_bytes = 1; /* one read at a time */
    struct segment segment[3];
    struct stream_tile tile[3];
    for (uint32_t i = 0; i < 3; i++) {
        segment[i] = (struct segment){ .offset_bytes = i * 10 * PAGE,
                                       .length_bytes = 10 * PAGE };
        tile[i] = (struct stream_tile){ .first_segment = i,
                                        .segment_count = 1,
                                        .frame_bytes = 10 * PAGE,
                                        .payload_bytes = 10 * PAGE };
    }
    struct virtual_drives *v;
    struct stream *s;
    const uint8_t *frame;
    static uint8_t ring[20 * PAGE];
    assert_int_equal(virtual_open(&v, &drive, 1, VIRTUAL_SHARDS), 0);
    struct stream_options so = { .simulated = v, .segments = segment,
                                 .tiles = tile, .tile_count = 3,
                                 .ring = ring, .ring_bytes = sizeof ring,
                                 .chunk_bytes = CHUNK, .loads_max = 1 };
    assert_int_equal(stream_open(&s, &so), 0);
    stream_set_readahead(s, 3);
    const int64_t t = virtual_now_ns(v), read = 10 * PAGE;
    assert_false(stream_ready(s, 0));
    assert_int_equal(stream_hold(s, 0, &frame), 0);
    assert_ptr_equal(frame, ring);
    assert_int_equal(stream_now_ns(s), t + read);
    stream_compute(s, 3 * read); /* tile 1 lands, then the ring is full */
    assert_true(stream_ready(s, 1));
    assert_int_equal(stream_idle_ns(s), 2 * read);
    stream_release(s, 0);
    assert_int_equal(stream_hold(s, 1, &frame), 0);
    assert_int_equal(stream_now_ns(s), t + 4 * read);
    stream_release(s, 1);
    assert_int_equal(stream_hold(s, 2, &frame), 0);
    assert_int_equal(stream_now_ns(s), t + 5 * read);
    assert_int_equal(stream_hold_wait_ns(s), 2 * read);
    stream_release(s, 2);
    /* Past the allowed end nothing is read, and to wait for it is an error
     * and no hang. */
    assert_int_equal(stream_hold(s, 0, &frame), -EDEADLK);
    stream_close(s);
    virtual_close(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_drive),
        cmocka_unit_test(test_two_drives),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

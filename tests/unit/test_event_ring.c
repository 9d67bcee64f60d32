/* Goal    the event_ring keeps the order, counts what did not fit, and has room
 *         again as soon as something was taken.
 * Method  a lane of four events, filled and emptied by hand; then a writer and
 *         a taker on two threads, every event seen once or counted as lost. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sched/event_ring.h"

static void add(struct event_ring *j, enum event_track lane, uint32_t object)
{
    struct event e = { .object = object, .bytes = object * 3ull };
    event_ring_add(j, lane, &e);
}

static void test_full_lane(void **state)
{
    (void)state;
    struct event_ring *j;
    struct event e[8];
    assert_int_equal(event_ring_open(&j, 4), 0);
    for (uint32_t i = 0; i < 6; i++)
        add(j, EVENT_TRACK_READS, i);
    add(j, EVENT_TRACK_COMPUTE, 77);
    assert_int_equal(event_ring_dropped(j, EVENT_TRACK_READS), 2);
    assert_int_equal(event_ring_dropped(j, EVENT_TRACK_COMPUTE), 0);
    assert_int_equal(event_ring_take(j, EVENT_TRACK_READS, e, 3), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(e[i].object, i);
    add(j, EVENT_TRACK_READS, 10); /* round the end of the lane */
    add(j, EVENT_TRACK_READS, 11);
    assert_int_equal(event_ring_take(j, EVENT_TRACK_READS, e, 8), 3);
    assert_int_equal(e[0].object, 3);
    assert_int_equal(e[1].object, 10);
    assert_int_equal(e[2].object, 11);
    assert_int_equal(e[2].bytes, 33);
    assert_int_equal(event_ring_take(j, EVENT_TRACK_READS, e, 8), 0);
    assert_int_equal(event_ring_take(j, EVENT_TRACK_COMPUTE, e, 8), 1);
    assert_int_equal(e[0].object, 77);
    event_ring_close(j);
}

static void test_no_journal(void **state)
{
    (void)state;
    add(NULL, EVENT_TRACK_READS, 1);
    event_ring_close(NULL);
}

enum { MANY = 200000 };

static void *write_many(void *event_ring)
{
    for (uint32_t i = 0; i < MANY; i++)
        add(event_ring, EVENT_TRACK_COMPUTE, i);
    add(event_ring, EVENT_TRACK_READS, 0); /* done */
    return NULL;
}

static void test_two_threads(void **state)
{
    (void)state;
    struct event_ring *j;
    struct event e[16], done;
    pthread_t writer;
    uint64_t seen = 0;
    int64_t last = -1;
    assert_int_equal(event_ring_open(&j, 64), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_many, j), 0);
    for (int over = 0; over < 2;) {
        over += over || event_ring_take(j, EVENT_TRACK_READS, &done, 1);
        uint32_t n;
        while ((n = event_ring_take(j, EVENT_TRACK_COMPUTE, e, 16)))
            for (uint32_t i = 0; i < n; i++, seen++) {
                assert_true((int64_t)e[i].object > last);
                assert_int_equal(e[i].bytes, e[i].object * 3ull);
                last = e[i].object;
            }
    }
    pthread_join(writer, NULL);
    assert_int_equal(seen + event_ring_dropped(j, EVENT_TRACK_COMPUTE), MANY);
    event_ring_close(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_lane),
        cmocka_unit_test(test_no_journal),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

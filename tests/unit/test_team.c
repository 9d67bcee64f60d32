/* Goal    a team covers every range once, with the memory order it promises,
 *         at any size, awake or asleep; and it starts as many threads as asked.
 * Method  bodies count their visits to each element in plain memory (a second
 *         visit or a missed one shows; under `make tsan` so does a race), over
 *         odd counts and grains, more threads than cores, and pauses after
 *         which the workers sleep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "compute/team.h"

enum { COUNT_MAX = 3000 };

struct job {
    struct team *team;
    size_t count;
    size_t grain;
    unsigned rounds;
    unsigned base; /* written by the caller before each job, read by bodies */
    unsigned visits[COUNT_MAX];
    unsigned busy[64]; /* a body at work as this worker */
    atomic_uint wrong; /* cmocka's asserts belong to the main thread */
};

static void body(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct job *j = arg;
    if (worker >= team_threads(j->team) || begin >= end || end > j->count ||
        begin % j->grain != 0 || j->busy[worker]++ != 0) {
        j->wrong++;
        return;
    }
    for (size_t i = begin; i < end; i++)
        j->visits[i] += j->base;
    j->busy[worker]--;
}

static void pass(void *arg)
{
    struct job *j = arg;
    unsigned total = 0;
    for (unsigned round = 0; round < j->rounds; round++) {
        j->base = round + 1;
        total += j->base;
        team_for(j->team, j->count, j->grain, body, j);
        assert_int_equal(j->wrong, 0);
        for (size_t i = 0; i < j->count; i++)
            assert_int_equal(j->visits[i], total);
    }
}

static void covers_once(void **state)
{
    static const unsigned threads[] = { 1, 2, 3, 8, 9, 20 };
    static const size_t counts[] = { 0, 1, 2, 7, 64, 293, COUNT_MAX };
    static const size_t grains[] = { 1, 3, 4, 5000 };
    static struct job j;
    (void)state;
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct team *team;
        assert_int_equal(team_open(&team, threads[t]), 0);
        assert_int_equal(team_threads(team), threads[t]);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                memset(&j, 0, sizeof j);
                j.team = team;
                j.count = counts[c];
                j.grain = grains[g];
                j.rounds = 6;
                team_run(team, pass, &j);
            }
        team_close(team);
    }
}

static void many_rounds(void **state)
{
    static struct job j;
    (void)state;
    assert_int_equal(team_open(&j.team, 4), 0);
    j.count = 37;
    j.grain = 2;
    j.rounds = 3000;
    team_run(j.team, pass, &j);
    team_close(j.team);
}

static void sleep_then_work(void *arg)
{
    struct job *j = arg;
    for (unsigned i = 0; i < 20; i++) {
        struct timespec pause = { .tv_nsec = 200000 }; /* they fall asleep */
        nanosleep(&pause, NULL);
        memset(j->visits, 0, sizeof j->visits);
        pass(j);
    }
}

static void wakes_up(void **state)
{
    static struct job j;
    (void)state;
    assert_int_equal(team_open(&j.team, 5), 0);
    j.count = 200;
    j.grain = 1;
    j.rounds = 2;
    team_run(j.team, sleep_then_work, &j);
    team_close(j.team);
}

static void one_call(void *arg, size_t begin, size_t end, unsigned worker)
{
    size_t *calls = arg;
    assert_int_equal(begin, 0);
    assert_int_equal(end, 10);
    assert_int_equal(worker, 0);
    ++*calls;
}

static void outside_runs_alone(void **state)
{
    struct team *team;
    size_t calls = 0;
    (void)state;
    assert_int_equal(team_open(&team, 3), 0);
    team_for(team, 10, 1, one_call, &calls);
    assert_int_equal(calls, 1);
    team_close(team);
    team_close(NULL);
}

static void sizes(void **state)
{
    struct team *team;
    cpu_set_t before, one;
    (void)state;
    assert_int_equal(team_open(&team, TEAM_THREADS_MAX + 1), -22);
    assert_null(team);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before) && CPU_COUNT(&one) == 0)
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(team_open(&team, 0), 0);
    assert_int_equal(team_threads(team), 1);
    team_close(team);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(team_open(&team, 0), 0);
    assert_true(team_threads(team) <= (unsigned)CPU_COUNT(&before));
    team_close(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_once),   cmocka_unit_test(many_rounds),
        cmocka_unit_test(wakes_up),      cmocka_unit_test(outside_runs_alone),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}

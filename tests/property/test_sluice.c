/* Goal    a request has the ids and text that it has alone, whoever comes, goes
 *         and is cancelled beside it and from whichever thread; it is finished
 *         exactly once; two sessions at once do not touch each other; the
 *         process keeps its signal handlers and its priorities.
 * Method  what each request gives alone is the truth, and everything else is
 *         compared with it by memcmp. Sessions with different instruction sets
 *         run side by side in two threads. Other threads submit and cancel
 *         while passes run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "compute/kern.h"
#include "model/knobs.h"
#include "tests/property/subject.h"

static void submit_all(struct sluice *s, struct subject *x)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        x[i] = subject_fresh(i);
        struct sluice_request r = subject_request(&x[i]);
        assert_int_equal(sluice_submit(s, &r, &x[i].id, NULL), 0);
        assert_int_equal(x[i].id, i + 1);
    }
}

static void test_together(void **state)
{
    (void)state;
    struct subject x[REQUESTS];
    struct sluice_counters c;
    struct sluice *s = subject_open(5);
    submit_all(s, x);
    sluice_counters(s, &c, sizeof c);
    assert_int_equal(c.queued, REQUESTS);
    assert_int_equal(sluice_run(s, NULL), 0);
    uint64_t ids = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        subject_check(&x[i], i);
        ids += x[i].made;
    }
    sluice_counters(s, &c, sizeof c);
    assert_int_equal(c.queued + c.running, 0);
    assert_int_equal(c.finished, REQUESTS);
    assert_int_equal(c.new_ids, ids);
    assert_true(c.read_bytes > 0 && c.passes > 0 && c.decode_ns > 0);
    sluice_close(s);
}

/* Request 0 cancels itself; 1 cancels 11, which waits; 4 cancels 3, which
 * runs. */
static void test_cancel(void **state)
{
    (void)state;
    struct subject x[REQUESTS];
    struct sluice *s = subject_open(5);
    submit_all(s, x);
    x[0].s = x[1].s = x[4].s = s;
    x[0].victim = &x[0];
    x[1].victim = &x[11];
    x[4].victim = &x[3];
    sluice_cancel(s, 12345);
    assert_int_equal(sluice_run(s, NULL), 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (i != 0 && i != 3 && i != 11) {
            subject_check(&x[i], i);
            continue;
        }
        assert_int_equal(x[i].finished, 1);
        assert_int_equal(x[i].finish, SLUICE_CANCELLED);
        assert_true(x[i].made < truth[i].made);
        assert_true(i != 11 || !x[i].made);
        assert_memory_equal(x[i].ids, truth[i].ids,
                            x[i].made * sizeof *x[i].ids);
    }
    struct subject again = subject_fresh(3); /* the session lives */
    struct sluice_request r = subject_request(&again);
    assert_int_equal(sluice_generate(s, &r, NULL), 0);
    subject_check(&again, 3);
    sluice_close(s);
}

/* ---- other threads ---- */

struct crowd {
    struct sluice *s;
    struct subject x[REQUESTS];
    uint32_t first;
};

static void *submit_some(void *arg)
{
    struct crowd *c = arg;
    for (uint32_t i = c->first; i < REQUESTS; i += 3) {
        struct sluice_request r = subject_request(&c->x[i]);
        if (sluice_submit(c->s, &r, NULL, NULL))
            return arg;
        sched_yield();
    }
    return NULL;
}

static void *cancel_endlessly(void *arg)
{
    struct crowd *c = arg;
    struct sluice_counters n;
    do {
        sluice_cancel(c->s, REQUESTS + 1); /* nobody's */
        sluice_counters(c->s, &n, sizeof n);
    } while (n.finished < REQUESTS);
    sluice_wake(c->s);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[4];
    struct crowd c[3];
    struct sluice *s = subject_open(4);
    void *failed;
    for (uint32_t t = 0; t < 3; t++) {
        c[t] = (struct crowd){ .s = s, .first = t };
        for (uint32_t i = 0; i < REQUESTS; i++)
            c[t].x[i] = subject_fresh(i);
        pthread_create(&thread[t], NULL, submit_some, &c[t]);
    }
    pthread_create(&thread[3], NULL, cancel_endlessly, &c[0]);
    while (sluice_wait(s, -1)) /* ends by sluice_wake, with nothing to do */
        while (sluice_step(s, NULL) > 0)
            ;
    for (uint32_t t = 0; t < 4; t++) {
        pthread_join(thread[t], &failed);
        assert_null(failed);
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        subject_check(&c[i % 3].x[i], i);
    assert_false(sluice_wait(s, 0));
    sluice_close(s);
}

struct late {
    struct sluice *s;
    struct subject x;
    atomic_bool asked;
};

static void *submit_late(void *arg)
{
    struct late *l = arg;
    struct sluice_request r = subject_request(&l->x);
    while (!atomic_load(&l->asked))
        sched_yield();
    for (int i = 0; i < 50; i++)
        sched_yield(); /* most of the time the other sleeps by now */
    return sluice_submit(l->s, &r, NULL, NULL) ? arg : NULL;
}

static void *generate_elsewhere(void *arg)
{
    struct late *l = arg;
    struct sluice_request r = subject_request(&l->x);
    return sluice_generate(l->s, &r, NULL) ? arg : NULL;
}

/* A request that comes wakes who waits for one. */
static void test_woken(void **state)
{
    (void)state;
    struct late l = { .s = subject_open(1) };
    pthread_t thread;
    void *failed;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        l.x = subject_fresh(i);
        atomic_store(&l.asked, false);
        pthread_create(&thread, NULL, submit_late, &l);
        atomic_store(&l.asked, true);
        assert_true(sluice_wait(l.s, -1));
        pthread_join(thread, &failed);
        assert_null(failed);
        assert_int_equal(sluice_run(l.s, NULL), 0);
        subject_check(&l.x, i);
    }
    assert_false(sluice_wait(l.s, 1));
    l.x = subject_fresh(1); /* a session may change its thread */
    pthread_create(&thread, NULL, generate_elsewhere, &l);
    pthread_join(thread, &failed);
    assert_null(failed);
    subject_check(&l.x, 1);
    sluice_close(l.s);
}

/* ---- two sessions ---- */

struct twin {
    uint8_t  isa;
    uint32_t rounds;
    int      wrong;
    bool     reached;
};

static void *run_twin(void *arg)
{
    struct twin *t = arg;
    struct k3_options engine = { .isa = t->isa + 1 };
    struct sluice_options o = subject_options(3);
    struct sluice_info info;
    struct sluice *s;
    if (knobs_open(&s, subject_model.dir, &o, &engine, NULL)) {
        t->wrong = -1;
        return NULL;
    }
    sluice_info(s, &info, sizeof info);
    t->reached = !strcmp(info.isa, isa_name(t->isa));
    for (uint32_t n = 0; n < t->rounds; n++)
        for (uint32_t i = 0; i < REQUESTS; i++) {
            struct subject x = subject_fresh(i);
            struct sluice_request r = subject_request(&x);
            int err = sluice_generate(s, &r, NULL);
            sluice_info(s, &info, sizeof info);
            t->wrong += err || x.made != truth[i].made ||
                        memcmp(x.ids, truth[i].ids, sizeof x.ids) ||
                        strcmp(info.isa, isa_name(t->isa)) != 0;
        }
    sluice_close(s);
    return NULL;
}

static void test_two_sessions(void **state)
{
    (void)state;
    struct kern best;
    pthread_t thread[2];
    kern_init(&best, ISA_COUNT - 1);
    if (best.isa == ISA_REF)
        skip(); /* this processor has one level */
    struct twin twin[2] = { { .isa = ISA_REF, .rounds = 1 },
                            { .isa = (uint8_t)best.isa, .rounds = 2 } };
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, run_twin, &twin[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_true(twin[i].reached);
        assert_int_equal(twin[i].wrong, 0);
    }
}

/* ---- the end ---- */

struct bomb {
    struct sluice *s;
    uint32_t left; /* layers */
};

static void explode(void *arg, uint32_t layer, uint32_t layers)
{
    struct bomb *b = arg;
    (void)layer, (void)layers;
    if (b->s && b->left-- == 0)
        sluice_interrupt(b->s);
}

static void test_interrupted(void **state)
{
    (void)state;
    struct subject x[REQUESTS];
    struct sluice_error e = { 0 };
    struct bomb bomb = { .left = 12 };
    struct sluice_options o = subject_options(3);
    o.progress = explode;
    o.progress_arg = &bomb;
    bomb.s = subject_open_with(&o);
    submit_all(bomb.s, x);
    assert_int_equal(sluice_run(bomb.s, &e), -ECANCELED);
    assert_true(e.text[0]);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(x[i].finished, 1);
        assert_int_equal(x[i].finish, SLUICE_FAILED);
        assert_memory_equal(x[i].ids, truth[i].ids,
                            x[i].made * sizeof *x[i].ids);
    }
    struct sluice_request r = subject_request(&x[0]);
    assert_int_equal(sluice_submit(bomb.s, &r, NULL, &e), -ESHUTDOWN);
    assert_int_equal(sluice_step(bomb.s, &e), -ESHUTDOWN);
    sluice_close(bomb.s);
}

static void test_closed(void **state)
{
    (void)state;
    struct subject x[REQUESTS];
    struct sluice *s = subject_open(3);
    submit_all(s, x);
    assert_int_equal(sluice_step(s, NULL), 1);
    assert_int_equal(sluice_step(s, NULL), 1);
    sluice_close(s);
    for (uint32_t i = 0; i < REQUESTS; i++)
        assert_int_equal(x[i].finished, 1);
    assert_int_equal(x[REQUESTS - 1].finish, SLUICE_CANCELLED);
    sluice_close(NULL);
}

/* ---- what a library leaves alone ---- */

/* All threads are as the process was started. */
static void check_threads(int priority)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *each;
    uint32_t threads = 0;
    assert_non_null(d);
    while ((each = readdir(d))) {
        int id = atoi(each->d_name);
        if (!id)
            continue;
        threads++;
        assert_int_equal(sched_getscheduler(id), SCHED_OTHER);
        assert_int_equal(getpriority(PRIO_PROCESS, (id_t)id),
                         priority);
    }
    closedir(d);
    assert_true(threads > 1);
}

static void test_left_alone(void **state)
{
    (void)state;
    struct sigaction before[NSIG], after;
    struct sluice *s;
    int priority = getpriority(PRIO_PROCESS, 0);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &before[i]);
    s = subject_open(1);
    struct subject x = subject_fresh(0);
    struct sluice_request r = subject_request(&x);
    assert_int_equal(sluice_generate(s, &r, NULL), 0);
    check_threads(priority);
    for (int i = 1; i < NSIG; i++)
        if (!sigaction(i, NULL, &after))
            assert_true(after.sa_handler == before[i].sa_handler);
    sluice_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_woken),
        cmocka_unit_test(test_two_sessions),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_left_alone),
    };
    return cmocka_run_group_tests_name("sluice", tests, subjects_make,
                                       subjects_remove);
}

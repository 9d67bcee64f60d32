/* Goal    a read that fails, is late or lies never changes a bit: a run gives
 *         the ids and logits of an undisturbed one, or stops with a sentence
 *         that names a file; a prefetch that fails fails no run; a run that is
 *         cancelled stops, wherever it is.
 * Method  the whole model over the fault method, again and again, the n-th read
 *         broken in each run, once or from there on, until a run finishes
 *         untouched: every place has then been broken. Each kind of fault, both
 *         methods, at the floor, above it and with prefetches. By default some
 *         of the places; with "all" as argument all of them. Then everything at
 *         random. Cancelled at every layer of every pass, and from another
 *         thread while it waits for a slow drive.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/fault.h"
#include "io/paced.h"
#include "model/decode/generate.h"
#include "tests/fault/mini.h"

static struct mini mini;
static struct mini_run want;
static bool all; /* every place, not some */
static uint64_t broken; /* results of all runs that a plan broke */

enum { PLACES = 1, FAR = 25, MINI_SHARDS = 4 };

/* The ways to run it; every way is broken in every way. */
static const struct arm {
    const char *name, *io, *policy, *prefetch;
    uint64_t above_floor;
} arms[] = {
    { "floor, io_uring", "auto", "none", "none", 0 },
    { "floor, pread", "pread", "none", "none", 0 },
    { "above the floor", "auto", "lru", "none", 64 << 10 },
    { "prefetches by the last step", "auto", "none", "prev", 1 << 20 },
    { "resident, prefetches by the router", "auto", "none", "gate", 40 << 20 },
    { "resident, cached, prefetched", "pread", "lru", "gate", 400 << 10 },
    { "all of it in memory", "auto", "lru", "none", 40 << 20 },
};
enum { ARMS = sizeof arms / sizeof *arms };
static uint64_t floors[ARMS];

static const struct kind {
    const char *name;
    uint32_t kind;
    bool once, always; /* it recovers from one of them, from nothing else */
} kinds[] = {
    { "short", FAULT_SHORT, true, true },
    { "EIO", FAULT_EIO, true, false },
    { "EINTR", FAULT_EINTR, true, false },
    { "EAGAIN", FAULT_EAGAIN, true, false },
    { "EINVAL", FAULT_EINVAL, true, true },
    { "end", FAULT_END, false, false },
    { "late", FAULT_LATE, true, true },
    { "reordered", FAULT_REORDER, true, true },
    { "not registered", FAULT_NO_FIXED, true, true },
    { "twice", FAULT_TWICE, true, true },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct k3_options options_of(const struct arm *arm)
{
    struct k3_options o = mini_options(floors[arm - arms] + arm->above_floor);
    o.io = arm->io;
    o.policy = arm->policy;
    o.prefetch = arm->prefetch;
    return o;
}

/* Same bits, or a sentence. Returns the error. */
static int attack(const struct k3_options *o, struct mini_run *r,
                  const char *what)
{
    int err = mini_run(&mini, o, r);
    if (!mini_agrees(r, &want))
        fail_msg("%s: other bits", what);
    if (!err && (r->rows != want.rows || r->count != want.count))
        fail_msg("%s: tokens are missing", what);
    if (err && !strstr(r->error.text, ".safetensors"))
        fail_msg("%s: no file in \"%s\"", what, r->error.text);
    broken += r->broken;
    mini_forget(r);
    return err;
}

/* Reads of an arm that nobody disturbs. */
static uint32_t reads_of(const struct arm *arm)
{
    static const struct fault_plan nothing = { .first = FAULT_NEVER };
    struct k3_options o = options_of(arm);
    struct mini_run r;
    o.fault = &nothing;
    assert_int_equal(attack(&o, &r, arm->name), 0);
    assert_int_equal(r.prefetched > 0, strcmp(arm->prefetch, "none") != 0);
    return (uint32_t)r.reads;
}

/* Break read after read of one arm with one kind, every `step`th. Returns how
 * often a read ended in an error and the run did not. */
static uint32_t break_each(const struct arm *arm, const struct kind *kind,
                           bool always, uint32_t first, uint32_t step,
                           uint32_t end)
{
    uint32_t survived = 0;
    for (uint32_t n = first; all || n < end; n += step) {
        struct fault_plan plan = {
            .seed = n, .kinds = kind->kind, .first = n, .every = always,
            .short_bytes = 512 + n * 700 % 9000, .late_ns = 200000,
        };
        struct k3_options o = options_of(arm);
        struct mini_run r;
        char what[160];
        snprintf(what, sizeof what, "%s, %s at read %u%s", arm->name,
                 kind->name, n, always ? " and from there on" : "");
        o.fault = &plan;
        int err = attack(&o, &r, what);
        if (err && (always ? kind->always : kind->once))
            fail_msg("%s: %s", what, r.error.text);
        if (!err && !r.broken && n > end)
            break; /* past the last read */
        survived += !err && r.failed;
    }
    return survived;
}

static void every_fault_at_every_read(void **state)
{
    (void)state;
    for (uint32_t a = 0, turn = 0; a < ARMS; a++) {
        uint32_t end = reads_of(&arms[a]), step = all ? 1 : end / PLACES + 1;
        printf("# %s: %u reads\n", arms[a].name, end);
        for (uint32_t k = 0; k < KINDS; k++) {
            broken = 0; /* a place may be past what a run reads */
            for (int i = 0; i < 2 || (i < 8 && !broken && !all); i++, turn++)
                break_each(&arms[a], &kinds[k], i % 2,
                           all ? 0 : turn * 37 % step, step, end);
            if (!broken && kinds[k].kind != FAULT_NO_FIXED)
                fail_msg("%s: %s broke nothing", arms[a].name, kinds[k].name);
        }
    }
}

/* Break one read of an arm after the other, the last first, until three runs
 * finished without one, and one of them although the prefetched expert was then
 * chosen. Returns how many of the first kind, *late of the second. */
static uint32_t survivors(const struct arm *arm, uint32_t *late)
{
    uint32_t survived = 0;
    bool gate = !strcmp(arm->prefetch, "gate");
    *late = 0;
    for (uint32_t n = reads_of(arm);
         n-- > 0 && (all || survived < 3 || (gate && !*late));) {
        struct fault_plan plan = { .kinds = FAULT_END, .first = n };
        struct k3_options o = options_of(arm);
        struct mini_run r;
        o.fault = &plan;
        int err = attack(&o, &r, arm->name);
        survived += !err && r.failed;
        *late += !err && r.failed && r.late;
    }
    printf("# %s: %u did without a read that failed, %u of them with late "
           "prefetches\n", arm->name, survived, *late);
    return survived;
}

/* The file ends before a read: if that is demanded the run must fail, if it is
 * a prefetch it must not, even if its expert was chosen before it failed. */
static void a_failed_prefetch_fails_no_run(void **state)
{
    (void)state;
    static const struct kind end = { "end", FAULT_END, false, false };
    uint32_t all_late = 0;
    for (uint32_t a = 0; a < ARMS; a++)
        if (strcmp(arms[a].prefetch, "none")) {
            uint32_t late;
            assert_true(survivors(&arms[a], &late) > 0);
            all_late += late;
        } else {
            uint32_t reads = reads_of(&arms[a]);
            assert_int_equal(break_each(&arms[a], &end, false,
                                        all ? 0 : reads - 3, 1, reads), 0);
        }
    assert_true(all_late > 0);
}

/* The same with a long latency, where prefetches begin when what is demanded
 * has landed: every 25th read, the last one first. Which of them are
 * prefetches depends on timing, so their number is not checked. */
static void a_failed_prefetch_at_long_latency(void **state)
{
    (void)state;
    static const struct paced_drive far = { 1000000000, 2000000 };
    for (uint32_t a = 0; a < ARMS; a++) {
        if (!strcmp(arms[a].prefetch, "none"))
            continue;
        uint32_t reads = reads_of(&arms[a]);
        for (uint32_t n = reads; n > 0; n -= n < FAR ? n : FAR) {
            struct fault_plan plan = { .kinds = FAULT_END, .first = n - 1 };
            struct k3_options o = options_of(&arms[a]);
            struct mini_run r;
            o.fault = &plan;
            o.paced = &far;
            o.paced_count = 1;
            o.in_flight_bytes = 4096;
            int err = attack(&o, &r, arms[a].name);
            assert_true(err == 0 || err == -ENODATA);
        }
    }
}

static void anything_at_any_time(void **state)
{
    (void)state;
    static const struct paced_drive drives[2] = { { 300000000, 20000 },
                                                  { 100000000, 60000 } };
    const uint32_t harmless = FAULT_SHORT | FAULT_EINTR | FAULT_EAGAIN |
                              FAULT_EINVAL | FAULT_LATE | FAULT_REORDER |
                              FAULT_NO_FIXED | FAULT_TWICE;
    for (uint32_t seed = 0; seed < (all ? 400u : 40u); seed++) {
        struct fault_plan plan = {
            .seed = seed, .first = FAULT_NEVER,
            .kinds = seed % 4 ? harmless : harmless | FAULT_EIO,
            .chance_permille = seed % 2 ? 60 : 500,
            .short_bytes = 1 + seed * 977 % 6000, .late_ns = 100000,
        };
        struct k3_options o = options_of(&arms[seed % ARMS]);
        struct mini_run r;
        char what[64];
        snprintf(what, sizeof what, "seed %u", seed);
        o.fault = &plan;
        o.paced = drives;
        o.paced_count = seed % 3;
        if (o.paced_count) /* it takes one result for each read */
            plan.kinds &= ~(uint32_t)FAULT_TWICE;
        if (attack(&o, &r, what) && seed % 4)
            fail_msg("%s: %s", what, r.error.text);
        assert_true(r.broken > 0 || r.error.code);
    }
}

/* A copy that fails from some read on, of the shards or of a mirror of them:
 * the same bits, and never an error, as long as the other copy is there. */
static void a_lost_copy(void **state)
{
    (void)state;
    static const struct paced_drive drives[2] = { { 40000000, 20000 },
                                                  { 40000000, 20000 } };
    char mirror[128], command[400];
    uint64_t lost = 0;
    snprintf(mirror, sizeof mirror, "%s.mirror", mini.dir);
    snprintf(command, sizeof command, "mkdir %s && cp %s/*.safetensors %s",
             mirror, mini.dir, mirror);
    assert_int_equal(system(command), 0);
    const char *const folder[] = { mirror };
    for (uint32_t n = 0; n < (all ? 8u : 2u) * MINI_SHARDS; n++) {
        struct fault_plan plan = {
            .kinds = n % 3 == 2 ? FAULT_END : FAULT_EIO, .first = n / 4 % 3,
            .every = 1, .only = 1 + (n * 3 + n / 4) % (2 * MINI_SHARDS) };
        struct k3_options o = options_of(&arms[n % ARMS]);
        struct mini_run r;
        char what[64];
        snprintf(what, sizeof what, "file %u of %u", plan.only,
                 2 * MINI_SHARDS);
        o.fault = &plan;
        o.mirror = folder;
        o.mirrors = 1;
        o.paced = drives;
        o.paced_count = 2;
        int err = mini_run(&mini, &o, &r);
        if (err)
            fail_msg("%s: %s", what, r.error.text);
        assert_true(mini_agrees(&r, &want) && r.rows == want.rows);
        lost += r.failed;
        broken += r.broken;
        mini_forget(&r);
    }
    assert_true(lost > 0);
    snprintf(command, sizeof command, "rm -r %s", mirror);
    assert_int_equal(system(command), 0);
}

/* A ring that was refused: threads read instead, or the run says why not. */
static void refused_methods(void **state)
{
    (void)state;
    static const int errors[] = { -EPERM, -ENOSYS, -ENOMEM, -EMFILE };
    for (int i = 0; i < 4; i++) {
        struct fault_plan plan = { .first = FAULT_NEVER,
                                   .refused_method = "io_uring",
                                   .refused_error = errors[i] };
        struct k3_options o = options_of(&arms[0]);
        struct mini_run r;
        o.fault = &plan;
        assert_int_equal(attack(&o, &r, "refused"), 0);
        o.io = "uring";
        assert_int_equal(mini_run(&mini, &o, &r), errors[i]);
        assert_true(strlen(r.error.text) > 10);
        mini_forget(&r);
    }
}

/* ---- cancelled ---- */

struct stopper {
    struct k3 *k;
    uint32_t at, seen;   /* the call of progress that cancels */
    _Atomic bool begun;  /* for the thread */
    float *logits;
    uint32_t vocab, rows;
};

static void on_layer(void *arg, uint32_t layer, uint32_t layers)
{
    struct stopper *s = arg;
    (void)layer;
    (void)layers;
    atomic_store(&s->begun, true);
    if (s->k && s->seen++ == s->at)
        k3_cancel(s->k);
}

static int check_row(void *arg, const float *row)
{
    struct stopper *s = arg;
    assert_memory_equal(row, want.logits + (size_t)s->rows * want.vocab,
                        want.vocab * sizeof *row);
    s->rows++;
    return 0;
}

static int stopped_run(struct k3 *k, struct stopper *s, struct error *error)
{
    static const uint32_t prompt[MINI_PROMPT] = { 3, 500, 77, 3 };
    uint32_t ids[MINI_NEW];
    struct generate_options g = {
        .prompt = prompt,
        .prompt_count = MINI_PROMPT,
        .max = MINI_NEW,
        .sample = { .top_p = 1 },
        .ignore_end = true,
        .logits = check_row,
        .arg = s,
    };
    struct generate_result result = { .ids = ids };
    return generate(k, &g, &result, error);
}

static void cancelled_at_every_layer(void **state)
{
    (void)state;
    static const uint32_t of_arms[] = { 0, 4, 6 };
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t at = 0;; at++) {
            struct stopper s = { .at = at };
            struct k3_options o = options_of(&arms[of_arms[i]]);
            struct error error = { 0 };
            struct k3 *k;
            o.progress = on_layer;
            o.progress_arg = &s;
            assert_int_equal(k3_open(&k, mini.dir, &o, &error), 0);
            s.k = k;
            int err = stopped_run(k, &s, &error);
            k3_close(k);
            assert_int_equal(err, s.seen > at ? -ECANCELED : 0);
            if (err)
                continue;
            assert_true(at > 6); /* three layers, at least three passes */
            break;
        }
}

static void *cancel_when_begun(void *arg)
{
    struct stopper *s = arg;
    while (!atomic_load(&s->begun))
        ;
    k3_cancel(s->k);
    return NULL;
}

/* Every read takes its time; the caller sleeps, and another thread cancels. */
static void cancelled_while_it_waits(void **state)
{
    (void)state;
    static const struct paced_drive slow = { 20000000, 0 };
    static const struct fault_plan held = { .kinds = FAULT_LATE, .first = 0,
                                            .every = 1, .late_ns = 50000000 };
    for (uint32_t a = 0; a < 4; a++) {
        struct stopper s = { .at = UINT32_MAX };
        struct k3_options o = options_of(&arms[a]);
        struct error error = { 0 };
        struct k3 *k;
        pthread_t thread;
        o.progress = on_layer;
        o.progress_arg = &s;
        o.paced = &slow;
        o.paced_count = 1;
        o.in_flight_bytes = 0;
        o.fault = &held;
        assert_int_equal(k3_open(&k, mini.dir, &o, &error), 0);
        s.k = k;
        assert_int_equal(pthread_create(&thread, NULL, cancel_when_begun, &s),
                         0);
        assert_int_equal(stopped_run(k, &s, &error), -ECANCELED);
        pthread_join(thread, NULL);
        k3_close(k);
    }
}

static int setup(void **state)
{
    (void)state;
    if (!mini_make(&mini, NULL, 0))
        return -1;
    struct k3_options o = mini_options(64 << 20);
    int err = mini_run(&mini, &o, &want);
    for (uint32_t a = 0; a < ARMS; a++) {
        floors[a] = mini_floor(&mini, options_of(&arms[a]));
        if (err || !floors[a]) {
            printf("Bail out! %s%s\n", mini.wrong, want.error.text);
            return -1;
        }
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mini_forget(&want);
    mini_remove(&mini);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_at_every_read),
        cmocka_unit_test(a_failed_prefetch_fails_no_run),
        cmocka_unit_test(a_failed_prefetch_at_long_latency),
        cmocka_unit_test(anything_at_any_time),
        cmocka_unit_test(a_lost_copy),
        cmocka_unit_test(refused_methods),
        cmocka_unit_test(cancelled_at_every_layer),
        cmocka_unit_test(cancelled_while_it_waits),
    };
    all = argc > 1 && !strcmp(argv[1], "all");
    return cmocka_run_group_tests(tests, setup, teardown);
}

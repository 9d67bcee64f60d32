/* Goal    no failure of a read is lost, invented, or harmful to another one.
 * Method  the same 20 reads, over and over, breaking one more result each time
 *         until a run ends untouched: every place has then been broken. Each
 *         kind of fault runs both once and from there on, over each method.
 *         Every byte of every good read is compared.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "tests/fault/shards.h"
#include "tests/skip.h"

#define READS   20u
#define LONGEST 20000u

static const struct kind {
    const char *name;
    uint32_t    kind;
    uint32_t    short_bytes;
    bool        once_recovers, always_recovers;
    int         error; /* of a read that did not recover */
} kinds[] = {
    { "short by 1", FAULT_SHORT, 1, true, true, 0 },
    { "short by 512", FAULT_SHORT, 512, true, true, 0 },
    { "short by 4096", FAULT_SHORT, 4096, true, true, 0 },
    { "EIO", FAULT_EIO, 0, true, false, -EIO },
    { "EINTR", FAULT_EINTR, 0, true, false, -EIO },
    { "EAGAIN", FAULT_EAGAIN, 0, true, false, -EIO },
    { "EINVAL", FAULT_EINVAL, 0, true, true, 0 },
    { "end of file", FAULT_END, 0, false, false, -ENODATA },
    { "late", FAULT_LATE, 0, true, true, 0 },
    { "reordered", FAULT_REORDER, 0, true, true, 0 },
    { "twice", FAULT_TWICE, 0, true, true, 0 },
    { "no fixed buffers", FAULT_NO_FIXED, 0, true, true, 0 },
};

static struct shards shards;
static struct arena *arena;
static bool all;

/* One run; returns how many faults there were. */
static uint64_t run(const char *method, const struct fault_plan *plan,
                    const struct kind *k)
{
    struct reader_options o = shards_options(&shards, method);
    struct shards_read reads[READS];
    struct reader_facts facts;
    struct reader *r;
    uint32_t bad;
    o.arena = arena;
    o.fault = plan;
    shards_pick(&shards, reads, READS, LONGEST, 3);
    assert_int_equal(reader_open(&r, &o, &bad), 0);
    uint32_t failed = shards_run(&shards, r, reads, READS, arena);
    reader_facts(r, &facts);
    reader_close(r);
    assert_int_equal(facts.reads, READS);
    assert_int_equal(facts.failed, failed);
    bool recovers = plan->every ? k->always_recovers : k->once_recovers;
    if (recovers || facts.faults == 0)
        assert_int_equal(failed, 0);
    else
        assert_true(failed > 0);
    for (uint32_t i = 0; i < READS; i++)
        assert_true(reads[i].done.error == 0 ||
                    reads[i].done.error == k->error);
    return facts.faults;
}

static void break_each(const char *method)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t every = 0; every <= 1; every++) {
            /* A read that is interrupted for ever is tried a thousand times:
             * break fewer places that way, with "all" as argument some more. */
            bool tried = every && !kinds[k].always_recovers;
            uint32_t step = tried ? all ? 11 : 37 : 1;
            uint64_t faults = 1;
            for (uint32_t at = 0; faults > 0; at += step) {
                struct fault_plan plan = {
                    .seed = at,
                    .kinds = kinds[k].kind,
                    .first = at,
                    .every = every,
                    .short_bytes = kinds[k].short_bytes,
                    .late_ns = 100000,
                };
                faults = run(method, &plan, &kinds[k]);
                if (at == 0 && kinds[k].kind == FAULT_NO_FIXED)
                    break; /* nothing is fixed where nothing is registered */
                assert_true(at > 0 || faults > 0);
            }
        }
}

/* A read that ends inside a block goes on at the block, and directly. */
static void short_is_not_demoted(void **state)
{
    (void)state;
    struct fault_plan plan = { .kinds = FAULT_SHORT, .short_bytes = 512 };
    struct reader_options o = shards_options(&shards, "auto");
    struct shards_read read = { .length_bytes = 5 * READER_PAGE };
    struct reader_facts facts;
    struct reader *r;
    uint32_t bad;
    o.fault = &plan;
    assert_int_equal(reader_open(&r, &o, &bad), 0);
    reader_facts(r, &facts);
    bool direct = facts.direct; /* not so on every file system */
    assert_int_equal(shards_run(&shards, r, &read, 1, NULL), 0);
    reader_facts(r, &facts);
    assert_int_equal(facts.direct, direct);
    assert_int_equal(facts.faults, 1);
    assert_int_equal(facts.short_reads, 1);
    assert_int_equal(facts.retries, 0);
    assert_int_equal(read.done.device_bytes,
                     6 * READER_PAGE - (direct ? 512 : READER_PAGE));
    reader_close(r);
}

static void over_pread(void **state)
{
    (void)state;
    break_each("pread");
}

static void over_uring(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "uring");
    struct reader *r;
    uint32_t bad;
    int err = reader_open(&r, &o, &bad);
    if (err == -EPERM || err == -ENOSYS)
        skip_because("no io_uring here");
    assert_int_equal(err, 0);
    reader_close(r);
    break_each("uring");
}

/* Everything that recovers, mixed, on one read in five. */
static void soak(void **state)
{
    (void)state;
    static const struct kind mixed = { .once_recovers = true };
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct fault_plan plan = {
            .seed = seed,
            .kinds = FAULT_SHORT | FAULT_EIO | FAULT_EINTR | FAULT_EAGAIN |
                     FAULT_EINVAL | FAULT_LATE | FAULT_REORDER | FAULT_TWICE,
            .first = FAULT_NEVER,
            .chance_permille = 60,
            .short_bytes = (uint32_t)(seed * 97),
            .late_ns = 200000,
        };
        run(seed % 2 ? "auto" : "pread", &plan, &mixed);
    }
}

static int make(void **state)
{
    (void)state;
    uint64_t sizes[] = { 300001, 4096, 65536, 1, 12289 };
    shards_make(&shards, sizes, 5);
    return arena_open(&arena, 2 << 20);
}

static int drop(void **state)
{
    (void)state;
    arena_close(arena);
    shards_drop(&shards);
    return 0;
}

int main(int argc, char **argv)
{
    all = argc > 1 && !strcmp(argv[1], "all");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_is_not_demoted),
        cmocka_unit_test(over_pread),
        cmocka_unit_test(over_uring),
        cmocka_unit_test(soak),
    };
    return cmocka_run_group_tests_name("reader under faults", tests, make,
                                       drop);
}

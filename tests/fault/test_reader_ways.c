/* Goal    every method and wrapping does the same, for every range, file size,
 *         option and moment at which a caller may wake, stop or close it.
 * Method  random ranges over all of them, every byte compared; files of many
 *         sizes modulo a page; and the calls that a scheduler makes at the edge
 *         of what is allowed.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/method.h"
#include "tests/fault/shards.h"
#include "tests/skip.h"

#define READS 300u
#define SEAM  ((uint64_t)256 << 20)

static const char *const methods[] = { "auto", "pread" };
static struct shards shards;
static struct arena *arena;

static struct reader *must_open(const struct reader_options *o)
{
    struct reader *r;
    uint32_t bad;
    assert_int_equal(reader_open(&r, o, &bad), 0);
    assert_int_equal(bad, UINT32_MAX);
    return r;
}

static void conform(const struct reader_options *o, uint64_t seed)
{
    struct shards_read reads[READS];
    struct reader_facts f;
    struct reader *r = must_open(o);
    uint64_t payload = 0, device = 0;
    shards_pick(&shards, reads, READS, 40000, seed);
    assert_int_equal(shards_run(&shards, r, reads, READS, o->arena), 0);
    for (uint32_t i = 0; i < READS; i++) {
        const struct read_done *d = &reads[i].done;
        payload += d->bytes;
        device += d->device_bytes;
        assert_true(d->device_bytes >= d->bytes);
        assert_true(d->device_bytes < d->bytes + 2 * READER_PAGE);
        assert_true(d->queued_ns <= d->issued_ns);
        assert_true(d->issued_ns <= d->done_ns);
        assert_int_equal(d->drive, reader_drive_of(r, reads[i].file));
    }
    reader_facts(r, &f);
    assert_int_equal(f.reads, READS);
    assert_int_equal(f.payload_bytes, payload);
    assert_int_equal(f.device_bytes, device);
    assert_int_equal(f.retries, 0);
    assert_true(f.in_flight_peak_bytes > 0);
    for (uint32_t i = 0; i < f.drives; i++)
        assert_true(f.drive[i].busy_ns > 0 &&
                    f.drive[i].in_flight_mean_bytes > 0);
    reader_close(r);
}

static void all_ways(void **state)
{
    (void)state;
    static const struct paced_drive drives[] = { { 4000000000, 20000 },
                                                 { 2000000000, 0 } };
    static const struct fault_plan nothing = { .first = FAULT_NEVER };
    uint64_t seed = 11;
    for (int method = 0; method < 2; method++)
        for (uint32_t paced = 0; paced <= 2; paced++)
            for (int fault = 0; fault < 2; fault++)
                for (int pinned = 0; pinned < 2; pinned++) {
                    struct reader_options o =
                        shards_options(&shards, methods[method]);
                    o.paced = drives;
                    o.paced_count = paced;
                    o.fault = fault ? &nothing : NULL;
                    o.arena = pinned ? arena : NULL;
                    conform(&o, seed++);
                }
}

/* Registered memory is cut in pieces: before, over and behind the seam. */
static void over_the_seam(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "auto");
    struct reader_facts f;
    struct read_done d;
    assert_int_equal(arena_open(&o.arena, SEAM + (1 << 20)), 0);
    struct reader *r = must_open(&o);
    for (uint64_t at = SEAM - 8 * 4096; at < SEAM + 8 * 4096; at += 4096) {
        char *to = (char *)arena_base(o.arena) + at + 100;
        struct read_req req = { 1, 4 * 4096, 4096 + 100, to, at, 0 };
        assert_int_equal(reader_start(r, &req), 0);
        assert_int_equal(reader_reap(r, &d, 1, INT64_MAX), 1);
        assert_int_equal(d.error, 0);
        assert_memory_equal(to, shards.truth[1] + 4096 + 100, 4 * 4096);
    }
    reader_facts(r, &f);
    assert_int_equal(f.retries, 0);
    reader_close(r);
    arena_close(o.arena);
}

/* The last bytes of files that end anywhere in a page. */
static void every_end(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "auto");
    uint8_t *page = mmap(NULL, 2 * READER_PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    o.files = 1;
    for (uint64_t size = 3 * READER_PAGE; size > 2 * READER_PAGE;
         size -= size % 7 + 37) {
        struct read_done d;
        assert_int_equal(truncate(shards.path[0], (off_t)size), 0);
        o.method = methods[size % 2];
        struct reader *r = must_open(&o);
        assert_int_equal(reader_file_size(r, 0), size);
        for (uint32_t length = 1; length <= 4097; length += 512) {
            uint64_t at = size - length;
            struct read_req req = { 0, length, at, page + at % READER_PAGE, 1,
                                    0 };
            assert_int_equal(reader_start(r, &req), 0);
            assert_int_equal(reader_reap(r, &d, 1, INT64_MAX), 1);
            assert_int_equal(d.error, 0);
            assert_memory_equal(req.target, shards.truth[0] + at, length);
            req.offset_bytes++;
            req.target = (char *)req.target + 1;
            assert_int_equal(reader_start(r, &req), -ENODATA);
        }
        reader_close(r);
    }
    munmap(page, 2 * READER_PAGE);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "auto"), bad;
    uint32_t which;
    struct reader *r = must_open(&o);
    char *page = arena_base(arena);
    struct read_req good = { 1, 8, 4096, page, 0, 0 }, req;
#define REFUSED(field, value, error)                                           \
    req = good, req.field = (value),                                           \
    assert_int_equal(reader_start(r, &req), error)
    REFUSED(file, 5, -EINVAL);
    REFUSED(length_bytes, 0, -EINVAL);
    REFUSED(length_bytes, READER_CHUNK + 1, -EINVAL);
    REFUSED(offset_bytes, 4097, -EINVAL); /* not congruent */
    REFUSED(target, page + 8, -EINVAL);
    REFUSED(offset_bytes, shards.size[1] / 4096 * 4096 + 8192, -ENODATA);
    REFUSED(offset_bytes, UINT64_MAX - 4095, -ENODATA);
    REFUSED(length_bytes, (uint32_t)shards.size[1], -ENODATA);
#undef REFUSED
    reader_close(r);
    reader_close(NULL);

#define NOT_OPENED(field, value, error)                                        \
    bad = o, bad.field = (value),                                              \
    assert_int_equal(reader_open(&r, &bad, &which), error), assert_null(r)
    NOT_OPENED(method, "aio", -EINVAL);
    NOT_OPENED(method, NULL, -EINVAL);
    NOT_OPENED(files, 0, -EINVAL);
    NOT_OPENED(chunk_bytes, READER_CHUNK_MAX + 1, -EINVAL);
    NOT_OPENED(paced_count, 1, -EINVAL);
#undef NOT_OPENED
}

static void bad_files(void **state)
{
    (void)state;
    char fifo[96], missing[96];
    snprintf(fifo, sizeof fifo, "%s/fifo", shards.dir);
    snprintf(missing, sizeof missing, "%s/missing", shards.dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const struct {
        const char *path;
        int error;
    } cases[] = { { missing, -ENOENT }, { shards.dir, -EISDIR },
                  { fifo, -EINVAL } };
    for (size_t i = 0; i < 3; i++) {
        const char *paths[] = { shards.path[1], cases[i].path,
                                shards.path[2] };
        struct reader_options o = { .method = "auto", .paths = paths,
                                    .files = 3 };
        struct reader *r;
        uint32_t bad;
        assert_int_equal(reader_open(&r, &o, &bad), cases[i].error);
        assert_null(r);
        assert_int_equal(bad, 1);
    }
    unlink(fifo);
}

/* A file that loses its end while it is open. */
static void shrinking_file(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        struct reader_options o = shards_options(&shards, methods[m]);
        char *page = arena_base(arena);
        struct read_done d[3];
        uint64_t kept = shards.size[2] - 5000;
        struct reader *r = must_open(&o);
        assert_int_equal(truncate(shards.path[2], (off_t)kept), 0);
        const struct read_req reqs[] = {
            { 2, 100, kept - 50, page + (kept - 50) % 4096, 0, 0 },
            { 2, 100, kept + 4900, page + 16384 + (kept + 4900) % 4096, 1, 0 },
            { 2, 100, kept - 100, page + 32768 + (kept - 100) % 4096, 2, 0 },
        };
        for (int i = 0; i < 3; i++)
            assert_int_equal(reader_start(r, &reqs[i]), 0);
        for (int n = 0; n < 3;) {
            int got = reader_reap(r, d + n, 3 - (uint32_t)n, INT64_MAX);
            assert_true(got >= 0);
            n += got;
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(d[i].error, d[i].tag == 2 ? 0 : -ENODATA);
        assert_memory_equal(reqs[2].target,
                            shards.truth[2] + reqs[2].offset_bytes, 100);
        reader_close(r);
        /* Back to what it was, for the tests after this one. */
        int fd = open(shards.path[2], O_WRONLY);
        assert_int_equal(pwrite(fd, shards.truth[2] + kept, 5000, (off_t)kept),
                         5000);
        assert_int_equal(fsync(fd), 0);
        close(fd);
    }
}

static uint32_t fill_slots(struct reader *r, char *pages)
{
    uint32_t n = 0;
    struct read_req req = { .file = 1, .length_bytes = 4096 };
    do {
        req.offset_bytes = n % 16 * 4096;
        req.target = pages + n * 4096;
        req.tag = n;
    } while (reader_start(r, &req) == 0 && ++n < 4096);
    return n;
}

/* All slots busy, then closed: what close returns to is memory that nobody
 * writes any more, with every read landed. */
static void full_and_closed(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        struct reader_options o = shards_options(&shards, methods[m]);
        o.arena = arena;
        struct reader *r = must_open(&o);
        char *pages = arena_base(arena);
        memset(pages, 0, arena_bytes(arena));
        uint32_t n = fill_slots(r, pages);
        assert_true(n >= 256 && n < 4096);
        struct read_done first;
        if (m == 0) /* with the kernel, not only queued */
            assert_true(reader_reap(r, &first, 1, 0) >= 0);
        reader_close(r);
        for (uint32_t i = 0; i < n; i++)
            assert_memory_equal(pages + i * 4096,
                                shards.truth[1] + i % 16 * 4096, 4096);
    }
}

/* The descriptor of the only ring there is, or -1. */
static int ring_descriptor(void)
{
    for (int fd = 3; fd < 256; fd++) {
        char link[64], target[64] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0 &&
            strstr(target, "[io_uring]"))
            return fd;
    }
    return -1;
}

/* The ring goes, and with it the news of what it was reading: an error, no
 * waiting, and the pages stay, whoever closes what. */
static void the_ring_breaks(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "auto");
    struct arena *own;
    struct read_done done;
    assert_int_equal(arena_open(&own, arena_bytes(arena)), 0);
    o.arena = own;
    struct reader *r = must_open(&o);
    int ring = ring_descriptor(), nothing = open("/dev/null", O_RDONLY);
    char *pages = arena_base(own);
    if (ring < 0) {
        reader_close(r);
        arena_close(own);
        close(nothing);
        skip_because("no io_uring here");
    }
    assert_true(fill_slots(r, pages) > 0);
    assert_true(dup2(nothing, ring) == ring);
    assert_true(reader_reap(r, &done, 1, INT64_MAX) < 0);
    reader_close(r);
    arena_close(own);
    unsigned char in;
    assert_int_equal(mincore(pages, 4096, &in), 0);
    close(nothing);
}

struct other {
    struct reader *r;
    atomic_int stop, asked;
};

static void *own_and_leave(void *arg)
{
    struct other *o = arg;
    fill_slots(o->r, arena_base(arena));
    assert_int_equal(reader_drain(o->r), 0);
    return NULL;
}

/* The owner drains and ends; somebody else cleans up. */
static void closed_elsewhere(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        struct reader_options o = shards_options(&shards, methods[m]);
        struct other other = { .r = must_open(&o) };
        pthread_t thread;
        assert_int_equal(
            pthread_create(&thread, NULL, own_and_leave, &other), 0);
        pthread_join(thread, NULL);
        reader_close(other.r);
        memset(arena_base(arena), 0x11, arena_bytes(arena));
        const char *bytes = arena_base(arena);
        for (uint64_t i = 0; i < arena_bytes(arena); i++)
            assert_int_equal(bytes[i], 0x11);
    }
}

static void *wake_once(void *arg)
{
    struct other *o = arg;
    reader_wake(o->r);
    return NULL;
}

static void *ask_and_wake(void *arg)
{
    struct other *o = arg;
    struct reader_facts f;
    while (!atomic_load(&o->stop)) {
        reader_facts(o->r, &f);
        assert_true(f.payload_bytes <= f.device_bytes);
        reader_wake(o->r);
        atomic_fetch_add(&o->asked, 1);
    }
    return NULL;
}

static void wakes_and_deadlines(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        struct reader_options o = shards_options(&shards, methods[m]);
        struct reader *r = must_open(&o);
        struct other other = { .r = r };
        struct read_done d;
        pthread_t thread;
        assert_int_equal(reader_reap(r, &d, 1, 0), 0);
        int64_t until = clock_ns() + 1000000;
        assert_int_equal(reader_reap(r, &d, 1, until), 0);
        assert_true(clock_ns() >= until);
        reader_wake(r); /* before: the next reap returns */
        assert_int_equal(reader_reap(r, &d, 1, INT64_MAX), 0);
        for (int i = 0; i < 200; i++) { /* before, at, or in the middle */
            assert_int_equal(
                pthread_create(&thread, NULL, wake_once, &other), 0);
            assert_int_equal(reader_reap(r, &d, 1, INT64_MAX), 0);
            pthread_join(thread, NULL);
        }
        struct shards_read reads[READS];
        shards_pick(&shards, reads, READS, 9000, 5);
        assert_int_equal(
            pthread_create(&thread, NULL, ask_and_wake, &other), 0);
        while (atomic_load(&other.asked) == 0)
            reader_reap(r, &d, 1, INT64_MAX);
        assert_int_equal(shards_run(&shards, r, reads, READS, NULL), 0);
        atomic_store(&other.stop, 1);
        pthread_join(thread, NULL);
        reader_close(r);
    }
}

/* Files large enough to be measured get a budget and a rate. */
static void budgets(void **state)
{
    (void)state;
    struct reader_options o = shards_options(&shards, "auto");
    static const struct paced_drive fast[] = { { 8000000000, 1000000 },
                                               { 1000, 0 } };
    struct reader_facts f;
    struct reader *r = must_open(&o);
    assert_int_equal(reader_drives(r), 1);
    assert_true(reader_in_flight_budget(r, 0) >= 4 << 20);
    reader_close(r);
    o.chunk_bytes = 4096; /* so that even these files are worth a probe */
    o.in_flight_bytes = 123456;
    r = must_open(&o);
    assert_int_equal(reader_in_flight_budget(r, 0), 123456);
    reader_facts(r, &f);
    assert_true(f.raw_bytes_per_s > 0);
    reader_close(r);
    o.in_flight_bytes = 0;
    o.paced = fast;
    o.paced_count = 2;
    r = must_open(&o);
    assert_int_equal(reader_drives(r), 2);
    assert_int_equal(reader_drive_of(r, 3), 1);
    assert_int_equal(reader_in_flight_budget(r, 0), 24000000);
    assert_int_equal(reader_in_flight_budget(r, 1), 4 << 20);
    reader_facts(r, &f);
    assert_int_equal(f.paced_bytes_per_s, 8000001000);
    reader_close(r);
}

static int make(void **state)
{
    (void)state;
    const uint64_t sizes[] = { 3 * READER_PAGE, 65536, 300001, 12289, 1 };
    shards_make(&shards, sizes, 5);
    return arena_open(&arena, 16 << 20);
}

static int drop(void **state)
{
    (void)state;
    arena_close(arena);
    shards_drop(&shards);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways),
        cmocka_unit_test(over_the_seam),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(shrinking_file),
        cmocka_unit_test(full_and_closed),
        cmocka_unit_test(the_ring_breaks),
        cmocka_unit_test(closed_elsewhere),
        cmocka_unit_test(wakes_and_deadlines),
        cmocka_unit_test(budgets),
        cmocka_unit_test(every_end), /* last: it shortens a file */
    };
    return cmocka_run_group_tests_name("reader, all ways", tests, make, drop);
}

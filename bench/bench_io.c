/* bench_io - the reader against a bare io_uring loop, and against what else
 * there is.
 *
 * Every arm reads the same random objects of the same file, in chunks, into the
 * same memory. A round runs each arm once, in an order that turns around with
 * every round, and the bare loop at both ends; what counts is the ratio inside
 * a round, since the speed of a shared machine moves between them. A round
 * whose two bare legs differ by more than 15 % is thrown away and repeated.
 *
 * All arms run on one thread, with the priority that the reader gave it. CPU is
 * user and system time of this process. On a virtual machine the file is in the
 * host's cache, so GB/s says nothing about a drive.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "io/clock.h"
#include "io/method.h"
#include "io/reader.h"

#define OBJECT_BYTES  ((uint64_t)17 << 20)
#define AREA_BYTES    ((uint64_t)256 << 20)
#define OBJECTS_MAX   4096u
#define ROUNDS_MAX    64u
#define ROUNDS_MIN 5u
#define TRIES         3u /* rounds run, at most, per round wanted */
#define DISTURBED     1.15

enum arm_id {
    ARM_BARE,
    ARM_READER,
    ARM_READER_THREADS,
    ARM_READER_4K,
    ARM_PREAD_OBJECT,
    ARM_PREAD_CHUNK,
    ARM_BUFFERED,
    ARM_MMAP,
    ARMS,
};

static const char *const arm_name[ARMS] = {
    "bare",         "reader",      "reader-threads", "reader-4k-pages",
    "pread-object", "pread-chunk", "buffered",       "mmap",
};

struct leg {
    double gbps, cpu_ms_per_gb;
};

struct bench {
    const char *path;
    uint64_t size_bytes, rounds, leg_ms, chunk_kib, flight_kib;
    uint64_t chunk_bytes, flight_bytes, area_bytes;
    uint64_t object[OBJECTS_MAX]; /* where each one starts */
    uint32_t objects;
    int      direct_fd, cached_fd;
    struct arena *arena;
    char    *small_pages; /* area_bytes of 4 KiB pages */
    struct reader *reader[2]; /* io_uring, threads; both with the arena */
    struct bare bare;
    struct leg leg[ROUNDS_MAX][ARMS];
    double   ratio[ROUNDS_MAX][ARMS];
};

static int64_t cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * INT64_C(1000000000) +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * INT64_C(1000);
}

/* Where chunk number n of the sequence that all arms read is in the file. */
static uint64_t chunk_at(const void *arg, uint64_t n)
{
    const struct bench *b = arg;
    uint64_t per_object = OBJECT_BYTES / b->chunk_bytes;
    return b->object[n / per_object % b->objects] +
           n % per_object * b->chunk_bytes;
}

/* Where chunk number n lands: a small ring, as frames in use are. */
static char *target_of(const struct bench *b, char *area, uint64_t n)
{
    return area + n * b->chunk_bytes % b->area_bytes;
}

/* Each arm reads until `until_ns`, waits for what is in flight, and returns the
 * bytes, or a negative errno. */
static int64_t run_reader(struct bench *b, struct reader *r, char *area,
                          int64_t until_ns)
{
    uint64_t pushed = 0, done = 0;
    uint64_t depth = b->flight_bytes / b->chunk_bytes;
    while (done < pushed || clock_ns() < until_ns) {
        while (pushed - done < depth && clock_ns() < until_ns) {
            struct read_req req = {
                .length_bytes = (uint32_t)b->chunk_bytes,
                .offset_bytes = chunk_at(b, pushed),
                .target = target_of(b, area, pushed),
                .tag = pushed,
            };
            int err = reader_start(r, &req);
            if (err < 0)
                return err;
            pushed++;
        }
        struct read_done out[32];
        int n = reader_reap(r, out, 32, INT64_MAX);
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++)
            if (out[i].error < 0)
                return out[i].error;
        done += (uint64_t)n;
    }
    return (int64_t)(done * b->chunk_bytes);
}

static int64_t run_pread(struct bench *b, int fd, uint64_t length,
                         int64_t until_ns)
{
    uint64_t n = 0, step = length / b->chunk_bytes;
    int64_t sum = 0;
    for (; clock_ns() < until_ns; n += step) {
        char *to = target_of(b, arena_base(b->arena), step == 1 ? n : 0);
        ssize_t got = pread(fd, to, length, (off_t)chunk_at(b, n));
        if (got != (ssize_t)length)
            return got < 0 ? -errno : -EIO;
        sum += got;
    }
    return sum;
}

static int64_t run_mmap(struct bench *b, int64_t until_ns)
{
    const char *map = mmap(NULL, b->size_bytes, PROT_READ, MAP_SHARED,
                           b->cached_fd, 0);
    int64_t sum = 0;
    if (map == MAP_FAILED)
        return -errno;
    for (uint64_t n = 0; clock_ns() < until_ns; n++) {
        const volatile char *chunk = map + chunk_at(b, n);
        for (uint64_t at = 0; at < b->chunk_bytes; at += 4096)
            (void)chunk[at];
        sum += (int64_t)b->chunk_bytes;
    }
    munmap((void *)map, b->size_bytes);
    return sum;
}

static int run_leg(struct bench *b, enum arm_id arm, struct leg *leg)
{
    int64_t bytes = 0;
    if (arm == ARM_BUFFERED || arm == ARM_MMAP) /* cached is not read */
        posix_fadvise(b->cached_fd, 0, 0, POSIX_FADV_DONTNEED);
    int64_t cpu = cpu_ns(), begin = clock_ns();
    int64_t until = begin + (int64_t)b->leg_ms * 1000000;
    switch (arm) {
    case ARM_BARE:
        bytes = bare_run(&b->bare, b->chunk_bytes,
                         b->flight_bytes / b->chunk_bytes, b->bare.registered,
                         chunk_at, b, until);
        break;
    case ARM_READER:
        bytes = run_reader(b, b->reader[0], arena_base(b->arena), until);
        break;
    case ARM_READER_THREADS:
        bytes = run_reader(b, b->reader[1], arena_base(b->arena), until);
        break;
    case ARM_READER_4K:
        bytes = run_reader(b, b->reader[0], b->small_pages, until);
        break;
    case ARM_PREAD_OBJECT:
        bytes = run_pread(b, b->direct_fd, OBJECT_BYTES, until);
        break;
    case ARM_PREAD_CHUNK:
        bytes = run_pread(b, b->direct_fd, b->chunk_bytes, until);
        break;
    case ARM_BUFFERED:
        bytes = run_pread(b, b->cached_fd, b->chunk_bytes, until);
        break;
    case ARM_MMAP:
        bytes = run_mmap(b, until);
        break;
    case ARMS:
        break;
    }
    if (bytes <= 0) {
        fprintf(stderr, "bench_io: %s: %s\n", arm_name[arm],
                strerror((int)-bytes));
        return -1;
    }
    double wall = (double)(clock_ns() - begin);
    leg->gbps = (double)bytes / wall;
    leg->cpu_ms_per_gb = (double)(cpu_ns() - cpu) * 1e3 / (double)bytes;
    return 0;
}

/* The bare loop first and last, the others between, forth and back: the reader
 * is always next to a bare leg. */
static int run_round(struct bench *b, uint32_t round, bool *disturbed)
{
    struct leg first, last;
    struct leg *leg = b->leg[round];
    if (run_leg(b, ARM_BARE, &first) < 0)
        return -1;
    for (int i = 1; i < ARMS; i++) {
        enum arm_id arm = (enum arm_id)(round % 2 ? ARMS - i : i);
        if (run_leg(b, arm, &leg[arm]) < 0)
            return -1;
    }
    if (run_leg(b, ARM_BARE, &last) < 0)
        return -1;
    double low = first.gbps < last.gbps ? first.gbps : last.gbps;
    double high = first.gbps > last.gbps ? first.gbps : last.gbps;
    *disturbed = high > low * DISTURBED;
    leg[ARM_BARE].gbps = (first.gbps + last.gbps) / 2;
    leg[ARM_BARE].cpu_ms_per_gb =
        (first.cpu_ms_per_gb + last.cpu_ms_per_gb) / 2;
    for (int arm = 0; arm < ARMS; arm++)
        b->ratio[round][arm] = leg[arm].gbps / leg[ARM_BARE].gbps;
    return 0;
}

static int setup_reader(struct bench *b, const char *method,
                        struct reader **out)
{
    uint32_t bad;
    struct reader_options o = {
        .method = method,
        .paths = &b->path,
        .files = 1,
        .chunk_bytes = (uint32_t)b->chunk_bytes,
        .arena = b->arena,
        .in_flight_bytes = b->flight_bytes,
        .realtime = true,
    };
    return reader_open(out, &o, &bad);
}

/* Returns a sentence, or NULL. */
static const char *check_file(struct bench *b)
{
    struct stat st;
    b->cached_fd = open(b->path, O_RDONLY | O_CLOEXEC);
    if (b->cached_fd < 0 || fstat(b->cached_fd, &st) < 0)
        return strerror(errno);
    b->size_bytes = (uint64_t)st.st_size;
    if (b->size_bytes < 8 * OBJECT_BYTES)
        return "is smaller than 136 MiB: too small to tell anything";
    if (lseek(b->cached_fd, 0, SEEK_HOLE) < st.st_size)
        return "has holes: reading those is not reading a drive; write it in "
               "full (cp --sparse=never)";
    b->direct_fd = open(b->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    return b->direct_fd < 0 ? "cannot be read with O_DIRECT" : NULL;
}

static void pick_objects(struct bench *b)
{
    uint64_t state = 1, slots = (b->size_bytes - OBJECT_BYTES) / 4096;
    b->objects = OBJECTS_MAX;
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        b->object[i] = (state >> 16) % slots * 4096;
    }
}

static int setup(struct bench *b)
{
    b->chunk_bytes = b->chunk_kib << 10;
    b->area_bytes = AREA_BYTES / b->chunk_bytes * b->chunk_bytes;
    b->flight_bytes = b->flight_kib << 10;
    pick_objects(b);
    int err = arena_open(&b->arena, b->area_bytes);
    b->small_pages = mmap(NULL, b->area_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (err < 0 || b->small_pages == MAP_FAILED)
        return -ENOMEM;
    madvise(b->small_pages, b->area_bytes, MADV_NOHUGEPAGE);
    memset(b->small_pages, 1, b->area_bytes);
    err = setup_reader(b, "uring", &b->reader[0]);
    if (err == 0)
        err = setup_reader(b, "pread", &b->reader[1]);
    if (err == 0 && b->flight_bytes == 0)
        b->flight_bytes = reader_in_flight_budget(b->reader[0], 0);
    if (err == 0 && b->flight_bytes / b->chunk_bytes > BARE_DEPTH_MAX)
        b->flight_bytes = BARE_DEPTH_MAX * b->chunk_bytes;
    if (err == 0 && b->flight_bytes < b->chunk_bytes)
        b->flight_bytes = b->chunk_bytes;
    return err < 0 ? err : bare_open(&b->bare, b->direct_fd,
                                     arena_base(b->arena), b->area_bytes);
}

static void teardown(struct bench *b)
{
    reader_close(b->reader[0]);
    reader_close(b->reader[1]);
    bare_close(&b->bare);
    arena_close(b->arena);
}

static void print_header(const struct bench *b)
{
    struct reader_facts f;
    struct arena_facts a;
    reader_facts(b->reader[0], &f);
    arena_facts(b->arena, &a);
    printf("file %s, %.2f GB; chunk %" PRIu64 " KiB, %" PRIu64
           " KiB in flight; legs of %" PRIu64 " ms\n",
           b->path, (double)b->size_bytes / 1e9, b->chunk_bytes >> 10,
           b->flight_bytes >> 10, b->leg_ms);
    printf("reader: %s, %s, buffers %s; huge pages %.1f %%; probe %.2f GB/s\n",
           f.method, f.setup, f.registered_buffers ? "registered" : "plain",
           100 * a.huge_page_share, (double)f.raw_bytes_per_s / 1e9);
    for (uint32_t i = 0; i < f.notes; i++)
        printf("note: %s\n", f.note[i]);
}

/* How the other work on this machine stood in the way: microseconds in which
 * some task waited for a processor, since boot. */
static uint64_t cpu_pressure_us(void)
{
    char text[256];
    FILE *f = fopen("/proc/pressure/cpu", "r");
    char *total = f && fgets(text, sizeof text, f) ? strstr(text, "total=")
                                                   : NULL;
    if (f)
        fclose(f);
    return total ? strtoull(total + 6, NULL, 10) : 0;
}

static json_t *line_of(const struct bench *b, int arm, uint32_t rounds)
{
    double g[ROUNDS_MAX], q[ROUNDS_MAX], c[ROUNDS_MAX];
    struct arena_facts a;
    arena_facts(b->arena, &a);
    for (uint32_t i = 0; i < rounds; i++) {
        g[i] = b->leg[i][arm].gbps;
        q[i] = b->ratio[i][arm];
        c[i] = b->leg[i][arm].cpu_ms_per_gb;
    }
    struct bench_spread gs = bench_spread(g, rounds);
    struct bench_spread qs = bench_spread(q, rounds);
    struct bench_spread cs = bench_spread(c, rounds);
    printf("%-16s %6.2f (%5.2f..%5.2f)  %7.3f (%.3f..%.3f)  %9.1f\n",
           arm_name[arm], gs.median, gs.min, gs.max, qs.median, qs.min, qs.max,
           cs.median);
    return json_pack(
        "{s:s, s:f, s:f, s:f, s:f, s:f, s:i, s:f}", "method", arm_name[arm],
        "gbps", gs.median, "ratio_to_raw", qs.median, "ratio_min", qs.min,
        "ratio_max", qs.max, "cpu_ms_per_gb", cs.median, "rounds", (int)rounds,
        "huge_page_share", arm == ARM_READER_4K ? 0.0 : a.huge_page_share);
}

static int report(struct bench *b, uint32_t rounds, uint32_t thrown,
                  double pressure)
{
    json_t *array = json_array();
    print_header(b);
    printf("%u rounds, %u thrown away because the bare legs differed; some "
           "task waited for a processor %.0f %% of the time\n\n",
           rounds, thrown, 100 * pressure);
    printf("%-16s %21s  %22s  %9s\n", "arm", "GB/s med (min..max)",
           "ratio to bare", "CPU ms/GB");
    FILE *tsv = bench_results("io", "when\tarm\tgbps\tratio_to_bare\t"
                                    "ratio_min\tratio_max\tcpu_ms_per_gb\t"
                                    "rounds\tin_flight_kib\tcpu_pressure");
    for (int arm = 0; arm < ARMS; arm++) {
        json_t *o = line_of(b, arm, rounds);
        json_array_append(array, o);
        if (tsv)
            fprintf(tsv, "%s\t%s\t%.3f\t%.4f\t%.4f\t%.4f\t%.2f\t%u\t%" PRIu64
                         "\t%.2f\n",
                    bench_stamp(), arm_name[arm],
                    json_number_value(json_object_get(o, "gbps")),
                    json_number_value(json_object_get(o, "ratio_to_raw")),
                    json_number_value(json_object_get(o, "ratio_min")),
                    json_number_value(json_object_get(o, "ratio_max")),
                    json_number_value(json_object_get(o, "cpu_ms_per_gb")),
                    rounds, b->flight_bytes >> 10, pressure);
        json_decref(o);
    }
    if (tsv)
        fclose(tsv);
    return bench_json("io", array);
}

int main(int argc, char **argv)
{
    static struct bench b = {
        .rounds = 10, .leg_ms = 300, .chunk_kib = 1024,
        .direct_fd = -1, .cached_fd = -1,
    };
    const struct opt table[] = {
        { "file", 'f', OPT_TEXT, &b.path, "FILE", "what to read", NULL },
        { "rounds", 'r', OPT_UINT, &b.rounds, "N", "5 to 64 (10)", NULL },
        { "leg", 'l', OPT_UINT, &b.leg_ms, "MS", "length of a leg (300)",
          NULL },
        { "chunk", 'c', OPT_UINT, &b.chunk_kib, "KIB", "a read (1024)", NULL },
        { "in-flight", 'q', OPT_UINT, &b.flight_kib, "KIB",
          "bytes in flight (found by the reader's probe)", NULL },
    };
    const struct opt_command cmd = {
        "bench_io [--file] FILE", "Compare ways to read objects of one file.",
        table, sizeof table / sizeof *table,
    };
    const char *word = NULL;
    int n = opt_parse(&cmd, argc, argv, &word, 1);
    if (n < 0)
        return opt_status(n);
    if (n == 1)
        b.path = word;
    if (!b.path || b.rounds < ROUNDS_MIN || b.rounds > ROUNDS_MAX ||
        b.leg_ms < 1 || b.chunk_kib < 4 || b.chunk_kib > 17408 ||
        b.chunk_kib % 4)
        return opt_usage_error(&cmd, "name a FILE of some GB, 5 to 64 rounds, "
                                     "chunks of 4 to 17408 KiB");
    const char *wrong = check_file(&b);
    if (wrong) {
        fprintf(stderr, "bench_io: %s: %s\n", b.path, wrong);
        return 1;
    }
    int err = setup(&b);
    if (err < 0) {
        fprintf(stderr, "bench_io: %s: %s\n", b.path, strerror(-err));
        teardown(&b);
        return 1;
    }
    uint32_t kept = 0, tried = 0;
    uint64_t waited_us = cpu_pressure_us();
    int64_t begin = clock_ns();
    for (; kept < b.rounds && tried < TRIES * b.rounds; tried++) {
        bool disturbed;
        if (run_round(&b, kept, &disturbed) < 0)
            return 1;
        kept += !disturbed;
    }
    double pressure = (double)(cpu_pressure_us() - waited_us) * 1e3 /
                      (double)(clock_ns() - begin);
    int status = 1;
    if (kept < ROUNDS_MIN)
        fprintf(stderr, "bench_io: only %u of %u rounds were undisturbed: the "
                        "machine is too busy\n", kept, tried);
    else
        status = report(&b, kept, tried - kept, pressure);
    teardown(&b);
    return status;
}

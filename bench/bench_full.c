/* bench_full.c - the full geometry: a token against the larger of its parts.
 *
 * On a sparse `synth --preset k3` checkpoint, in interleaved rounds:
 *   bare      an io_uring loop over the same files into registered buffers,
 *             as the reader's are: bytes a second
 *   plain     the same into plain buffers. The kernel fills those with zeros
 *             faster; a drive would not care
 *   compute   a decode pass whose reads end at once, unread: what the same
 *             tiles cost when they are there
 *   pass      a decode pass
 * What counts is the pass over the larger of its bytes at the bare rate and
 * the compute, within a round. A sparse file is all holes: no drive works for
 * it, the kernel writes zeros, and that costs CPU which the cores then lack;
 * the share is printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "io/arena.h"
#include "io/clock.h"
#include "io/method.h"
#include "model/k3/k3.h"

enum { ROUNDS_MAX = 32, DEPTH = 8, BARE_MS = 3000 };
enum arm { ARM_BARE, ARM_PLAIN, ARM_COMPUTE, ARM_PASS, ARMS };
static const uint64_t chunk_bytes = 1 << 20, area_bytes = 256 << 20;

/* Takes the place of libc's in this program: while `unread` is set, reads of
 * the thread method end at once, with what the target held. The pass then
 * computes nothing of worth, but as long as with weights that are there. */
static atomic_bool unread;

ssize_t pread(int fd, void *target, size_t bytes, off_t offset)
{
    if (atomic_load(&unread))
        return (ssize_t)bytes;
    return pread64(fd, target, bytes, offset);
}

/* Before the first read into a frame: what came with it would stay there and
 * be taken for the weights of another tile. */
static int stop_reading(void *arg, const struct k3 *k, struct error *error)
{
    (void)arg, (void)k, (void)error;
    atomic_store(&unread, true);
    return 0;
}

struct cost {
    double seconds, system_s, user_s, bytes;
};

struct bench {
    const char *model;
    uint64_t rounds, threads, memory_bytes;
    struct arena *arena;
    struct bare bare;
    int fd;
    uint64_t file_bytes;
    struct k3 *compute, *pass;
    uint32_t position[2];
    struct cost cost[ARMS][ROUNDS_MAX];
};

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void begin(struct cost *c)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    *c = (struct cost){ .seconds = -(double)clock_ns() / 1e9,
                        .system_s = -seconds_of(u.ru_stime),
                        .user_s = -seconds_of(u.ru_utime) };
}

static void end(struct cost *c)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    c->seconds += (double)clock_ns() / 1e9;
    c->system_s += seconds_of(u.ru_stime);
    c->user_s += seconds_of(u.ru_utime);
}

static uint64_t chunk_at(const void *arg, uint64_t n)
{
    const struct bench *b = arg;
    return n % (b->file_bytes / chunk_bytes) * chunk_bytes;
}

/* DEPTH chunks in flight, one after the other through the file, into a small
 * ring of frames. */
static int run_bare(struct bench *b, bool registered, struct cost *c)
{
    begin(c);
    int64_t bytes = bare_run(&b->bare, chunk_bytes, DEPTH, registered, chunk_at,
                             b, clock_ns() + BARE_MS * INT64_C(1000000));
    end(c);
    c->bytes = (double)bytes;
    return bytes < 0 ? (int)bytes : 0;
}

static int run_pass(struct k3 *k, uint32_t *position, struct cost *c,
                    struct error *error)
{
    struct k3_row row = { .position = *position, .id = 1 + *position % 1000,
                          .logits = true, .phase = K3_DECODE };
    struct k3_facts before, after;
    k3_facts(k, &before);
    begin(c);
    int err = k3_pass(k, &row, 1, error);
    end(c);
    k3_facts(k, &after);
    const struct k3_totals *a = &before.totals[K3_DECODE],
                           *z = &after.totals[K3_DECODE];
    c->bytes = (double)(z->trunk_bytes + z->embed_bytes + z->demand_bytes -
                        a->trunk_bytes - a->embed_bytes - a->demand_bytes);
    ++*position;
    return err;
}

static int set_up(struct bench *b, struct error *error)
{
    char pattern[4096];
    glob_t files;
    struct stat st;
    snprintf(pattern, sizeof pattern, "%s/*.safetensors", b->model);
    if (glob(pattern, 0, NULL, &files))
        return error_set(error, -ENOENT, "%s: no shards", b->model);
    b->fd = open(files.gl_pathv[0], O_RDONLY | O_CLOEXEC | O_DIRECT);
    globfree(&files);
    if (b->fd < 0 || fstat(b->fd, &st))
        return error_set(error, -errno, "%s: %s", b->model, strerror(errno));
    b->file_bytes = (uint64_t)st.st_size;
    int err = arena_open(&b->arena, area_bytes);
    if (!err)
        err = bare_open(&b->bare, b->fd, arena_base(b->arena), area_bytes);
    if (!err && !b->bare.registered)
        err = -ENOMEM;
    if (err)
        return error_set(error, err, "the bare ring: %s", strerror(-err));
    struct k3_options o = { .memory_bytes = b->memory_bytes, .rows = 1,
                            .realtime = true,
                            .threads = (uint32_t)b->threads, .logits = 1,
                            .policy = "none", .prefetch = "none" };
    if (!o.memory_bytes) {
        struct plan plan;
        struct error below;
        o.memory_bytes = 1;
        k3_plan(&plan, b->model, &o, &below);
        o.memory_bytes = plan.floor_bytes + (1 << 20); /* threads */
    }
    err = k3_open(&b->pass, b->model, &o, error);
    o.io = "pread";
    o.planned = stop_reading;
    if (!err)
        err = k3_open(&b->compute, b->model, &o, error);
    if (err)
        return err;
    k3_set_readahead(b->pass, b->rounds + 2);
    k3_set_readahead(b->compute, b->rounds + 2);
    return 0;
}

static int run_rounds(struct bench *b, struct error *error)
{
    struct cost warm;
    int err = run_pass(b->compute, &b->position[0], &warm, error);
    if (!err)
        err = run_pass(b->pass, &b->position[1], &warm, error);
    for (uint64_t r = 0; r < b->rounds && !err; r++)
        for (uint64_t i = 0; i < ARMS && !err; i++) {
            uint64_t arm = r % 2 ? ARMS - 1 - i : i;
            struct cost *c = &b->cost[arm][r];
            fprintf(stderr, "\rround %" PRIu64 " arm %" PRIu64 " ", r + 1, i);
            if (arm == ARM_COMPUTE)
                err = run_pass(b->compute, &b->position[0], c, error);
            else if (arm == ARM_PASS)
                err = run_pass(b->pass, &b->position[1], c, error);
            else if ((err = run_bare(b, arm == ARM_BARE, c)))
                error_set(error, err, "the bare ring: %s", strerror(-err));
        }
    fputc('\n', stderr);
    return err;
}

enum { L_BARE, L_PLAIN, L_COMPUTE, L_PASS, L_RATIO, L_RATIO_PLAIN, L_SYSTEM,
       L_BUSY, LINES };
static const char *const line_name[LINES] = {
    "reads_bare_s", "reads_plain_s", "compute_s", "pass_s", "pass_to_longer",
    "pass_to_longer_plain", "system_share", "busy_share" };
static const char *const line_text[LINES] = {
    "reads at the bare rate, s", "reads at the plain rate, s",
    "compute without reads, s", "a decode pass, s",
    "pass / longer of bare, compute", "pass / longer of plain, compute",
    "of all CPU: system, for holes", "of all CPU: busy" };

static double longer(double a, double b)
{
    return a > b ? a : b;
}

static int report(const struct bench *b)
{
    double v[LINES][ROUNDS_MAX];
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double bytes = b->cost[ARM_PASS][0].bytes;
    for (uint64_t r = 0; r < b->rounds; r++) {
        const struct cost *bare = &b->cost[ARM_BARE][r];
        const struct cost *plain = &b->cost[ARM_PLAIN][r];
        const struct cost *pass = &b->cost[ARM_PASS][r];
        double compute = b->cost[ARM_COMPUTE][r].seconds;
        v[L_BARE][r] = pass->bytes * bare->seconds / bare->bytes;
        v[L_PLAIN][r] = pass->bytes * plain->seconds / plain->bytes;
        v[L_COMPUTE][r] = compute;
        v[L_PASS][r] = pass->seconds;
        v[L_RATIO][r] = pass->seconds / longer(v[L_BARE][r], compute);
        v[L_RATIO_PLAIN][r] = pass->seconds / longer(v[L_PLAIN][r], compute);
        v[L_SYSTEM][r] = pass->system_s / (pass->seconds * cores);
        v[L_BUSY][r] = (pass->system_s + pass->user_s) / cores / pass->seconds;
    }
    json_t *array = json_array(), *o = json_object();
    FILE *f = bench_results("full", "stamp\tmemory\trounds\tgb\treads_bare_s\t"
                            "reads_plain_s\tcompute_s\tpass_s\tratio\t"
                            "ratio_plain\tsystem_share\tbusy_share");
    if (f)
        fprintf(f, "%s\t%.0f\t%" PRIu64 "\t%.3f", bench_stamp(),
                (double)k3_plan_of(b->pass)->budget_bytes, b->rounds,
                bytes / 1e9);
    printf("%.3f GB a pass, %.0f cores, %" PRIu64 " rounds\n", bytes / 1e9,
           cores, b->rounds);
    for (int i = 0; i < LINES; i++) {
        struct bench_spread s = bench_spread(v[i], b->rounds);
        printf("%-31s %7.3f  [%.3f %.3f]\n", line_text[i], s.median, s.min,
               s.max);
        json_object_set_new(o, line_name[i], json_real(s.median));
        if (f)
            fprintf(f, "\t%.3f", s.median);
    }
    if (f) {
        fputc('\n', f);
        fclose(f);
    }
    json_array_append_new(array, o);
    return bench_json("full", array);
}

int main(int argc, char **argv)
{
    static struct bench b = { .model = "build/bench-k3", .rounds = 5 };
    const struct opt table[] = {
        { "model", 0, OPT_TEXT, &b.model, "DIR",
          "a `synth --preset k3 --sparse` checkpoint; made if missing", NULL },
        { "rounds", 0, OPT_UINT, &b.rounds, "N", "default 5", NULL },
        { "threads", 't', OPT_UINT, &b.threads, "N", "default: cores", NULL },
        { "memory", 'm', OPT_SIZE, &b.memory_bytes, "SIZE",
          "default: the floor", NULL },
    };
    const struct opt_command cmd = { "bench_full [options]", NULL, table,
                                     sizeof table / sizeof *table };
    struct error error = { 0 };
    int words = opt_parse(&cmd, argc, argv, NULL, 0);
    if (words < 0)
        return opt_status(words);
    if (b.rounds < 1 || b.rounds > ROUNDS_MAX)
        return opt_usage_error(&cmd, "--rounds is 1 to %d", ROUNDS_MAX);
    int err = bench_model(&(struct synth_options){
        .dir = b.model, .preset = "k3", .sparse = true });
    if (!err && (set_up(&b, &error) || run_rounds(&b, &error))) {
        fprintf(stderr, "bench: %s\n", error.text);
        err = 1;
    }
    if (!err)
        err = report(&b);
    bare_close(&b.bare);
    k3_close(b.compute);
    k3_close(b.pass);
    return err;
}

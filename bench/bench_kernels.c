/* bench_kernels.c - every kernel beside what this machine can do.
 *
 *     make bench-kernels [ARGS="--only bf16 --isa avx512 --rounds 9"]
 *
 * Shapes are K3's. Weights are walked through a buffer larger than the caches,
 * in 4 MB tiles handed to a team as the model hands them. Each line is the
 * median over interleaved rounds; in every round the read bandwidth and the fma
 * peak are measured again right before the kernel, on as many threads, and the
 * shares are medians of the ratios within a round: on a shared machine the
 * rates move, the ratios much less. One thread is measured in its CPU time.
 *
 *     weight GB/s   stored bytes that must be read (KDA: read and written); u3:
 *                   bytes of the bf16 that is coded, to compare with bf16
 *     of read       that, as a share of a plain read loop over the same buffer
 *     of fma        GFLOP/s as a share of register-only fma, same vector width
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "bench/ceiling.h"
#include "bench/coded.h"
#include "bin/cli/opt.h"
#include "compute/attnres.h"
#include "compute/bf16.h"
#include "compute/conv.h"
#include "compute/glu.h"
#include "compute/kda.h"
#include "compute/kern.h"
#include "compute/mla.h"
#include "compute/mxfp4.h"
#include "compute/norm.h"
#include "compute/pack.h"
#include "compute/router.h"
#include "compute/team.h"
#include "compute/u3.h"

enum {
    ROWS_MAX = 64,
    WIDTH_MAX = 12288,
    ROUNDS_MAX = 99,
    CASES_MAX = 1000,
    HEADS = 96,
    GROUP_HEADS = 12, /* heads an MLA call takes */
    POSITIONS = 4096,
    DECODE_ROWS = 32, /* of u3_rows: both sides fit in L2 */
};
#define BUFFER_BYTES ((size_t)1 << 30)
#define STATE_BYTES  ((size_t)448 << 20)
#define CODED_BYTES  ((size_t)256 << 20)
#define READ_BYTES   ((size_t)256 << 20)
#define TILE_BYTES   ((size_t)4 << 20)
#define CASE_NS      30000000u

/* What one unit of work of a case reads and computes, and how to do it. */
struct kind {
    const char *kernel;
    const char *shape;
    size_t outputs, cols;
    double bytes;      /* of weights or state, a unit */
    double flop_a_row; /* a unit */
    double units_a_token;
    void (*run)(void); /* one unit: current case, current place */
};

struct bench_case {
    const struct kind *kind;
    enum isa isa;
    unsigned threads;
    size_t rows;
    double gbps[ROUNDS_MAX], gflops[ROUNDS_MAX], seconds[ROUNDS_MAX];
    double of_read[ROUNDS_MAX], of_fma[ROUNDS_MAX];
};

static const char *only = "", *isa_wanted = "";
static uint64_t rounds = 5, threads;

static struct {
    char *buffer, *state;
    size_t at; /* next weights in the buffer */
    struct kern kern;
    struct team *team, *all, *one;
    const struct kind *kind;
    size_t rows;
    float *x, *packed, *y, *scratch;
    float key[128], alpha[128]; /* a head's */
    unsigned char *scales;      /* a sixteenth of the buffer, 120 .. 122 */
    struct coded coded[2];      /* of 7168 and 12288 columns */
    size_t coded_at;            /* next block */
    char *decoded;              /* u3_rows: a part for each worker */
} now;

static const char *next_weights(size_t bytes)
{
    if (now.at + bytes > BUFFER_BYTES)
        now.at = 0;
    const char *w = now.buffer + now.at;
    now.at += (bytes + 4095) & ~(size_t)4095;
    return w;
}

/* ---- the kernels, one unit each ---- */

struct tile {
    const char *w;
    size_t first; /* output of w's first row */
    const unsigned char *scale;
};

static void bf16_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct tile *t = arg;
    (void)worker;
    bf16_gemm(&now.kern, now.y, WIDTH_MAX, t->w + begin * now.kind->cols * 2,
              now.kind->cols, now.packed, now.rows, t->first + begin,
              t->first + end);
}

static void bf16_run(void)
{
    size_t row_bytes = now.kind->cols * 2;
    size_t tile_rows = TILE_BYTES / row_bytes / 4 * 4;
    struct tile t = { .w = next_weights(now.kind->outputs * row_bytes) };
    for (; t.first < now.kind->outputs; t.first += tile_rows) {
        size_t left = now.kind->outputs - t.first;
        size_t count = left < tile_rows ? left : tile_rows;
        team_for(now.team, count, bf16_grain(now.kind->cols, now.rows),
                 bf16_body, &t);
        t.w += count * row_bytes;
    }
}

static void mxfp4_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct tile *t = arg;
    (void)worker;
    mxfp4_gemm(&now.kern, now.y, WIDTH_MAX, t->w + begin * now.kind->cols / 2,
               t->scale + begin * now.kind->cols / 32, now.kind->cols,
               now.packed, now.rows, begin, end);
}

static void mxfp4_run(void)
{
    size_t bytes = now.kind->outputs * now.kind->cols / 2;
    struct tile t = { .w = next_weights(bytes) };
    t.scale = now.scales + (t.w - now.buffer) / 16;
    team_for(now.team, now.kind->outputs, 32, mxfp4_body, &t);
}

/* Rows [begin, end) of some blocks in a row, from t->w. */
static void u3_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct tile *t = arg;
    const struct coded *c = &now.coded[now.kind->cols != 7168];
    (void)worker;
    while (begin < end) {
        size_t row = begin % c->rows, n = c->rows - row;
        struct u3 u;
        n = n < end - begin ? n : end - begin;
        u3_open(&u, t->w + begin / c->rows * c->bytes);
        u3_gemm(&now.kern, now.y, WIDTH_MAX, &u, (uint32_t)row, now.packed,
                now.rows, t->first + begin, t->first + begin + n);
        begin += n;
    }
}

static void u3_run(void)
{
    const struct coded *c = &now.coded[now.kind->cols != 7168];
    size_t tile_rows = TILE_BYTES / (now.kind->cols * 2) / c->rows * c->rows;
    size_t matrix = now.kind->outputs / c->rows;
    if (now.coded_at + matrix > c->blocks)
        now.coded_at = 0;
    struct tile t = { .w = (char *)c->at + now.coded_at * c->bytes };
    now.coded_at += matrix;
    for (; t.first < now.kind->outputs; t.first += tile_rows) {
        size_t left = now.kind->outputs - t.first;
        size_t count = left < tile_rows ? left : tile_rows;
        team_for(now.team, count, bf16_grain(now.kind->cols, now.rows),
                 u3_body, &t);
        t.w += count / c->rows * c->bytes;
    }
}

static void decode_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct coded *c = &now.coded[0];
    char *to = now.decoded + (size_t)worker * DECODE_ROWS * c->cols * 2;
    struct u3 u;
    (void)arg;
    for (; begin < end; begin++) {
        u3_open(&u, c->at + worker * c->bytes);
        u3_rows(&now.kern, to, &u, 0, DECODE_ROWS);
    }
}

static void decode_run(void)
{
    team_for(now.team, now.kind->outputs / DECODE_ROWS, 1, decode_body, NULL);
}

static size_t state_at;

static void kda_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)arg;
    (void)worker;
    for (size_t h = begin; h < end; h++)
        for (size_t r = 0; r < now.rows; r++) {
            const float *x = now.x + r * WIDTH_MAX + h * 128;
            kda_step(&now.kern, now.y + r * WIDTH_MAX + h * 128,
                     (float *)(now.state + state_at) + h * 128 * 128, x,
                     now.key, x + 64, now.alpha, 0.5f, 128, 128);
        }
}

static void kda_run(void)
{
    size_t bytes = (size_t)HEADS * 128 * 128 * 4;
    if (state_at + bytes > STATE_BYTES)
        state_at = 0;
    team_for(now.team, HEADS, 1, kda_body, NULL);
    state_at += bytes;
}

static void mla_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const float *cache = arg;
    float *scratch = now.scratch + worker * mla_scratch(GROUP_HEADS, 512, 64);
    for (size_t i = begin; i < end; i++) {
        size_t r = i / (HEADS / GROUP_HEADS), g = i % (HEADS / GROUP_HEADS);
        const float *x = now.x + r * WIDTH_MAX;
        mla_attend(&now.kern, now.y + g * GROUP_HEADS * 512, x, x + 6144,
                   GROUP_HEADS, cache, POSITIONS, 512, 64, 0.01f, scratch);
    }
}

static void mla_run(void)
{
    const char *cache = next_weights((size_t)POSITIONS * 576 * 4);
    team_for(now.team, now.rows * (HEADS / GROUP_HEADS), 1, mla_body,
             (void *)cache);
}

static void router_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const char *w = arg;
    (void)worker;
    for (size_t r = 0; r < now.rows; r++)
        router_scores(&now.kern, now.y + r * WIDTH_MAX,
                      w + begin * now.kind->cols * 2, now.x + r * WIDTH_MAX,
                      now.kind->cols, begin, end);
}

static void router_run(void)
{
    const char *w = next_weights(now.kind->outputs * now.kind->cols * 2);
    team_for(now.team, now.kind->outputs, 8, router_body, (void *)w);
}

static void norm_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)arg;
    (void)worker;
    for (size_t r = begin; r < end; r++)
        rms_norm(&now.kern, now.y + r * WIDTH_MAX, now.x + r * WIDTH_MAX,
                 now.buffer, now.kind->cols, 1e-5f);
}

static void norm_run(void)
{
    team_for(now.team, now.rows, 1, norm_body, NULL);
}

static void attn_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const float *sources[9];
    (void)arg;
    (void)worker;
    for (size_t r = begin; r < end; r++) {
        for (size_t s = 0; s < 9; s++)
            sources[s] = (float *)now.buffer + (r * 9 + s) * now.kind->cols;
        attn_mix(&now.kern, now.y + r * WIDTH_MAX, sources, 9, now.buffer,
                 now.buffer + 16384, now.kind->cols, 1e-5f);
    }
}

static void attn_run(void)
{
    team_for(now.team, now.rows, 1, attn_body, NULL);
}

static void situ_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)arg;
    (void)worker;
    for (size_t r = begin; r < end; r++)
        situ(&now.kern, now.y + r * WIDTH_MAX, now.x + r * WIDTH_MAX,
             now.packed + r * WIDTH_MAX, now.kind->cols, 4.0f, 25.0f);
}

static void situ_run(void)
{
    team_for(now.team, now.rows, 1, situ_body, NULL);
}

static void conv_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)arg;
    (void)worker;
    for (size_t r = 0; r < now.rows; r++) {
        const float *x = now.x + r * WIDTH_MAX;
        const float *in[4] = { x, now.packed, now.packed + WIDTH_MAX, x };
        conv_silu(&now.kern, now.y + r * WIDTH_MAX, in, now.buffer, begin, end,
                  4);
    }
}

static void conv_run(void)
{
    team_for(now.team, now.kind->cols, 1024, conv_body, NULL);
}

#define GEMM(n, k, bits) (double)(n) * (k) * (bits) / 8, 2.0 * (n) * (k)

/* Units a token: the trunk and lm_head are 111.2 GB of bf16, half of it counted
 * in each shape; the experts 16 x 92 x 17.5 MB, w1 and w3 of one shape, w2 of
 * the other. A u3 line follows the bf16 line of its shape. */
static const struct kind kinds[] = {
    { "bf16", "12288x7168", 12288, 7168, GEMM(12288, 7168, 16), 315.5,
      bf16_run },
    { "u3", "12288x7168", 12288, 7168, GEMM(12288, 7168, 16), 0, u3_run },
    { "bf16", "7168x12288", 7168, 12288, GEMM(7168, 12288, 16), 315.5,
      bf16_run },
    { "u3", "7168x12288", 7168, 12288, GEMM(7168, 12288, 16), 0, u3_run },
    { "u3_rows", "L2 to L2", 1024, 7168, 1024 * 7168 * 2.0, 0, 0, decode_run },
    { "mxfp4", "3072x3584", 3072, 3584, GEMM(3072, 3584, 4.25), 92 * 32,
      mxfp4_run },
    { "mxfp4", "3584x3072", 3584, 3072, GEMM(3584, 3072, 4.25), 92 * 16,
      mxfp4_run },
    { "kda", "96x128x128", 0, 0, 2.0 * HEADS * 65536,
      7.0 * HEADS * 128 * 128, 69, kda_run },
    { "mla", "96x4096x576", 0, 0, POSITIONS * 576.0 * 4,
      2.0 * HEADS * POSITIONS * (576 + 512), 24, mla_run },
    { "router", "896x7168", 896, 7168, GEMM(896, 7168, 16), 92, router_run },
    { "rms_norm", "7168", 0, 7168, 7168 * 2.0, 7168 * 4.0, 187, norm_run },
    { "attn_mix", "9x7168", 0, 7168, 7168 * 4.0, 7168 * 9 * 6.0, 186,
      attn_run },
    { "situ", "3072", 0, 3072, 0, 3072 * 60.0, 92 * 18 + 11, situ_run },
    { "conv_silu", "12288x4", 0, 12288, 12288 * 16.0, 12288 * 30.0, 69 * 3,
      conv_run },
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- rounds ---- */

static void repeat(void *arg)
{
    uint64_t *spent = arg, start = (uint64_t)ceiling_clock(now.team), units = 0;
    do {
        now.kind->run();
        units++;
    } while ((uint64_t)ceiling_clock(now.team) - start < CASE_NS);
    spent[0] = (uint64_t)ceiling_clock(now.team) - start;
    spent[1] = units;
}

static void measure(struct bench_case *c, unsigned round)
{
    uint64_t spent[2];
    kern_init(&now.kern, c->isa);
    now.team = c->threads == 1 ? now.one : now.all;
    now.kind = c->kind;
    now.rows = c->rows;
    static size_t at; /* a different part each time: not what is cached */
    at = at + 2 * READ_BYTES <= BUFFER_BYTES ? at + READ_BYTES : 0;
    double read = ceiling_read(now.team, now.buffer + at, READ_BYTES);
    double fma = ceiling_fma(now.team, c->isa);
    team_run(now.team, repeat, spent);
    double seconds_e9 = (double)spent[0], units = (double)spent[1];
    double bytes = c->kind->bytes * units;
    c->gbps[round] = bytes / seconds_e9;
    c->gflops[round] =
        c->kind->flop_a_row * units * (double)c->rows / seconds_e9;
    c->seconds[round] = seconds_e9 * 1e-9 / units;
    c->of_read[round] = c->gbps[round] / read;
    c->of_fma[round] = c->gflops[round] / fma;
}

static double median(const double *values)
{
    return bench_spread(values, rounds).median;
}

static json_t *report(const struct bench_case *cases, size_t count)
{
    json_t *array = json_array();
    printf("%-10s %-7s %-12s %7s %5s %12s %8s %9s %7s\n", "kernel", "isa",
           "shape", "threads", "rows", "weight GB/s", "of read", "GFLOP/s",
           "of fma");
    for (size_t i = 0; i < count; i++) {
        const struct bench_case *c = &cases[i];
        double gbps = median(c->gbps), gflops = median(c->gflops);
        double read = median(c->of_read), fma = median(c->of_fma);
        printf("%-10s %-7s %-12s %7u %5zu %12.2f %7.0f%% %9.1f %6.0f%%\n",
               c->kind->kernel, isa_name(c->isa), c->kind->shape, c->threads,
               c->rows, gbps, 100 * read, gflops, 100 * fma);
        json_array_append_new(
            array,
            json_pack("{ss ss si si ss sf sf sf sf sf}", "kernel",
                      c->kind->kernel, "isa", isa_name(c->isa), "threads",
                      (int)c->threads, "rows", (int)c->rows, "shape",
                      c->kind->shape, "weight_gbps", gbps, "gflops", gflops,
                      "bandwidth_share", read, "fma_share", fma, "seconds",
                      median(c->seconds)));
    }
    return array;
}

/* The u3 lines by the bf16 lines before them. */
static void coded_by_raw(const struct bench_case *cases, size_t count)
{
    for (const struct bench_case *c = cases + 1; c < cases + count; c++) {
        double ratio[ROUNDS_MAX];
        if (c->kind->run != u3_run || c[-1].kind->run != bf16_run)
            continue;
        for (uint64_t i = 0; i < rounds; i++)
            ratio[i] = c->gbps[i] / c[-1].gbps[i];
        struct bench_spread s = bench_spread(ratio, rounds);
        printf("u3 by bf16 %-7s %-12s %u thread%s, %2zu rows: %.3f (%.3f to "
               "%.3f)\n",
               isa_name(c->isa), c->kind->shape, c->threads,
               c->threads == 1 ? "" : "s", c->rows, s.median, s.min, s.max);
    }
}

/* What one decoded token at K3's widths would take if all weights were in
 * memory, from the lines of one ISA and thread count at one row. */
static void decode_pass(const struct bench_case *cases, size_t count,
                        enum isa isa, unsigned threads_used)
{
    double products = 0.0, rest = 0.0;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bench_case *c = &cases[i];
        if (c->isa != isa || c->threads != threads_used || c->rows != 1)
            continue;
        double units = c->kind->units_a_token, s = median(c->seconds);
        bool product = c->kind->run == bf16_run || c->kind->run == mxfp4_run;
        *(product ? &products : &rest) += units * s;
        found++;
    }
    if (found == KINDS)
        printf("%s, %u thread%s: a resident decode pass %.2f s: products %.2f, "
               "all else %.3f (%.1f %%)\n",
               isa_name(isa), threads_used, threads_used == 1 ? "" : "s",
               products + rest, products, rest,
               100 * rest / (products + rest));
}

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "bench_kernels: %zu bytes: %s\n", bytes,
                strerror(errno));
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* Any two bytes are a bf16 of ordinary size, any four a float32 likewise. */
static void prepare(void)
{
    uint32_t seed = 1;
    now.buffer = map(BUFFER_BYTES);
    now.scales = map(BUFFER_BYTES / 16);
    now.state = map(STATE_BYTES);
    for (size_t i = 0; i < 1 << 20; i++) {
        seed = seed * 1664525 + 1013904223;
        now.buffer[i] = (char)(seed >> 24);
        if (i % 2)
            now.buffer[i] = (char)(0x3c | (seed >> 24 & 0x83));
    }
    for (size_t i = 1 << 20; i < BUFFER_BYTES; i += 1 << 20)
        memcpy(now.buffer + i, now.buffer, 1 << 20);
    memset(now.state, 0, STATE_BYTES);
    size_t floats = (size_t)ROWS_MAX * WIDTH_MAX;
    now.x = map(floats * 4);
    now.packed = map(floats * 4 + (1 << 20));
    now.y = map(floats * 4);
    now.scratch = map((size_t)TEAM_THREADS_MAX *
                      mla_scratch(GROUP_HEADS, 512, 64) * 4);
    for (size_t i = 0; i < floats; i++) {
        seed = seed * 1664525 + 1013904223;
        now.x[i] = (float)(int32_t)seed / 2147483648.0f;
        now.packed[i] = now.x[i];
    }
    for (size_t i = 0; i < 128; i++) {
        now.key[i] = i % 2 ? 0.0884f : -0.0884f; /* 128^-0.5 */
        now.alpha[i] = 0.9f;
    }
    coded_make(&now.coded[0], map(CODED_BYTES), CODED_BYTES, 7168);
    coded_make(&now.coded[1], map(CODED_BYTES), CODED_BYTES, 12288);
    now.decoded = map((size_t)team_threads(now.all) * DECODE_ROWS * 7168 * 2);
    for (size_t i = 0; i < BUFFER_BYTES / 16; i++)
        now.scales[i] = (unsigned char)(120 + i * 7 % 11 % 3);
}

static bool wanted(const struct kind *kind, enum isa isa, size_t rows)
{
    bool coded = kind->run == u3_run || kind->run == decode_run;
    bool raw = kind->run == bf16_run; /* beside u3 */
    return (strstr(kind->kernel, only) || (raw && !strcmp(only, "u3"))) &&
           strstr(isa_name(isa), isa_wanted) &&
           (rows == 1 || (isa != ISA_REF && kind->run != decode_run)) &&
           (isa != ISA_GFNI || coded || raw);
}

/* The u3 case of a shape right behind its bf16 case: a ratio within a round is
 * of two measurements that follow each other. */
static size_t list_cases(struct bench_case *cases)
{
    static const size_t rows[] = { 1, 2, 4, 8, 16, 32, 64 };
    enum isa best = kern_init(&now.kern, ISA_COUNT - 1);
    size_t count = 0;
    for (const struct kind *k = kinds; k < kinds + KINDS; k++)
        for (enum isa isa = ISA_REF; isa <= best; isa++) {
            if (k->run == u3_run || kern_init(&now.kern, isa) != isa)
                continue;
            for (int all = 0; all <= (now.all != now.one); all++)
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                    for (const struct kind *of = k;
                         of <= k + (k->run == bf16_run); of++)
                        if (wanted(of, isa, rows[r]))
                            cases[count++] = (struct bench_case){
                                .kind = of,
                                .isa = isa,
                                .threads = all ? team_threads(now.all) : 1,
                                .rows = rows[r],
                            };
        }
    return count;
}

int main(int argc, char **argv)
{
    static struct bench_case cases[CASES_MAX];
    static const struct opt table[] = {
        { "only", 0, OPT_TEXT, &only, "WORD", "kernels with it in the name",
          NULL },
        { "isa", 0, OPT_TEXT, &isa_wanted, "WORD", "ref, avx2 or avx512",
          NULL },
        { "rounds", 0, OPT_UINT, &rounds, "N", "interleaved rounds (5)", NULL },
        { "threads", 't', OPT_UINT, &threads, "N", "for `all`", NULL },
    };
    static const struct opt_command cmd = {
        "bench_kernels [--only WORD] [--isa WORD] [--rounds N] [-t N]",
        "Every kernel beside the read bandwidth and fma peak of the machine.",
        table, sizeof table / sizeof *table
    };
    int n = opt_parse(&cmd, argc, argv, NULL, 0);
    if (n < 0)
        return opt_status(n);
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return opt_usage_error(&cmd, "--rounds is 1 to %d", ROUNDS_MAX);
    if (team_open(&now.one, 1) || team_open(&now.all, (unsigned)threads)) {
        fprintf(stderr, "bench_kernels: no threads\n");
        return 1;
    }
    if (team_threads(now.all) == 1)
        now.all = now.one;
    prepare();
    size_t count = list_cases(cases);
    for (unsigned round = 0; round < rounds; round++)
        for (size_t i = 0; i < count; i++)
            measure(&cases[i], round);
    json_t *array = report(cases, count);
    coded_by_raw(cases, count);
    for (enum isa isa = ISA_REF; isa < ISA_COUNT; isa++) {
        decode_pass(cases, count, isa, 1);
        if (now.all != now.one)
            decode_pass(cases, count, isa, team_threads(now.all));
    }
    return bench_json("kernels", array);
}

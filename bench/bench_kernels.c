/* bench_kernels.c - every kernel beside what this machine can do.
 *
 *     make bench-kernels [ARGS="--only bf16 --isa avx512 --rounds 9"]
 *
 * Shapes are K3's. Weights are walked through a buffer larger than the caches,
 * in 4 MB tiles handed to a team as the model hands them. Each line is the
 * median over interleaved rounds; in every round the read bandwidth and the fma
 * peak are measured again right before the kernel, on as many threads, and the
 * shares are medians of the ratios within a round: on a shared machine the
 * rates move, the ratios much less.
 *
 *     weight GB/s   stored bytes that must be read (KDA: read and written)
 *     of read       that, as a share of a plain read loop over the same buffer
 *     of fma        GFLOP/s as a share of register-only fma, same vector width
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bin/opt.h"
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

enum {
    ROWS_MAX = 64,
    WIDTH_MAX = 12288,
    ROUNDS_MAX = 99,
    CASES_MAX = 1000,
    HEADS = 96,
    GROUP_HEADS = 12, /* heads an MLA call takes */
    POSITIONS = 4096,
};
#define BUFFER_BYTES ((size_t)1 << 30)
#define STATE_BYTES  ((size_t)448 << 20)
#define TILE_BYTES   ((size_t)4 << 20)
#define CASE_NS      30000000u

/* What one unit of work of a case reads and computes, and how to do it. */
struct kind {
    const char *kernel;
    const char *shape;
    size_t outputs, cols;
    double bytes;      /* of weights or state, a unit */
    double flop_a_row; /* a unit */
    void (*run)(void); /* one unit: current case, current place */
};

struct bench_case {
    const struct kind *kind;
    enum isa isa;
    unsigned threads;
    size_t rows;
    double gbps[ROUNDS_MAX], gflops[ROUNDS_MAX];
    double of_read[ROUNDS_MAX], of_fma[ROUNDS_MAX];
};

static struct {
    char *buffer, *state;
    size_t at; /* next weights in the buffer */
    struct team *team, *all, *one;
    const struct kind *kind;
    size_t rows;
    float *x, *packed, *y, *scratch;
    unsigned char *scale;
} now;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *next_weights(size_t bytes)
{
    if (now.at + bytes > BUFFER_BYTES)
        now.at = 0;
    const char *w = now.buffer + now.at;
    now.at += (bytes + 4095) & ~(size_t)4095;
    return w;
}

/* ---- the two ceilings ---- */

static void read_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    uint64_t a[8] = { 0 };
    const char *from = now.buffer;
    (void)arg;
    (void)worker;
    for (size_t i = begin; i < end; i += 64) {
        __builtin_prefetch(from + i + 1024);
        for (unsigned k = 0; k < 8; k++) {
            uint64_t word;
            memcpy(&word, from + i + 8 * k, sizeof word);
            a[k] ^= word;
        }
    }
    for (unsigned k = 0; k < 8; k++)
        __asm__ volatile("" : : "r"(a[k]));
}

static void read_pass(void *arg)
{
    size_t *at = arg;
    (void)at;
    team_for(now.team, BUFFER_BYTES / 4, 1 << 20, read_body, NULL);
}

static double read_gbps(void)
{
    uint64_t start = now_ns();
    team_run(now.team, read_pass, NULL);
    return (double)(BUFFER_BYTES / 4) / (double)(now_ns() - start);
}

#if defined(__x86_64__)
#define FMA4(r, a, b, c, d)                                                  \
    "vfmadd231ps %%" r "0, %%" r "1, %%" r #a "\n"                           \
    "vfmadd231ps %%" r "0, %%" r "1, %%" r #b "\n"                           \
    "vfmadd231ps %%" r "0, %%" r "1, %%" r #c "\n"                           \
    "vfmadd231ps %%" r "0, %%" r "1, %%" r #d "\n"
#define FMA_MOV(r, a) "vmovaps %%" r "0, %%" r #a "\n"
#define FMA_CLEAR(r)                                                         \
    FMA_MOV(r, 2) FMA_MOV(r, 3) FMA_MOV(r, 4) FMA_MOV(r, 5) FMA_MOV(r, 6)    \
    FMA_MOV(r, 7) FMA_MOV(r, 8) FMA_MOV(r, 9) FMA_MOV(r, 10)                 \
    FMA_MOV(r, 11) FMA_MOV(r, 12) FMA_MOV(r, 13)
#define FMA_LOOP(r, n)                                                       \
    __asm__ volatile(                                                        \
        "vxorps %%" r "0, %%" r "0, %%" r "0\n" /* not a stale subnormal */    \
        "vmovaps %%" r "0, %%" r "1\n" FMA_CLEAR(r)                           \
        "1:\n" FMA4(r, 2, 3, 4, 5) FMA4(r, 6, 7, 8, 9)                       \
            FMA4(r, 10, 11, 12, 13) "dec %0\n jnz 1b"                        \
        : "+r"(n)                                                            \
        :                                                                    \
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",    \
          "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

static double fma_loop(enum isa isa, uint64_t n)
{
    double flop = (double)n * 12 * 2;
    if (isa == ISA_AVX512) {
        FMA_LOOP("zmm", n);
        return flop * 16;
    }
    if (isa == ISA_AVX2) {
        FMA_LOOP("ymm", n);
        return flop * 8;
    }
    FMA_LOOP("xmm", n);
    return flop * 4;
}
#else
static double fma_loop(enum isa isa, uint64_t n)
{
    float a[12] = { 0 };
    (void)isa;
    for (uint64_t i = 0; i < n; i++)
        for (unsigned k = 0; k < 12; k++)
            __asm__ volatile("fmadd %s0, %s0, %s0, %s0" : "+w"(a[k]));
    return (double)n * 12 * 2;
}
#endif

static enum isa fma_isa;

static void fma_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)arg;
    (void)worker;
    for (size_t i = begin; i < end; i++)
        fma_loop(fma_isa, 100000);
}

static void fma_pass(void *arg)
{
    team_for(now.team, *(size_t *)arg, 1, fma_body, NULL);
}

static double fma_gflops(enum isa isa)
{
    size_t units = 16 * team_threads(now.team);
    fma_isa = isa;
    uint64_t start = now_ns();
    team_run(now.team, fma_pass, &units);
    double flop = fma_loop(isa, 1) * 100000.0 * (double)units;
    return flop / (double)(now_ns() - start);
}

/* ---- the kernels, one unit each ---- */

struct tile {
    const char *w;
    size_t first; /* output of w's first row */
};

static void bf16_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct tile *t = arg;
    (void)worker;
    bf16_gemm(now.y, WIDTH_MAX, t->w + begin * now.kind->cols * 2,
              now.kind->cols, now.packed, now.rows, t->first + begin,
              t->first + end);
}

static void bf16_run(void)
{
    size_t row_bytes = now.kind->cols * 2;
    size_t tile_rows = TILE_BYTES / row_bytes / 4 * 4;
    struct tile t = { next_weights(now.kind->outputs * row_bytes), 0 };
    for (; t.first < now.kind->outputs; t.first += tile_rows) {
        size_t left = now.kind->outputs - t.first;
        size_t count = left < tile_rows ? left : tile_rows;
        team_for(now.team, count, 4, bf16_body, &t);
        t.w += count * row_bytes;
    }
}

static void mxfp4_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct tile *t = arg;
    (void)worker;
    mxfp4_gemm(now.y, WIDTH_MAX, t->w + begin * now.kind->cols / 2,
               now.scale + begin * now.kind->cols / 32, now.kind->cols,
               now.packed, now.rows, begin, end);
}

static void mxfp4_run(void)
{
    size_t bytes = now.kind->outputs * now.kind->cols / 2;
    struct tile t = { next_weights(bytes * 17 / 16), 0 };
    now.scale = (unsigned char *)t.w + bytes;
    team_for(now.team, now.kind->outputs, 4, mxfp4_body, &t);
}

static size_t state_at;

static void kda_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)arg;
    (void)worker;
    for (size_t h = begin; h < end; h++)
        for (size_t r = 0; r < now.rows; r++) {
            const float *x = now.x + r * WIDTH_MAX + h * 128;
            kda_step(now.y + r * WIDTH_MAX + h * 128,
                     (float *)(now.state + state_at) + h * 128 * 128, x,
                     x + 128, x + 64, now.scratch, 0.5f, 128, 128);
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
        mla_attend(now.y + g * GROUP_HEADS * 512, x, x + 6144, GROUP_HEADS,
                   cache, POSITIONS, 512, 64, 0.01f, scratch);
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
        router_scores(now.y + r * WIDTH_MAX, w + begin * now.kind->cols * 2,
                      now.x + r * WIDTH_MAX, now.kind->cols, begin, end);
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
        rms_norm(now.y + r * WIDTH_MAX, now.x + r * WIDTH_MAX, now.buffer,
                 now.kind->cols, 1e-5f);
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
            sources[s] = now.packed + (r * 9 + s) * now.kind->cols;
        attn_mix(now.y + r * WIDTH_MAX, sources, 9, now.buffer,
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
        situ(now.y + r * WIDTH_MAX, now.x + r * WIDTH_MAX,
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
        conv_silu(now.y + r * WIDTH_MAX, in, now.buffer, begin, end, 4);
    }
}

static void conv_run(void)
{
    team_for(now.team, now.kind->cols, 1024, conv_body, NULL);
}

#define GEMM(n, k, bits) (double)(n) * (k) * (bits) / 8, 2.0 * (n) * (k)

static const struct kind kinds[] = {
    { "bf16", "12288x7168", 12288, 7168, GEMM(12288, 7168, 16), bf16_run },
    { "bf16", "7168x12288", 7168, 12288, GEMM(7168, 12288, 16), bf16_run },
    { "mxfp4", "3072x3584", 3072, 3584, GEMM(3072, 3584, 4.25), mxfp4_run },
    { "mxfp4", "3584x3072", 3584, 3072, GEMM(3584, 3072, 4.25), mxfp4_run },
    { "kda", "96x128x128", 0, 0, 2.0 * HEADS * 65536,
      7.0 * HEADS * 128 * 128, kda_run },
    { "mla", "96x4096x576", 0, 0, POSITIONS * 576.0 * 4,
      2.0 * HEADS * POSITIONS * (576 + 512), mla_run },
    { "router", "896x7168", 896, 7168, GEMM(896, 7168, 16), router_run },
    { "rms_norm", "7168", 0, 7168, 7168 * 2.0, 7168 * 4.0, norm_run },
    { "attn_mix", "9x7168", 0, 7168, 7168 * 4.0, 7168 * 9 * 6.0, attn_run },
    { "situ", "3072", 0, 3072, 0, 3072 * 60.0, situ_run },
    { "conv_silu", "12288x4", 0, 12288, 12288 * 16.0, 12288 * 30.0, conv_run },
};

/* ---- rounds ---- */

static void repeat(void *arg)
{
    uint64_t *spent = arg, start = now_ns(), units = 0;
    do {
        now.kind->run();
        units++;
    } while (now_ns() - start < CASE_NS);
    spent[0] = now_ns() - start;
    spent[1] = units;
}

static void measure(struct bench_case *c, unsigned round)
{
    uint64_t spent[2];
    kern_init(c->isa);
    now.team = c->threads == 1 ? now.one : now.all;
    now.kind = c->kind;
    now.rows = c->rows;
    double read = read_gbps(), fma = fma_gflops(c->isa);
    team_run(now.team, repeat, spent);
    double seconds_e9 = (double)spent[0], units = (double)spent[1];
    double bytes = c->kind->bytes * units;
    c->gbps[round] = bytes / seconds_e9;
    c->gflops[round] =
        c->kind->flop_a_row * units * (double)c->rows / seconds_e9;
    c->of_read[round] = c->gbps[round] / read;
    c->of_fma[round] = c->gflops[round] / fma;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

static void report(struct bench_case *cases, size_t count, unsigned rounds,
                   FILE *json)
{
    printf("%-10s %-7s %-12s %7s %5s %12s %8s %9s %7s\n", "kernel", "isa",
           "shape", "threads", "rows", "weight GB/s", "of read", "GFLOP/s",
           "of fma");
    fprintf(json, "[");
    for (size_t i = 0; i < count; i++) {
        struct bench_case *c = &cases[i];
        double gbps = median(c->gbps, rounds);
        double gflops = median(c->gflops, rounds);
        double read = median(c->of_read, rounds);
        double fma = median(c->of_fma, rounds);
        printf("%-10s %-7s %-12s %7u %5zu %12.2f %7.0f%% %9.1f %6.0f%%\n",
               c->kind->kernel, isa_name(c->isa), c->kind->shape, c->threads,
               c->rows, gbps, 100 * read, gflops, 100 * fma);
        fprintf(json,
                "%s\n{\"kernel\": \"%s\", \"isa\": \"%s\", \"threads\": %u, "
                "\"rows\": %zu, \"shape\": \"%s\", \"weight_gbps\": %.4g, "
                "\"gflops\": %.4g, \"bandwidth_share\": %.4g, "
                "\"fma_share\": %.4g}",
                i ? "," : "", c->kind->kernel, isa_name(c->isa), c->threads,
                c->rows, c->kind->shape, gbps, gflops, read, fma);
    }
    fprintf(json, "\n]\n");
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

/* Any two bytes are a bf16 of ordinary size, any one a scale of 120..123. */
static void prepare(void)
{
    uint32_t seed = 1;
    now.buffer = map(BUFFER_BYTES);
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
    now.packed = map(floats * 4 + 1);
    now.y = map(floats * 4);
    now.scratch = map((size_t)TEAM_THREADS_MAX *
                      mla_scratch(GROUP_HEADS, 512, 64) * 4);
    for (size_t i = 0; i < floats; i++) {
        seed = seed * 1664525 + 1013904223;
        now.x[i] = (float)(int32_t)seed / 2147483648.0f;
        now.packed[i] = now.x[i];
    }
    for (size_t i = 0; i < 128; i++)
        now.scratch[i] = 0.9f;
}

static const char *only = "", *isa_wanted = "";
static uint64_t rounds = 5, threads;

static size_t list_cases(struct bench_case *cases)
{
    static const size_t rows[] = { 1, 2, 4, 8, 16, 32, 64 };
    enum isa best = kern_init(ISA_COUNT - 1);
    size_t count = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (enum isa isa = ISA_REF; isa <= best; isa++)
            for (int all = 0; all <= (now.all != now.one); all++)
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    if (!strstr(kinds[k].kernel, only) ||
                        !strstr(isa_name(isa), isa_wanted) ||
                        (isa == ISA_REF && r > 0))
                        continue;
                    cases[count++] = (struct bench_case){
                        .kind = &kinds[k],
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
    FILE *json = fopen("build/bench/kernels.json", "w");
    if (!json) {
        fprintf(stderr, "bench_kernels: build/bench/kernels.json: %s\n",
                strerror(errno));
        return 1;
    }
    report(cases, count, (unsigned)rounds, json);
    return fclose(json) == 0 ? 0 : 1;
}

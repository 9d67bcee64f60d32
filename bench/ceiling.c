#include "bench/ceiling.h"

#include "io/clock.h"

#include <stdint.h>
#include <string.h>

enum { STREAMS = 4, PART = 1 << 20, FMA_ROUNDS = 100000, FMA_UNITS = 16 };

int64_t ceiling_clock(const struct team *team)
{
    struct timespec t;
    if (team_threads(team) > 1)
        return clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Four streams, as the products have, and a prefetch. */
static void read_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    uint64_t a[8] = { 0 };
    const char *from = arg;
    size_t step = (end - begin) / STREAMS;
    (void)worker;
    for (size_t i = begin; i < begin + step; i += 64)
        for (size_t s = 0; s < STREAMS; s++) {
            __builtin_prefetch(from + i + s * step + 1024);
            for (unsigned k = 0; k < 8; k++) {
                uint64_t word;
                memcpy(&word, from + i + s * step + 8 * k, sizeof word);
                a[k] ^= word;
            }
        }
    for (unsigned k = 0; k < 8; k++)
        __asm__ volatile("" : : "r"(a[k]));
}

#if defined(__x86_64__)
#define MOVE(r, a) "vmovaps %%" r "0, %%" r #a "\n"
#define MOVE4(r, a, b, c, d) MOVE(r, a) MOVE(r, b) MOVE(r, c) MOVE(r, d)
#define FMA(r, a)  "vfmadd231ps %%" r "0, %%" r "1, %%" r #a "\n"
#define FMA4(r, a, b, c, d) FMA(r, a) FMA(r, b) FMA(r, c) FMA(r, d)
/* Zeros: what the registers hold otherwise may be subnormal, and slow. */
#define FMA_LOOP(r, n)                                                       \
    __asm__ volatile(                                                        \
        "vxorps %%xmm0, %%xmm0, %%xmm0\n" MOVE(r, 1) MOVE4(r, 2, 3, 4, 5)    \
            MOVE4(r, 6, 7, 8, 9) MOVE4(r, 10, 11, 12, 13) "1:\n"             \
            FMA4(r, 2, 3, 4, 5) FMA4(r, 6, 7, 8, 9) FMA4(r, 10, 11, 12, 13)  \
        "dec %0\n jnz 1b"                                                    \
        : "+r"(n)                                                            \
        :                                                                    \
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",    \
          "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

static void fma_loop(enum isa isa)
{
    uint64_t n = FMA_ROUNDS;
    if (isa == ISA_AVX512)
        FMA_LOOP("zmm", n);
    else if (isa == ISA_AVX2 || isa == ISA_GFNI)
        FMA_LOOP("ymm", n);
    else
        FMA_LOOP("xmm", n);
}
#else
static void fma_loop(enum isa isa)
{
    typedef float four __attribute__((vector_size(16)));
    four a[12] = { 0 }, x = { 0 };
    (void)isa;
    for (unsigned i = 0; i < FMA_ROUNDS; i++)
        for (unsigned k = 0; k < 12; k++)
            __asm__ volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(a[k]) : "w"(x));
}
#endif

static void fma_body(void *arg, size_t begin, size_t end, unsigned worker)
{
    const enum isa *isa = arg;
    (void)worker;
    for (size_t i = begin; i < end; i++)
        fma_loop(*isa);
}

struct ceiling {
    struct team *team;
    char *from;
    size_t bytes;
    enum isa isa;
};

static void read_pass(void *arg)
{
    struct ceiling *c = arg;
    team_for(c->team, c->bytes, PART, read_body, c->from);
}

static void fma_pass(void *arg)
{
    struct ceiling *c = arg;
    team_for(c->team, FMA_UNITS * team_threads(c->team), 1, fma_body, &c->isa);
}

double ceiling_read(struct team *team, const char *from, size_t bytes)
{
    struct ceiling c = { .team = team, .from = (char *)from, .bytes = bytes };
    int64_t start = ceiling_clock(team);
    team_run(team, read_pass, &c);
    return (double)bytes / (double)(ceiling_clock(team) - start);
}

double ceiling_fma(struct team *team, enum isa isa)
{
    static const double lanes[ISA_COUNT] = { 4, 8, 8, 16 };
    struct ceiling c = { .team = team, .isa = isa };
    int64_t start = ceiling_clock(team);
    team_run(team, fma_pass, &c);
    double flop = 2.0 * 12 * lanes[isa] * FMA_ROUNDS * FMA_UNITS *
                  team_threads(team);
    return flop / (double)(ceiling_clock(team) - start);
}

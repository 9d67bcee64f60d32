/* bench_pack.c - what coding costs: the encoder on every instruction set, each
 * part of a block's way into a sidecar, and all of it; ratios by width.
 *
 * Everything in memory, on one thread, in CPU time, medians of rounds in which
 * all arms take turns. GB/s are of the bf16 that goes in.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/coded.h"
#include "bin/cli/opt.h"
#include "compute/crc32c.h"
#include "compute/kern.h"
#include "compute/u3.h"
#include "compute/u3_encode.h"
#include "model/pack/object.h"

enum { ROUNDS_MAX = 15, REPEAT = 24, WIDTHS = 6 };

static const uint32_t width[WIDTHS] = { 7168, 12288, 33792, 3584, 1536, 512 };

enum arm { ENCODE_REF, ENCODE_LAST = ENCODE_REF + ISA_COUNT - 1, CHECK, CRC,
           CRC_SOURCE, DECODE, ALL, ARMS };

static const char *const arm_name[ARMS] = {
    "encode, ref", "encode, avx2", "encode, gfni", "encode, avx512",
    "check the structure", "checksum, coded", "checksum, raw", "decode",
    "all of a block's way"
};

_Static_assert(ISA_COUNT == 4, "a name for each");

struct bench {
    struct coded block;
    uint8_t *room, *raw, *out;
    struct u3_scratch *scratch;
    struct kern kern, each[ISA_COUNT];
    bool has[ISA_COUNT];
    struct mill *mill;
    uint32_t sink; /* results, so that nothing is left out */
};

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void once(struct bench *b, enum arm arm)
{
    uint32_t rows = b->block.rows, cols = b->block.cols;
    size_t raw = (size_t)rows * cols * 2;
    struct made made;
    struct u3 u;
    uint32_t sink = 0;
    switch (arm) {
    case CHECK:
        sink = u3_check(b->block.at, b->block.bytes, rows, cols) != NULL;
        break;
    case CRC:
        sink = crc32c(0, b->block.at, b->block.bytes);
        break;
    case CRC_SOURCE:
        sink = crc32c(0, b->raw, raw);
        break;
    case DECODE:
        u3_open(&u, b->block.at);
        u3_rows(&b->kern, b->out, &u, 0, rows);
        break;
    case ALL:
        sink = (uint32_t)mill_block(b->mill, &made, b->out, b->raw, rows, cols);
        break;
    default:
        u3_encode(&b->each[arm - ENCODE_REF], b->out, b->raw, rows, cols,
                  b->scratch);
    }
    b->sink ^= sink;
}

static double rate(struct bench *b, enum arm arm)
{
    size_t raw = (size_t)b->block.rows * b->block.cols * 2;
    int repeat = arm == ENCODE_REF ? 1 : REPEAT;
    int64_t begin = cpu_ns();
    for (int i = 0; i < repeat; i++)
        once(b, arm);
    return (double)raw * repeat / (double)(cpu_ns() - begin);
}

static bool there(const struct bench *b, enum arm arm)
{
    return arm > ENCODE_LAST || b->has[arm - ENCODE_REF];
}

static void run_width(struct bench *b, uint32_t cols, uint32_t rounds,
                      json_t *json)
{
    double value[ARMS][ROUNDS_MAX];
    struct u3 u;
    coded_make(&b->block, b->room, 2 << 20, cols);
    u3_open(&u, b->block.at);
    u3_rows(&b->kern, b->raw, &u, 0, b->block.rows);
    for (uint32_t r = 0; r < rounds; r++)
        for (int a = 0; a < ARMS; a++)
            value[a][r] = there(b, (enum arm)a) ? rate(b, (enum arm)a) : 0;
    printf("%u columns, %u rows a block: ratio %.4f\n", cols, b->block.rows,
           b->block.ratio);
    for (int a = 0; a < ARMS; a++) {
        struct bench_spread s = bench_spread(value[a], rounds);
        if (!there(b, (enum arm)a))
            continue;
        printf("  %-22s %7.2f GB/s  (%.2f to %.2f)\n", arm_name[a], s.median,
               s.min, s.max);
        json_array_append_new(
            json, json_pack("{s:i, s:f, s:s, s:f, s:f, s:f}", "cols", (int)cols,
                            "ratio", b->block.ratio, "arm", arm_name[a],
                            "gbps", s.median, "min", s.min, "max", s.max));
    }
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    uint64_t rounds = 7;
    const struct opt table[] = { { "rounds", 0, OPT_UINT, &rounds, "N",
                                   "of each arm; default 7", NULL } };
    const struct opt_command cmd = { "bench_pack [--rounds N]", "", table, 1 };
    const char *words[1];
    int n = opt_parse(&cmd, argc, argv, words, 0);
    if (n < 0)
        return opt_status(n);
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    kern_init(&b.kern, ISA_COUNT - 1);
    for (int i = 0; i < ISA_COUNT; i++)
        b.has[i] = kern_init(&b.each[i], (enum isa)i) == (enum isa)i;
    b.room = aligned_alloc(64, 4 << 20);
    b.raw = aligned_alloc(64, 4 << 20);
    b.out = aligned_alloc(64, 4 << 20);
    b.scratch = malloc(sizeof *b.scratch);
    if (!b.room || !b.raw || !b.out || !b.scratch ||
        mill_open(&b.mill, &b.kern)) {
        fputs("bench: no memory\n", stderr);
        return 1;
    }
    json_t *json = json_array();
    for (int w = 0; w < WIDTHS; w++)
        run_width(&b, width[w], (uint32_t)rounds, json);
    mill_close(b.mill);
    free(b.room);
    free(b.raw);
    free(b.out);
    free(b.scratch);
    return bench_json("pack", json);
}

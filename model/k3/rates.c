#include "model/k3/rates.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compute/bf16.h"
#include "compute/kern.h"
#include "compute/mxfp4.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "compute/u3.h"
#include "compute/u3_encode.h"
#include "io/arena.h"
#include "io/clock.h"
#include "model/k3/threads.h"

enum {
    COLS = 4096,
    GRAIN = 32,       /* rows of weights */
    BLOCK_ROWS = 128, /* of coded rows: 1 MiB of bf16 */
    MIN_ROWS = 256,
    WINDOW_NS = 10000000, /* that one measurement takes at least */
    ROUNDS = 5,
    ROUND_NS = 5000000, /* a window of one of them, for each thread */
    HERE_BYTES = 192 << 20,
};

struct rates {
    struct kern  kern;
    struct team *team;
    struct arena *arena; /* of the next two: on huge pages, as weights are */
    uint8_t *raw;    /* [rows] of bf16, and of MXFP4: any finite */
    uint8_t *coded;  /* [rows / BLOCK_ROWS] blocks; NULL: not asked for */
    uint8_t *decoded; /* [threads][GRAIN][2 * COLS] */
    float   *x, *y;  /* packed rows; results */
    size_t   rows;   /* of weights */
    uint32_t block_bytes;
    size_t   begin[RATES_FORMS][2]; /* rows that took a window: one, many */
    /* The measurement at work. */
    enum rates_form form;
    uint32_t many;   /* rows of x */
    size_t   some;   /* rows of weights */
};

/* Bytes of a row; of a coded one, what it stands for. */
static size_t row_bytes(enum rates_form form)
{
    return form == RATES_MXFP4 ? COLS / 2 + COLS / MXFP4_BLOCK : 2 * COLS;
}

static void some_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct rates *t = arg;
    float *y = t->y + (size_t)worker * RATES_ROWS_MAX * GRAIN;
    for (size_t at = begin; at < end; at += GRAIN) {
        size_t n = end - at < GRAIN ? end - at : GRAIN;
        const uint8_t *w = t->raw + at * row_bytes(t->form);
        uint32_t row = (uint32_t)(at % BLOCK_ROWS);
        struct u3 u;
        if (t->form == RATES_CODED || t->form == RATES_CODED_ROWS)
            u3_open(&u, t->coded + at / BLOCK_ROWS * t->block_bytes);
        if (t->form == RATES_CODED_ROWS) {
            uint8_t *to = t->decoded + (size_t)worker * GRAIN * 2 * COLS;
            u3_rows(&t->kern, to, &u, row, row + (uint32_t)n);
            w = to;
        }
        if (t->form == RATES_MXFP4)
            mxfp4_gemm(&t->kern, y, GRAIN, w, w + n * (COLS / 2), COLS, t->x,
                       t->many, 0, n);
        else if (t->form == RATES_CODED)
            u3_gemm(&t->kern, y, GRAIN, &u, row, t->x, t->many, 0, n);
        else
            bf16_gemm(&t->kern, y, GRAIN, w, COLS, t->x, t->many, 0, n);
    }
}

static void one_call(void *arg)
{
    struct rates *t = arg;
    team_for(t->team, t->some, GRAIN, some_rows, t);
}

/* Time of all threads of the process. */
static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* More and more rows until they take a window by this clock; bytes a second. */
static double measure(struct rates *t, enum rates_form form, uint32_t rows,
                      int64_t (*now_ns)(void), int64_t window_ns)
{
    size_t *begin = &t->begin[form][rows > 1];
    int64_t ns;
    t->many = rows;
    t->form = form;
    for (t->some = *begin;; t->some *= 2) {
        if (t->some > t->rows)
            t->some = t->rows;
        int64_t from = now_ns();
        team_run(t->team, one_call, t);
        ns = now_ns() - from;
        if (ns >= window_ns || t->some == t->rows)
            break;
    }
    *begin = t->some;
    return (double)(t->some * row_bytes(form)) / ((double)ns / 1e9 + 1e-9);
}

double rates_of(struct rates *t, enum rates_form form, uint32_t rows)
{
    double best = 0;
    int64_t from = clock_ns();
    do { /* all of few rows is less than a window: again */
        double rate = measure(t, form, rows, clock_ns, WINDOW_NS);
        best = rate > best ? rate : best;
    } while (clock_ns() - from < WINDOW_NS);
    return best;
}

/* A block of weights, spread about as trained ones are. */
static uint8_t *make_block(struct rates *t)
{
    struct u3_scratch *scratch = malloc(sizeof *scratch);
    uint16_t *w = malloc((size_t)BLOCK_ROWS * COLS * sizeof *w);
    uint8_t *block = aligned_alloc(U3_ALIGN, u3_bytes_max(BLOCK_ROWS, COLS));
    uint64_t random = 1;
    for (size_t i = 0; w && i < (size_t)BLOCK_ROWS * COLS; i++) {
        random = random * UINT64_C(6364136223846793005) + 1;
        int sum = 0; /* of eight: nearly normal */
        for (int j = 0; j < 8; j++)
            sum += (int)(random >> (8 * j) & 255) - 128;
        float value = (float)sum / 16384;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        w[i] = (uint16_t)(bits >> 16);
    }
    if (scratch && w && block)
        t->block_bytes = u3_encode(&t->kern, block, w, BLOCK_ROWS, COLS,
                                   scratch);
    free(scratch);
    free(w);
    return block;
}

static int fill(struct rates *t, uint64_t memory_bytes, bool coded)
{
    uint8_t *block = coded ? make_block(t) : NULL;
    unsigned threads = team_threads(t->team);
    if (coded && !t->block_bytes) {
        free(block);
        return -ENOMEM;
    }
    uint64_t each = 2 * COLS + t->block_bytes / BLOCK_ROWS;
    t->rows = memory_bytes / each / BLOCK_ROWS * BLOCK_ROWS;
    t->rows = t->rows > MIN_ROWS ? t->rows : MIN_ROWS;
    uint64_t blocks = coded ? t->rows / BLOCK_ROWS : 0;
    if (!arena_open(&t->arena, t->rows * 2 * COLS + blocks * t->block_bytes +
                                   U3_ALIGN)) {
        t->raw = arena_take(t->arena, t->rows * 2 * COLS, U3_ALIGN);
        t->coded = arena_take(t->arena, blocks * t->block_bytes, U3_ALIGN);
    }
    t->x = calloc(RATES_ROWS_MAX * pack_cols(COLS), sizeof *t->x);
    t->y = malloc(sizeof *t->y * RATES_ROWS_MAX * GRAIN * threads);
    t->decoded = malloc((size_t)GRAIN * 2 * COLS * threads);
    bool fine = t->raw && t->x && t->y && t->decoded && (!coded || t->coded);
    for (size_t b = 0; fine && b < blocks; b++)
        memcpy(t->coded + b * t->block_bytes, block, t->block_bytes);
    if (fine)
        memset(t->raw, 0x33, t->rows * 2 * COLS);
    free(block);
    return fine ? 0 : -ENOMEM;
}

int rates_open(struct rates **out, const struct kern *kern, struct team *team,
               uint64_t memory_bytes, bool coded)
{
    struct rates *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return -ENOMEM;
    t->kern = *kern;
    t->team = team;
    for (int f = 0; f < RATES_FORMS; f++)
        t->begin[f][0] = t->begin[f][1] = MIN_ROWS;
    int err = fill(t, memory_bytes, coded);
    if (err)
        rates_close(t);
    else
        *out = t;
    return err;
}

void rates_close(struct rates *t)
{
    if (!t)
        return;
    arena_close(t->arena);
    free(t->decoded);
    free(t->x);
    free(t->y);
    free(t);
}

/* ---- what decoding costs ---- */

/* In CPU time: on a busy machine a thread loses its core for longer than a
 * window, and ratios of wall time would say anything. */
int decode_time_measure(struct decode_time *out, const struct kern *kern,
                        struct team *team, uint64_t memory_bytes)
{
    static const struct {
        enum rates_form form;
        uint32_t rows;
    } arm[] = { { RATES_BF16, 1 }, { RATES_CODED, 1 }, { RATES_CODED_ROWS, 1 },
                { RATES_BF16, RATES_ROWS_MAX },
                { RATES_CODED, RATES_ROWS_MAX } };
    enum { ARMS = sizeof arm / sizeof *arm };
    double best[ARMS] = { 0 };
    struct rates *r;
    int err = rates_open(&r, kern, team, memory_bytes, true);
    if (err)
        return err;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < ARMS; i++) {
            double rate = measure(r, arm[i].form, arm[i].rows, cpu_ns,
                                  ROUND_NS * team_threads(team));
            best[i] = rate > best[i] ? rate : best[i];
        }
    rates_close(r);
    *out = (struct decode_time){ .product = best[0] / best[1],
                                 .rows = best[0] / best[2],
                                 .many = best[3] / best[4] };
    return 0;
}

int decode_time_here(struct decode_time *out, uint32_t threads)
{
    struct kern kern;
    struct team *team;
    int err = team_open(&team, k3_threads_or_default(threads));
    if (err)
        return err;
    kern_init(&kern, ISA_COUNT - 1);
    err = decode_time_measure(out, &kern, team, HERE_BYTES);
    team_close(team);
    return err;
}

/* Many rows share the decoding, and their time is that of arithmetic. */
double decode_time_of(const struct decode_time *t, bool first, uint32_t rows)
{
    double one = first ? t->rows : t->product;
    return t->many + (one - t->many) / (rows ? rows : 1);
}

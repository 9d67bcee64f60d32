#include "model/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/mxfp4.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "io/reader.h"
#include "model/shards.h"
#include "sched/stream.h"

enum {
    COLS = 4096,
    MANY = 32,           /* rows: more than the memory bandwidth binds */
    GRAIN = 32,          /* rows of weights */
    LEAST_ROWS = 256,
    MOST_BYTES = 256 << 20,
    WINDOW_NS = 10000000, /* for each of the four numbers */
    IN_FLIGHT_BYTES = 32 << 20,
};

struct trial {
    struct team *team;
    uint8_t *weights;
    float   *x, *y; /* packed rows; results */
    size_t   rows;  /* of weights in this call */
    size_t   many;  /* rows of x */
    bool     mxfp4;
    int64_t  ns;
};

static size_t row_bytes(bool mxfp4)
{
    return mxfp4 ? COLS / 2 + COLS / MXFP4_BLOCK : 2 * COLS;
}

static void some_rows(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct trial *t = arg;
    float *y = t->y + (size_t)worker * MANY * GRAIN;
    (void)worker;
    for (size_t at = begin; at < end; at += GRAIN) {
        size_t n = end - at < GRAIN ? end - at : GRAIN;
        const uint8_t *w = t->weights + at * row_bytes(t->mxfp4);
        if (t->mxfp4)
            mxfp4_gemm(y, GRAIN, w, w + n * (COLS / 2), COLS, t->x, t->many, 0,
                       n);
        else
            bf16_gemm(y, GRAIN, w, COLS, t->x, t->many, 0, n);
    }
}

static void one_call(void *arg)
{
    struct trial *t = arg;
    team_for(t->team, t->rows, GRAIN, some_rows, t);
}

/* Bytes of weights a second: more and more of them until it takes its time, the
 * last call is the measure. */
static double rate(struct trial *t, size_t most_rows, size_t many, bool mxfp4)
{
    t->many = many;
    t->mxfp4 = mxfp4;
    for (t->rows = LEAST_ROWS;; t->rows *= 2) {
        if (t->rows > most_rows)
            t->rows = most_rows;
        int64_t begin = stream_clock_ns();
        team_run(t->team, one_call, t);
        t->ns = stream_clock_ns() - begin;
        if (t->ns >= WINDOW_NS || t->rows == most_rows)
            break;
    }
    return (double)(t->rows * row_bytes(mxfp4)) / ((double)t->ns / 1e9 + 1e-9);
}

int machine_kernels(struct forecast_machine *m, uint32_t threads,
                    uint64_t memory_bytes, struct why *why)
{
    struct trial t = { 0 };
    size_t bytes = memory_bytes < MOST_BYTES ? (size_t)memory_bytes
                                             : MOST_BYTES;
    size_t rows = bytes / row_bytes(false) / GRAIN * GRAIN;
    rows = rows > LEAST_ROWS ? rows : LEAST_ROWS;
    int err = team_open(&t.team, threads);
    if (err)
        return why_set(why, err, "the threads could not be started");
    m->threads = team_threads(t.team);
    t.weights = malloc(rows * row_bytes(false));
    t.x = calloc(MANY * pack_cols(COLS), sizeof *t.x);
    t.y = malloc(sizeof *t.y * MANY * GRAIN * team_threads(t.team));
    if (t.weights && t.x && t.y) {
        memset(t.weights, 0x33, rows * row_bytes(false)); /* finite as both */
        double one = rate(&t, rows, 1, false);
        double many = rate(&t, rows, MANY, false);
        m->trunk_bytes = one;
        m->trunk_ops = many * MANY; /* two bytes and two operations a weight */
        one = rate(&t, rows, 1, true);
        many = rate(&t, rows, MANY, true);
        m->expert_bytes = one;
        m->expert_ops = many * MANY * 2 * 8 / 4.25;
    } else {
        err = why_set(why, -ENOMEM, "no memory to time the kernels");
    }
    free(t.weights);
    free(t.x);
    free(t.y);
    team_close(t.team);
    return err;
}

int machine_drives(struct forecast_machine *m, const char *dir,
                   const char *method, struct why *why)
{
    struct shards s;
    struct reader *r = NULL;
    struct reader_facts f;
    uint32_t bad = 0;
    int err = shards_list(&s, dir, why);
    if (err)
        return err;
    struct reader_options o = {
        .method = method, .paths = (const char *const *)s.path,
        .files = s.count, .in_flight_bytes = IN_FLIGHT_BYTES };
    err = reader_open(&r, &o, &bad);
    if (err) {
        why_set(why, err, "%s: %s", bad < s.count ? s.path[bad] : dir,
                strerror(-err));
    } else {
        reader_facts(r, &f);
        m->drive_bytes = (double)f.raw_bytes_per_s;
    }
    reader_close(r);
    shards_free(&s);
    return err;
}

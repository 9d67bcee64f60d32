/* Goal    every kernel returns the same bits on every instruction set, for any
 *         number of rows, grouping of rows, cut of the outputs and alignment,
 *         writes nothing beside its outputs, and is right.
 * Method  random inputs at shapes that leave tails in every loop. The reference
 *         at one row and one output at a time gives the bits; a model in double
 *         says that they are right; everything else is compared with memcmp.
 *         Outputs start inside a field of guard words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/kern.h"
#include "compute/mxfp4.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "compute/vmath.h"
#include "tests/skip.h"

enum { ROWS_MAX = 101, OUTPUTS_MAX = 39, COLS_MAX = 1056, GUARD = 0x5a };

static uint64_t seed = 1;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static float draw_float(void)
{
    return (float)(int32_t)(draw() << 1) / 1073741824.0f;
}

static enum isa best;
static struct kern kern;

/* A product of either form. */
struct form {
    bool mxfp4;
    size_t cols, stride, scale_stride;
    unsigned char w[OUTPUTS_MAX * COLS_MAX * 2 + 8];
    unsigned char scale[OUTPUTS_MAX * COLS_MAX / 32 + 8];
    size_t w_shift, scale_shift; /* bytes off alignment */
    float x[ROWS_MAX][COLS_MAX];
    float packed[ROWS_MAX * (COLS_MAX + 192) + 1];
    float want[ROWS_MAX][OUTPUTS_MAX];
    float got[ROWS_MAX][OUTPUTS_MAX + 2];
};

static bool multiply(const struct form *f, float *y, size_t ldy, size_t r,
                     size_t rows, size_t begin, size_t end)
{
    const float *xp = f->packed + 1 + r * pack_cols(f->cols);
    const unsigned char *w = f->w + f->w_shift + begin * f->stride;
    if (!f->mxfp4)
        return bf16_gemm(&kern, y, ldy, w, f->cols, xp, rows, begin, end);
    return mxfp4_gemm(&kern, y, ldy, w,
                      f->scale + f->scale_shift + begin * f->scale_stride,
                      f->cols, xp, rows, begin, end);
}

static double weight(const struct form *f, size_t o, size_t c)
{
    const unsigned char *row = f->w + f->w_shift + o * f->stride;
    if (!f->mxfp4)
        return (double)vmath_float((uint32_t)(row[2 * c] | row[2 * c + 1] << 8)
                                   << 16);
    static const double value[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    unsigned code = row[c / 2] >> (c % 2 ? 4 : 0) & 15;
    int e = f->scale[f->scale_shift + o * f->scale_stride + c / 32];
    return ldexp(code & 8 ? -value[code & 7] : value[code & 7], e - 127);
}

static void fill(struct form *f, bool mxfp4, size_t cols)
{
    f->mxfp4 = mxfp4;
    f->cols = cols;
    f->stride = mxfp4 ? cols / 2 : cols * 2;
    f->scale_stride = cols / 32;
    f->w_shift = draw() % 8;
    f->scale_shift = draw() % 4;
    for (size_t i = 0; i < sizeof f->w; i++)
        f->w[i] = (unsigned char)draw();
    for (size_t i = 0; i < sizeof f->scale; i++)
        f->scale[i] = (unsigned char)(110 + draw() % 20);
    for (size_t i = 0; !mxfp4 && i < OUTPUTS_MAX * cols; i++) {
        uint32_t bits = vmath_bits(draw_float());
        memcpy(f->w + f->w_shift + 2 * i, (char *)&bits + 2, 2);
    }
    for (size_t r = 0; r < ROWS_MAX; r++) {
        for (size_t c = 0; c < cols; c++)
            f->x[r][c] = draw_float();
        pack_rows(f->packed + 1 + r * pack_cols(cols), f->x[r], 1, cols, cols);
    }
}

/* The bits, from the reference one by one, checked against doubles. */
static void settle(struct form *f)
{
    kern_init(&kern, ISA_REF);
    for (size_t r = 0; r < ROWS_MAX; r++)
        for (size_t o = 0; o < OUTPUTS_MAX; o++) {
            double sum = 0.0, size = 0.0;
            for (size_t c = 0; c < f->cols; c++) {
                sum += weight(f, o, c) * (double)f->x[r][c];
                size += fabs(weight(f, o, c) * (double)f->x[r][c]);
            }
            assert_true(multiply(f, f->want[r], OUTPUTS_MAX, r, 1, o, o + 1));
            if (!(fabs((double)f->want[r][o] - sum) <= 1e-6 * size))
                fail_msg("row %zu output %zu: %g, in double %g", r, o,
                         (double)f->want[r][o], sum);
        }
}

/* Rows [r, r+rows) times outputs [begin, end), guards around each row. */
static void check(struct form *f, size_t r, size_t rows, size_t begin,
                  size_t end)
{
    memset(f->got, GUARD, sizeof f->got);
    assert_true(multiply(f, f->got[0] + 1, OUTPUTS_MAX + 2, r, rows, begin,
                         end));
    unsigned char guard[sizeof f->got[0]];
    memset(guard, GUARD, sizeof guard);
    for (size_t i = 0; i < ROWS_MAX; i++) {
        const float *row = f->got[i];
        if (i >= rows) {
            assert_memory_equal(row, guard, sizeof f->got[0]);
            continue;
        }
        assert_memory_equal(row, guard, (1 + begin) * sizeof *row);
        assert_memory_equal(row + 1 + begin, f->want[r + i] + begin,
                            (end - begin) * sizeof *row);
        assert_memory_equal(row + 1 + end, guard,
                            (OUTPUTS_MAX + 1 - end) * sizeof *row);
    }
}

static void all_groupings(struct form *f)
{
    settle(f);
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        assert_int_equal(kern_init(&kern, isa), isa);
        /* The reference takes a while and has no tails to get wrong. */
        size_t step = isa == ISA_REF ? 20 : f->cols > 500 ? 5 : 1;
        for (size_t rows = 1; rows <= ROWS_MAX; rows += step)
            check(f, ROWS_MAX - rows, rows, 0, OUTPUTS_MAX);
        for (unsigned i = 0; i < 60 / step; i++) {
            size_t rows = 1 + draw() % ROWS_MAX;
            size_t begin = draw() % OUTPUTS_MAX;
            check(f, draw() % (ROWS_MAX - rows + 1), rows, begin,
                  begin + draw() % (OUTPUTS_MAX - begin + 1));
        }
    }
}

static struct form form;

static void bf16_bits(void **state)
{
    static const size_t cols[] = { 1,  20, 31,  32,   33,  40,
                                   48, 96, 160, 1024, 1055 };
    (void)state;
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        fill(&form, false, cols[i]);
        all_groupings(&form);
    }
}

static void mxfp4_bits(void **state)
{
    static const size_t cols[] = { 32, 64, 96, 512, 544, 1024, 1056 };
    (void)state;
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        fill(&form, true, cols[i]);
        all_groupings(&form);
    }
}

/* Columns after the last belong to the next tensor or to nobody. */
static void bf16_ignores_what_follows(void **state)
{
    (void)state;
    fill(&form, false, 40);
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        unsigned char *room = malloc(80); /* the end of it, for asan */
        float y;
        assert_non_null(room);
        memcpy(room, form.w + form.w_shift, 80);
        kern_init(&kern, isa);
        assert_true(
            bf16_gemm(&kern, &y, 1, room, 40, form.packed + 1, 1, 0, 1));
        free(room);
        memset(form.w + form.w_shift + 80, 0xff, 80); /* NaN */
        assert_true(multiply(&form, form.got[0], 1, 0, 1, 0, 1));
        assert_memory_equal(form.got[0], &y, sizeof y);
    }
}

/* The product of one byte's low or high nibble with one. */
static void check_byte(unsigned byte, unsigned nibble, unsigned e, float got,
                       bool finite)
{
    static const float value[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    float both[2] = { ldexpf(value[byte & 7], (int)e - 127),
                      ldexpf(value[byte >> 4 & 7], (int)e - 127) };
    if (isinf(both[0]) || isinf(both[1])) { /* the other one is times 0 */
        assert_false(finite || isfinite(got));
        return;
    }
    float want = byte >> (3 + 4 * nibble) & 1 ? -both[nibble] : both[nibble];
    if (got != want)
        fail_msg("byte %u nibble %u scale %u: %g, expected %g", byte, nibble, e,
                 (double)got, (double)want);
}

/* Every byte under every scale: both nibbles, by themselves, exactly. */
static void mxfp4_all_bytes(void **state)
{
    uint8_t w[4][16] = { { 0 } }, scale[4];
    float xp[2][32] = { { 0 } }, y[2][4];
    (void)state;
    xp[0][5] = 1.0f;      /* column 10 */
    xp[1][16 + 5] = 1.0f; /* column 11 */
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        kern_init(&kern, isa);
        for (unsigned e = 0; e < 255; e++)
            for (unsigned byte = 0; byte < 256; byte += 4) {
                for (unsigned i = 0; i < 4; i++) {
                    w[i][5] = (uint8_t)(byte + i);
                    scale[i] = (uint8_t)e;
                }
                bool ok =
                    mxfp4_gemm(&kern, y[0], 4, w, scale, 32, xp[0], 2, 0, 4);
                for (unsigned i = 0; i < 8; i++)
                    check_byte(byte + i % 4, i / 4, e, y[i / 4][i % 4], ok);
            }
    }
}

static void mxfp4_refuses_255(void **state)
{
    (void)state;
    fill(&form, true, 96);
    memset(form.w, 0, sizeof form.w); /* even when all weights are zero */
    form.scale[form.scale_shift + 7 * 3 + 1] = 255;
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        kern_init(&kern, isa);
        for (size_t rows = 1; rows < 8; rows++) {
            assert_false(multiply(&form, form.got[0], OUTPUTS_MAX, 0, rows, 0,
                                  OUTPUTS_MAX));
            assert_true(multiply(&form, form.got[0], OUTPUTS_MAX, 0, rows, 0,
                                 7));
        }
    }
}

static void finite_or_false(void **state)
{
    (void)state;
    fill(&form, false, 96);
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        kern_init(&kern, isa);
        for (size_t o = 0; o < OUTPUTS_MAX; o++) {
            unsigned char *at = form.w + form.w_shift + (o * 96 + 95) * 2;
            unsigned char keep[2] = { at[0], at[1] };
            at[0] = 0x80;
            at[1] = 0x7f; /* infinity */
            assert_false(multiply(&form, form.got[0], OUTPUTS_MAX, 0, 7, 0,
                                  OUTPUTS_MAX));
            memcpy(at, keep, 2);
        }
        assert_true(multiply(&form, form.got[0], OUTPUTS_MAX, 0, 7, 0,
                             OUTPUTS_MAX));
    }
}

static void transposed_and_widened(void **state)
{
    static const size_t cols[] = { 1, 8, 15, 16, 17, 128, 415 };
    static float want[COLS_MAX], got[COLS_MAX + 1];
    (void)state;
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        for (enum isa isa = ISA_REF; isa <= best; isa++) {
            fill(&form, false, cols[i]);
            const unsigned char *w = form.w + form.w_shift;
            for (size_t c = 0; c < cols[i]; c++) {
                want[c] = 0.0f;
                for (size_t r = 0; r < OUTPUTS_MAX; r++)
                    want[c] = fmaf((float)weight(&form, r, c), form.x[0][r],
                                   want[c]);
            }
            kern_init(&kern, isa);
            got[cols[i]] = 9.0f;
            assert_true(
                bf16_gemv_t(&kern, got, w, OUTPUTS_MAX, cols[i], form.x[0]));
            assert_memory_equal(got, want, cols[i] * sizeof *got);
            bf16_widen(&kern, got, w, cols[i]);
            for (size_t c = 0; c < cols[i]; c++)
                assert_true(got[c] == (float)weight(&form, 0, c));
            assert_true(got[cols[i]] == 9.0f);
        }
}

struct split {
    struct form *f;
    struct team *team;
    size_t rows, grain;
};

static void part(void *arg, size_t begin, size_t end, unsigned worker)
{
    const struct split *s = arg;
    (void)worker;
    multiply(s->f, s->f->got[0], OUTPUTS_MAX + 2, 0, s->rows, begin, end);
}

static void pass(void *arg)
{
    struct split *s = arg;
    team_for(s->team, OUTPUTS_MAX, s->grain, part, s);
}

static void any_threads(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct split s = { .f = &form };
        assert_int_equal(team_open(&s.team, threads), 0);
        fill(&form, threads % 2, 96);
        settle(&form);
        kern_init(&kern, best);
        for (unsigned i = 0; i < 40; i++) {
            s.rows = 1 + draw() % ROWS_MAX;
            s.grain = 1 + draw() % 5;
            memset(form.got, GUARD, sizeof form.got);
            team_run(s.team, pass, &s);
            for (size_t r = 0; r < s.rows; r++)
                assert_memory_equal(form.got[r], form.want[r],
                                    sizeof form.want[r]);
        }
        team_close(s.team);
    }
}

/* Rows of an expert of K3: the same bits on every ISA, and near what float64
 * says that the codes mean. */
enum { EXPERT_ROWS = 64, EXPERT_COLS = 3584 };
struct expert_rows {
    unsigned char w[EXPERT_ROWS * EXPERT_COLS / 2];
    unsigned char scale[EXPERT_ROWS * EXPERT_COLS / 32];
};

static void check_expert_rows(const struct expert_rows *rows)
{
    enum { ROWS = EXPERT_ROWS, COLS = EXPERT_COLS };
    const unsigned char *w = rows->w, *scale = rows->scale;
    static float x[COLS], xp[2 * COLS], y[ISA_COUNT][2][ROWS];
    for (size_t i = 0; i < sizeof rows->scale; i++)
        assert_in_range(scale[i], 120, 122);
    for (size_t c = 0; c < COLS; c++)
        x[c] = draw_float();
    pack_rows(xp, x, 1, COLS, COLS);
    pack_rows(xp + pack_cols(COLS), x, 1, COLS, COLS);
    for (enum isa isa = ISA_REF; isa <= best; isa++) {
        kern_init(&kern, isa);
        assert_true(
            mxfp4_gemm(&kern, y[isa][0], ROWS, w, scale, COLS, xp, 2, 0, ROWS));
        assert_memory_equal(y[isa][0], y[ISA_REF][0], sizeof y[isa]);
        assert_memory_equal(y[isa][1], y[isa][0], sizeof y[isa][1]);
    }
    for (size_t o = 0; o < ROWS; o++) {
        double sum = 0.0, size = 0.0;
        for (size_t c = 0; c < COLS; c++) {
            static const double value[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
            unsigned code = w[o * COLS / 2 + c / 2] >> (c % 2 * 4) & 15;
            int e = scale[o * COLS / 32 + c / 32];
            double weight = ldexp(value[code & 7], e - 127);
            sum += (code & 8 ? -weight : weight) * (double)x[c];
            size += weight * fabs((double)x[c]);
        }
        assert_true(fabs((double)y[ISA_REF][0][o] - sum) <= 1e-6 * size);
    }
}

static void random_expert_rows(void **state)
{
    static struct expert_rows e;
    (void)state;
    for (size_t i = 0; i < sizeof e.w; i++)
        e.w[i] = (unsigned char)draw();
    for (size_t i = 0; i < sizeof e.scale; i++)
        e.scale[i] = (unsigned char)(120 + draw() % 3);
    check_expert_rows(&e);
}

static void released_expert_rows(void **state)
{
    static struct expert_rows e;
    static const char *const paths[] = {
        "../shared/data/kimi-k3/released_w1_packed.u8",
        "../shared/data/kimi-k3/released_w1_scale.u8",
    };
    (void)state;
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(paths[k], "rb");
        if (!f)
            skip_because("%s is absent", paths[k]);
        size_t size = k ? sizeof e.scale : sizeof e.w;
        assert_int_equal(fread(k ? e.scale : e.w, 1, size, f), size);
        fclose(f);
    }
    check_expert_rows(&e);
}

int main(void)
{
    best = kern_init(&kern, ISA_COUNT - 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_bits),
        cmocka_unit_test(mxfp4_bits),
        cmocka_unit_test(bf16_ignores_what_follows),
        cmocka_unit_test(mxfp4_all_bytes),
        cmocka_unit_test(mxfp4_refuses_255),
        cmocka_unit_test(finite_or_false),
        cmocka_unit_test(transposed_and_widened),
        cmocka_unit_test(any_threads),
        cmocka_unit_test(random_expert_rows),
        cmocka_unit_test(released_expert_rows),
    };
    return cmocka_run_group_tests_name("gemm bits", tests, NULL, NULL);
}

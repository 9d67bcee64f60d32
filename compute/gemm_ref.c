/* gemm_ref.c - the matrix products as their headers state them, in plain C. */
#include <math.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/kern.h"
#include "compute/mxfp4.h"
#include "compute/pack.h"
#include "compute/u3.h"

enum { LANES = 16 };

static float widen(const void *src, size_t i)
{
    uint16_t half;
    memcpy(&half, (const char *)src + 2 * i, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float fold(float *lane)
{
    for (unsigned n = LANES / 2; n > 0; n /= 2)
        for (unsigned l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

static void accumulate(float *lane, const float *weight, const float *xp)
{
    for (unsigned l = 0; l < LANES; l++) {
        lane[l] = fmaf(weight[2 * l], xp[l], lane[l]);
        lane[l] = fmaf(weight[2 * l + 1], xp[LANES + l], lane[l]);
    }
}

static bool bf16_gemm_ref(float *y, size_t ldy, const void *w, size_t cols,
                          const float *xp, size_t rows, size_t begin,
                          size_t end)
{
    const size_t ld = pack_cols(cols);
    bool finite = true;
    for (size_t o = begin; o < end; o++) {
        const char *row = (const char *)w + (o - begin) * cols * 2;
        for (size_t r = 0; r < rows; r++) {
            float lane[LANES] = { 0 };
            for (size_t b = 0; b < cols; b += PACK_BLOCK) {
                float weight[PACK_BLOCK] = { 0 };
                for (size_t c = 0; c < PACK_BLOCK && b + c < cols; c++)
                    weight[c] = widen(row, b + c);
                accumulate(lane, weight, xp + r * ld + b);
            }
            y[r * ldy + o] = fold(lane);
            finite &= isfinite(y[r * ldy + o]) != 0;
        }
    }
    return finite;
}

static bool mxfp4_gemm_ref(float *y, size_t ldy, const void *w,
                           const void *scale, size_t cols, const float *xp,
                           size_t rows, size_t begin, size_t end)
{
    const size_t ld = pack_cols(cols);
    bool finite = true;
    for (size_t o = begin; o < end; o++) {
        const uint8_t *row = (const uint8_t *)w + (o - begin) * (cols / 2);
        const uint8_t *e =
            (const uint8_t *)scale + (o - begin) * (cols / MXFP4_BLOCK);
        for (size_t r = 0; r < rows; r++) {
            float lane[LANES] = { 0 };
            for (size_t b = 0; b < cols; b += MXFP4_BLOCK) {
                float weight[MXFP4_BLOCK], s = mxfp4_scale(e[b / MXFP4_BLOCK]);
                for (size_t c = 0; c < MXFP4_BLOCK; c++)
                    weight[c] = s * mxfp4_element(row[(b + c) / 2] >>
                                                  (c % 2 * 4));
                accumulate(lane, weight, xp + r * ld + b);
            }
            y[r * ldy + o] = fold(lane);
            finite &= isfinite(y[r * ldy + o]) != 0;
        }
    }
    return finite;
}

static bool bf16_gemv_t_ref(float *y, const void *w, size_t rows, size_t cols,
                            const float *x)
{
    bool finite = true;
    for (size_t c = 0; c < cols; c++) {
        float sum = 0.0f;
        for (size_t r = 0; r < rows; r++)
            sum = fmaf(widen(w, r * cols + c), x[r], sum);
        y[c] = sum;
        finite &= isfinite(sum) != 0;
    }
    return finite;
}

static void bf16_widen_ref(float *y, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = widen(src, i);
}

static void u3_rows_entry(void *dst, const struct u3 *u, uint32_t begin,
                          uint32_t end)
{
    uint8_t *to = dst;
    for (uint32_t r = begin; r < end; r++, to += (size_t)u->cols * 2)
        u3_row_ref(to, u, r);
}

static bool u3_gemm_ref(float *y, size_t ldy, const struct u3 *u, uint32_t row,
                        const float *xp, size_t rows, size_t begin, size_t end)
{
    uint8_t w[2 * U3_COLS_MAX];
    bool finite = true;
    for (size_t o = begin; o < end; o++) {
        u3_row_ref(w, u, row + (uint32_t)(o - begin));
        finite &= bf16_gemm_ref(y, ldy, w, u->cols, xp, rows, o, o + 1);
    }
    return finite;
}

void gemm_fill_ref(struct kern *k)
{
    k->bf16_gemm = bf16_gemm_ref;
    k->bf16_gemv_t = bf16_gemv_t_ref;
    k->bf16_widen = bf16_widen_ref;
    k->mxfp4_gemm = mxfp4_gemm_ref;
    k->u3_rows = u3_rows_entry;
    k->u3_gemm = u3_gemm_ref;
}

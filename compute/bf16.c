#include "compute/bf16.h"

#include <assert.h>

#include "compute/kern.h"

enum {
    GRAIN_BYTES = 64 << 10, /* of weights */
    GRAIN_FAR = 32,         /* rows of them */
    FAR_BYTES = 1 << 20,    /* of x: half an L2, beside what streams by */
};

bool bf16_gemm(const struct kern *kern, float *y, size_t ldy, const void *w,
               size_t cols, const float *xp, size_t rows, size_t begin,
               size_t end)
{
    assert(rows >= 1 && rows <= GEMM_ROWS_MAX);
    assert(cols >= 1);
    assert(begin <= end);
    assert(end <= ldy || rows == 1);
    return kern->bf16_gemm(y, ldy, w, cols, xp, rows, begin, end);
}

size_t bf16_grain(size_t cols, size_t rows)
{
    if (rows * cols * sizeof(float) > FAR_BYTES)
        return GRAIN_FAR;
    size_t grain = GRAIN_BYTES / (cols * 2) / 8 * 8;
    return grain ? grain : 8;
}

bool bf16_gemv_t(const struct kern *kern, float *y, const void *w, size_t rows,
                 size_t cols, const float *x)
{
    return kern->bf16_gemv_t(y, w, rows, cols, x);
}

void bf16_widen(const struct kern *kern, float *y, const void *src, size_t n)
{
    kern->bf16_widen(y, src, n);
}

#include "compute/bf16.h"

#include <assert.h>

#include "compute/kern.h"

bool bf16_gemm(float *y, size_t ldy, const void *w, size_t cols,
               const float *xp, size_t rows, size_t begin, size_t end)
{
    assert(rows >= 1 && rows <= GEMM_ROWS_MAX);
    assert(cols >= 1);
    assert(begin <= end);
    assert(end <= ldy || rows == 1);
    return kern.bf16_gemm(y, ldy, w, cols, xp, rows, begin, end);
}

bool bf16_gemv_t(float *y, const void *w, size_t rows, size_t cols,
                 const float *x)
{
    return kern.bf16_gemv_t(y, w, rows, cols, x);
}

void bf16_widen(float *y, const void *src, size_t n)
{
    kern.bf16_widen(y, src, n);
}

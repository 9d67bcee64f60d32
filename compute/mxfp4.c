#include "compute/mxfp4.h"

#include <assert.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/kern.h"

bool mxfp4_gemm(const struct kern *kern, float *y, size_t ldy, const void *w,
                const void *scale, size_t cols, const float *xp, size_t rows,
                size_t begin, size_t end)
{
    assert(rows >= 1 && rows <= GEMM_ROWS_MAX);
    assert(cols >= 1 && cols % MXFP4_BLOCK == 0);
    assert(begin <= end);
    assert(end <= ldy || rows == 1);
    return kern->mxfp4_gemm(y, ldy, w, scale, cols, xp, rows, begin, end);
}

float mxfp4_element(unsigned code)
{
    static const float value[16] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                     4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                     -2.0f, -3.0f, -4.0f, -6.0f };
    return value[code & 15];
}

float mxfp4_scale(uint8_t e)
{
    /* The exponent field is e itself, except at the two ends. */
    uint32_t bits = (uint32_t)e << 23;
    if (e == 0)
        bits = 0x00400000;
    if (e == 255)
        bits = 0x7fc00000;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bf16.h - the bf16 functions of one instruction set. Included after
 * rows.h and the definitions of pair_at and pair_tail. */

static bool bf16_gemm(float *y, size_t ldy, const void *w, size_t cols,
                      const float *xp, size_t rows, size_t begin, size_t end)
{
    const struct product a = { .y = y + begin, .ldy = ldy, .w = w,
                               .stride = cols * 2, .cols = cols,
                               .ld = pack_cols(cols), .xp = xp };
    return product(&a, rows, end - begin);
}

static bool bf16_gemv_t(float *y, const void *w, size_t rows, size_t cols,
                        const float *x)
{
    vf bad = vf_set(0.0f);
    for (size_t c = 0; c < cols; c += LANES) {
        size_t m = cols - c < LANES ? cols - c : LANES;
        const char *at = (const char *)w + c * 2;
        vf sum = vf_set(0.0f);
        for (size_t r = 0; r < rows; r++)
            sum = vf_fma(vf_bf16_n(at + r * cols * 2, m), vf_set(x[r]), sum);
        vf_store_n(y + c, sum, m);
        bad = vf_fma(sum, vf_set(0.0f), bad);
    }
    return vf_fold(bad) == 0.0f;
}

static void bf16_widen(float *y, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t m = n - i < LANES ? n - i : LANES;
        vf_store_n(y + i, vf_bf16_n((const char *)src + i * 2, m), m);
    }
}

static void bf16_fill(struct kern *k)
{
    k->bf16_gemm = bf16_gemm;
    k->bf16_gemv_t = bf16_gemv_t;
    k->bf16_widen = bf16_widen;
}

/* kern.h - the table of inner loops, chosen once for this machine.
 *
 * An entry works on the calling thread: no threads of its own, no allocation,
 * no globals. The public functions (bf16.h, mxfp4.h, ...) check the contract
 * and call through the table; nobody calls an ISA's function by name.
 *
 *     kern_init(ISA_COUNT - 1) -> everything else in compute/
 *
 * Bytes    A level only changes how fast an answer comes. Every entry of every
 *          level keeps the order of operations its header states, so the
 *          results are equal bit by bit; tests compare them with memcmp.
 * Threads  Call kern_init once, before any thread uses the table; until then it
 *          is empty. Tests call it again for every level.
 */
#ifndef COMPUTE_KERN_H
#define COMPUTE_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum isa { ISA_REF, ISA_AVX2, ISA_AVX512, ISA_COUNT };

/* Fill the table with the best entries up to `most` that this CPU has; returns
 * the level reached. */
enum isa kern_init(enum isa most);
/* "ref", "avx2", "avx512". */
const char *isa_name(enum isa isa);

struct kern {
    bool (*bf16_gemm)(float *y, size_t ldy, const void *w, size_t cols,
                      const float *xp, size_t rows, size_t begin, size_t end);
    bool (*bf16_gemv_t)(float *y, const void *w, size_t rows, size_t cols,
                        const float *x);
    void (*bf16_widen)(float *y, const void *src, size_t n);
    bool (*mxfp4_gemm)(float *y, size_t ldy, const void *w, const void *scale,
                       size_t cols, const float *xp, size_t rows, size_t begin,
                       size_t end);
    /* Sums over n elements of x and the gain loop that ends a norm. */
    double (*sum_squares)(const float *x, size_t n);
    bool (*gain_bf16)(float *y, const float *x, const void *gain, size_t n,
                      float root);
    bool (*gain_f32)(float *y, const float *x, const void *gain, size_t n,
                     float root);
    void (*scale)(float *x, size_t n, float by);
    double (*attn_dot)(const float *v, const void *norm, const void *proj,
                       size_t n);
    bool (*attn_sum)(float *h, const float *const *sources, const float *prob,
                     unsigned count, size_t n);
    void (*exp)(float *y, const float *x, size_t n);
    void (*tanh)(float *y, const float *x, size_t n);
    void (*sigma)(float *y, const float *x, size_t n);
    void (*situ)(float *out, const float *g, const float *u, size_t n, float b1,
                 float b2);
    void (*sigmoid_gate)(float *y, const float *x, const float *gate, size_t n);
    void (*conv_silu)(float *y, const float *const *in, const void *taps,
                      size_t begin, size_t end, unsigned kernel);
    void (*kda_decay)(float *alpha, const float *z, const void *dt_bias,
                      float rate, float lower_bound, size_t n);
    void (*kda_step)(float *o, float *state, const float *q, const float *k,
                     const float *v, const float *alpha, float beta, size_t dk,
                     size_t dv);
    void (*mla_attend)(float *mix, const float *qa, const float *qr,
                       size_t heads, const float *cache, size_t positions,
                       size_t latent, size_t rope, float scale, float *scratch);
    bool (*router_scores)(float *s, const void *w, const float *x, size_t cols,
                          size_t begin, size_t end);
};

extern struct kern kern;

/* One of these an ISA file; each overwrites only what it implements. */
void gemm_fill_ref(struct kern *k);
void row_fill_ref(struct kern *k);
void attn_fill_ref(struct kern *k);
void bf16_fill_avx2(struct kern *k);
void mxfp4_fill_avx2(struct kern *k);
void row_fill_avx2(struct kern *k);
void attn_fill_avx2(struct kern *k);
void bf16_fill_avx512(struct kern *k);
void mxfp4_fill_avx512(struct kern *k);
void row_fill_avx512(struct kern *k);
void attn_fill_avx512(struct kern *k);

#endif

/* kern.h - the table of inner loops, filled for this machine.
 *
 * An entry works on the calling thread: no threads of its own, no allocation,
 * no global state. The public functions (bf16.h, mxfp4.h, ...) take a table,
 * check the contract and call through it; nobody calls an ISA's function by
 * name. Whoever computes has a table of its own: there is no global one.
 *
 *     kern_init(&kern, ISA_COUNT - 1) -> everything else in compute/
 *
 * Bytes    A level only changes how fast an answer comes. Every entry of every
 *          level keeps the order of operations its header states, so the
 *          results are equal bit by bit; tests compare them with memcmp.
 * Threads  A filled table is only read: threads may share it.
 * Cost     kern_init asks the CPU what it has and stores pointers: under a
 *          microsecond.
 */
#ifndef COMPUTE_KERN_H
#define COMPUTE_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct u3_streams;
struct u3;

/* ISA_GFNI is AVX2 and GFNI; a CPU with AVX-512 may lack it. */
enum isa { ISA_REF, ISA_AVX2, ISA_GFNI, ISA_AVX512, ISA_COUNT };

/* "ref", "avx2", "gfni", "avx512". */
const char *isa_name(enum isa isa);

struct kern {
    enum isa isa; /* the level reached */
    bool (*bf16_gemm)(float *y, size_t ldy, const void *w, size_t cols,
                      const float *xp, size_t rows, size_t begin, size_t end);
    bool (*bf16_gemv_t)(float *y, const void *w, size_t rows, size_t cols,
                        const float *x);
    void (*bf16_widen)(float *y, const void *src, size_t n);
    bool (*mxfp4_gemm)(float *y, size_t ldy, const void *w, const void *scale,
                       size_t cols, const float *xp, size_t rows, size_t begin,
                       size_t end);
    /* For blocks in mode 1. */
    void (*u3_rows)(void *dst, const struct u3 *u, uint32_t begin,
                    uint32_t end);
    bool (*u3_gemm)(float *y, size_t ldy, const struct u3 *u, uint32_t row,
                    const float *xp, size_t rows, size_t begin, size_t end);
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
    void (*sigmoid)(float *y, const float *x, size_t n);
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
    /* One row of a block, see u3.h and u3_encode.h. */
    void (*u3_code_row)(uint8_t *low, uint8_t *planes, struct u3_streams *s,
                        const void *src, uint32_t cols, const uint8_t *table);
};

/* Fill `kern` with the best entries up to `max` that this CPU has; returns the
 * level reached, at most `max`. */
enum isa kern_init(struct kern *kern, enum isa max);

/* One of these an ISA file; each overwrites only what it implements. */
void gemm_fill_ref(struct kern *k);
void row_fill_ref(struct kern *k);
void attn_fill_ref(struct kern *k);
void u3_code_fill_ref(struct kern *k);
void bf16_fill_avx2(struct kern *k);
void mxfp4_fill_avx2(struct kern *k);
void row_fill_avx2(struct kern *k);
void attn_fill_avx2(struct kern *k);
void u3_code_fill_avx2(struct kern *k);
void u3_fill_avx2(struct kern *k);
void u3_fill_gfni(struct kern *k);
void bf16_fill_avx512(struct kern *k);
void u3_code_fill_avx512(struct kern *k);
void mxfp4_fill_avx512(struct kern *k);
void row_fill_avx512(struct kern *k);
void attn_fill_avx512(struct kern *k);
void u3_fill_avx512(struct kern *k);

#endif

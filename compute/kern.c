#include "compute/kern.h"

#include <assert.h>

struct kern kern;

#if defined(__x86_64__)
static bool cpu_has(enum isa isa)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return false;
    return isa == ISA_AVX2 || (__builtin_cpu_supports("avx512f") &&
                               __builtin_cpu_supports("avx512bw") &&
                               __builtin_cpu_supports("avx512vl") &&
                               __builtin_cpu_supports("avx512dq"));
}
#endif

enum isa kern_init(enum isa most)
{
    assert(most < ISA_COUNT);
    enum isa reached = ISA_REF;
    gemm_fill_ref(&kern);
    row_fill_ref(&kern);
    attn_fill_ref(&kern);
#if defined(__x86_64__)
    if (most >= ISA_AVX2 && cpu_has(ISA_AVX2)) {
        bf16_fill_avx2(&kern);
        mxfp4_fill_avx2(&kern);
        row_fill_avx2(&kern);
        attn_fill_avx2(&kern);
        reached = ISA_AVX2;
    }
    if (most >= ISA_AVX512 && cpu_has(ISA_AVX512)) {
        bf16_fill_avx512(&kern);
        mxfp4_fill_avx512(&kern);
        row_fill_avx512(&kern);
        attn_fill_avx512(&kern);
        reached = ISA_AVX512;
    }
#endif
    return reached;
}

const char *isa_name(enum isa isa)
{
    static const char *const names[ISA_COUNT] = { "ref", "avx2", "avx512" };
    assert(isa < ISA_COUNT);
    return names[isa];
}

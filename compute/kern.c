#include "compute/kern.h"

#include <assert.h>

#ifdef KERN_X86
static bool cpu_has(enum isa isa)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("popcnt"))
        return false;
    if (isa == ISA_GFNI)
        return __builtin_cpu_supports("gfni");
    return isa == ISA_AVX2 || (__builtin_cpu_supports("avx512f") &&
                               __builtin_cpu_supports("avx512bw") &&
                               __builtin_cpu_supports("avx512vl") &&
                               __builtin_cpu_supports("avx512dq"));
}
#endif

enum isa kern_init(struct kern *kern, enum isa max)
{
    assert(max < ISA_COUNT);
    kern->isa = ISA_REF;
    gemm_fill_ref(kern);
    row_fill_ref(kern);
    attn_fill_ref(kern);
    u3_code_fill_ref(kern);
#ifdef KERN_X86
    if (max >= ISA_AVX2 && cpu_has(ISA_AVX2)) {
        bf16_fill_avx2(kern);
        mxfp4_fill_avx2(kern);
        row_fill_avx2(kern);
        attn_fill_avx2(kern);
        u3_code_fill_avx2(kern);
        u3_fill_avx2(kern);
        kern->isa = ISA_AVX2;
    }
    if (max >= ISA_GFNI && cpu_has(ISA_GFNI)) {
        u3_fill_gfni(kern);
        kern->isa = ISA_GFNI;
    }
    if (max >= ISA_AVX512 && cpu_has(ISA_AVX512)) {
        bf16_fill_avx512(kern);
        mxfp4_fill_avx512(kern);
        row_fill_avx512(kern);
        attn_fill_avx512(kern);
        u3_code_fill_avx512(kern);
        u3_fill_avx512(kern);
        kern->isa = ISA_AVX512;
    }
#endif
    return kern->isa;
}

const char *isa_name(enum isa isa)
{
    static const char *const names[ISA_COUNT] = {
        "ref", "avx2", "gfni", "avx512",
    };
    assert(isa < ISA_COUNT);
    return names[isa];
}

#include "compute/kern.h"

#include <assert.h>

struct kern kern;

static void fill_ref(struct kern *k)
{
    gemm_fill_ref(k);
    row_fill_ref(k);
    attn_fill_ref(k);
}

enum isa kern_init(enum isa most)
{
    assert(most < ISA_COUNT);
    fill_ref(&kern);
    return ISA_REF;
}

const char *isa_name(enum isa isa)
{
    static const char *const names[ISA_COUNT] = { "ref", "avx2", "avx512" };
    assert(isa < ISA_COUNT);
    return names[isa];
}

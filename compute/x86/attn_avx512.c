#include "compute/x86/lanes_avx512.h"

enum { MLA_HEADS = 6, MLA_VECTORS = 4 }; /* 24 of 32 registers hold sums */

#include "compute/body/attn.h"

void attn_fill_avx512(struct kern *k)
{
    attn_fill(k);
}
